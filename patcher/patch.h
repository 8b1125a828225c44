/*
 * One patch on one file, in memory, through libgit2.
 *
 * git_apply_to_tree() on an object database in memory: no work tree, no repository on disk, no user or system git
 * configuration, no attributes, no line-ending conversion. The result counts only if its blob id is the
 * expected one, so an engine that is wrong cannot do harm.
 *
 * A patch must be what `git diff --full-index --no-renames` writes for one modified text file: one delta, the
 * path that the caller expects on both sides, full blob ids equal to those of the caller, no mode change.
 */
#ifndef SP_PATCHER_PATCH_H
#define SP_PATCHER_PATCH_H

#include "base/file.h"

/* Turn the bytes of blob id pre into those of blob id post. SP_EDRIFT: the bytes are not pre; SP_EFAIL: the patch
 * is malformed or does not give post. reverse: pre and post are still those of the patch file; post goes in. */
int sp_patch_run(struct sp_buf *out, const struct sp_buf *in, const char *path, const struct sp_oid *pre,
                 const struct sp_oid *post, const struct sp_buf *patch, int reverse);

/* The diff that swaps the two sides of a patch (text of the form above). */
int sp_patch_invert(struct sp_buf *out, const struct sp_buf *patch);

#endif
