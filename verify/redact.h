/*
 * Take names out of what leaves the machine: hosts, users, paths, serial numbers.
 *
 * Works on every string of a JSON value, keys left alone. Replaced are: the machine's host name, the names and home
 * folders of this user (also behind sudo), paths other than those of the kernel's own folders, and the UUIDs of GPUs,
 * which become GPU-00000000-0000-0000-0000-00000000000N in the order in which they occur.
 */
#ifndef SP_VERIFY_REDACT_H
#define SP_VERIFY_REDACT_H

#include <jansson.h>

/* Names of the person and the machine, and the UUIDs seen so far. */
struct sp_redaction {
    char *word[16];
    size_t words;
    char *uuid[64];
    size_t uuids;
};

/* What is to be replaced here. extra (may be NULL): one more text that must not leave. To be freed in any case. */
int sp_redaction_init(struct sp_redaction *out, const char *extra);
void sp_redaction_free(struct sp_redaction *redaction);

/* A new string in place of text. *out to be freed by the caller. */
int sp_redact_text(char **out, struct sp_redaction *redaction, const char *text);

/* Every string in value, which is changed in place. */
int sp_redact_json(json_t *value, struct sp_redaction *redaction);

#endif
