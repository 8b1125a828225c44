/*
 * A growing list of strings that is always NULL-terminated, so that it can be run as a command.
 */
#ifndef SP_BUILD_WORDS_H
#define SP_BUILD_WORDS_H

#include <stdbool.h>
#include <stddef.h>

struct sp_words {
    char **word; /* NULL-terminated once there is one */
    size_t count;
};

int sp_words_add(struct sp_words *words, const char *text);
int sp_words_addf(struct sp_words *words, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
int sp_words_append(struct sp_words *words, const struct sp_words *more);
bool sp_words_have(const struct sp_words *words, const char *text);

/* By strcmp(), each once. */
void sp_words_sort(struct sp_words *words);

/* Joined by blanks, for the caller to free; NULL without memory. */
char *sp_words_join(const struct sp_words *words);

/* Free and set to zero; safe on zero. */
void sp_words_free(struct sp_words *words);

#endif
