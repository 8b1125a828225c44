/*
 * Take names out of what leaves the machine: hosts, users, paths, serial numbers.
 *
 * Works on every string of a JSON value, keys left alone. Replaced are: the machine's host name, the names and home
 * folders of this user (also behind sudo), paths other than those of the kernel's own folders, and the UUIDs of GPUs,
 * which become GPU-00000000-0000-0000-0000-00000000000N in the order in which they occur.
 *
 * Where a path ends cannot be seen in a text, as its folders may have blanks in their names. Those that the caller and
 * the environment name are therefore looked for as a whole; of any other path a quote or a blank is the end.
 */
#ifndef SP_MACHINE_REDACT_H
#define SP_MACHINE_REDACT_H

#include <jansson.h>

struct sp_redact_words {
    char **item;
    size_t count;
};

/* Names of the person and the machine, paths that are known, and the UUIDs seen so far. */
struct sp_redaction {
    struct sp_redact_words names, paths;
    char *uuid[64];
    size_t uuids;
};

/* What is to be replaced here. To be freed in any case. */
int sp_redaction_init(struct sp_redaction *out);
void sp_redaction_free(struct sp_redaction *redaction);

/* One more path that may be in the texts, as it was given and as it is from the root. NULL and "" are none. */
int sp_redaction_add_path(struct sp_redaction *redaction, const char *path);

/* A new string in place of text. *out to be freed by the caller. */
int sp_redact_text(char **out, struct sp_redaction *redaction, const char *text);

/* Every string in value, which is changed in place. */
int sp_redact_json(json_t *value, struct sp_redaction *redaction);

#endif
