#include "build/words.h"
#include "base/err.h"
#include "base/file.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Takes text over, also on error; NULL means that there was no memory for it. */
static int keep(struct sp_words *words, char *text)
{
    char **grown = text ? realloc(words->word, (words->count + 2) * sizeof *grown) : NULL;

    if (grown == NULL) {
        free(text);
        return sp_err(SP_ECANNOT, "out of memory");
    }
    words->word = grown;
    words->word[words->count++] = text;
    words->word[words->count] = NULL;
    return 0;
}

int sp_words_add(struct sp_words *words, const char *text)
{
    return keep(words, strdup(text));
}

int sp_words_addf(struct sp_words *words, const char *fmt, ...)
{
    va_list args;
    char *text = NULL;

    va_start(args, fmt);
    if (vasprintf(&text, fmt, args) < 0)
        text = NULL;
    va_end(args);
    return keep(words, text);
}

int sp_words_append(struct sp_words *words, const struct sp_words *more)
{
    int rc = 0;

    for (size_t i = 0; i < more->count && rc == 0; i++)
        rc = sp_words_add(words, more->word[i]);
    return rc;
}

bool sp_words_have(const struct sp_words *words, const char *text)
{
    bool found = false;

    for (size_t i = 0; i < words->count && !found; i++)
        found = strcmp(words->word[i], text) == 0;
    return found;
}

static int by_text(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

void sp_words_sort(struct sp_words *words)
{
    size_t kept = 0;

    if (words->count == 0)
        return;
    qsort(words->word, words->count, sizeof *words->word, by_text);
    for (size_t i = 0; i < words->count; i++) {
        if (kept > 0 && strcmp(words->word[kept - 1], words->word[i]) == 0)
            free(words->word[i]);
        else
            words->word[kept++] = words->word[i];
    }
    words->count = kept;
    words->word[kept] = NULL;
}

char *sp_words_join(const struct sp_words *words)
{
    struct sp_buf text = SP_BUF_INIT;
    int rc = sp_buf_set(&text, "", 0);

    for (size_t i = 0; i < words->count && rc == 0; i++)
        rc = sp_buf_printf(&text, "%s%s", i ? " " : "", words->word[i]);
    if (rc < 0)
        sp_buf_free(&text);
    return text.data;
}

void sp_words_free(struct sp_words *words)
{
    for (size_t i = 0; i < words->count; i++)
        free(words->word[i]);
    free(words->word);
    *words = (struct sp_words){NULL, 0};
}
