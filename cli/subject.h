/*
 * What a command works on: the install that the target options name, and the patch sets.
 *
 *     struct sp_subject subject;
 *     rc = sp_subject_open(&subject, args);
 *     ...
 *     sp_subject_close(&subject);
 */
#ifndef SP_CLI_SUBJECT_H
#define SP_CLI_SUBJECT_H

#include "cli/opt.h"
#include "patcher/install.h"
#include "patcher/patchset.h"

enum { SP_NEXT_MAX = 8192 };

struct sp_subject {
    struct sp_install *install;
    struct sp_patchsets *sets;
    const struct sp_args *args;
    char next[SP_NEXT_MAX]; /* of sp_subject_next() */
};

/* To be closed in any case. */
int sp_subject_open(struct sp_subject *out, const struct sp_args *args);

/* Only the install, without reading the patch sets. */
int sp_subject_locate(struct sp_subject *out, const struct sp_args *args);
void sp_subject_close(struct sp_subject *subject);

/* "sgl-pcie <command>" with the target as it was named, quoted for a shell; valid until the next call. */
const char *sp_subject_next(struct sp_subject *subject, const char *command);

/* The words of the target alone, " --site /opt/site"; for the caller to free, NULL without memory. */
char *sp_subject_words(struct sp_subject *subject);

/* As sp_subject_next(), with --source alone, as it was named or as the target lies in it, and without it: for commands
 * that take a checkout besides their target. */
const char *sp_subject_next_source(struct sp_subject *subject, const char *command);
const char *sp_subject_next_install(struct sp_subject *subject, const char *command);

#endif
