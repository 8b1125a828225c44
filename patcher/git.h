/*
 * libgit2 as this program uses it: without the user's and the system's configuration.
 *
 * A checkout is only read: its HEAD and its index, by which a file is told to be the user's own work. Nothing in a
 * repository is ever run or written, and the index is not refreshed. One that this libgit2 cannot read (no git, a
 * format of a newer git) says nothing: bytes decide all the same.
 */
#ifndef SP_PATCHER_GIT_H
#define SP_PATCHER_GIT_H

#include "base/file.h"

/* To be called before libgit2 is. */
int sp_git_start(void);

/* SP_EFAIL: what, and libgit2's own message. */
int sp_git_failed(const char *what);

struct sp_checkout;

/* *out NULL, and no error, where dir itself is no work tree that can be read. */
int sp_checkout_open(struct sp_checkout **out, const char *dir);
void sp_checkout_free(struct sp_checkout *checkout);

/* Blob ids of a path in HEAD and in the index; hex "" for none. While a merge is unsettled the index has none. */
void sp_checkout_ids(struct sp_oid *head, struct sp_oid *index, struct sp_checkout *checkout, const char *path);

#endif
