/*
 * Carry out a plan: patch an install or take the patch back, as one transaction.
 *
 * apply patches every pristine file, upgrades every applied-old one and installs the distribution
 * sgl-pcie-runtime; revert reverses the patches and removes everything of ours. Both remove the bytecode of the
 * files that they touch. Both refuse (SP_ECANNOT) while a process runs that has this SGLang loaded, unless
 * told otherwise, and on a tree that cannot be written; both do nothing where nothing is to do.
 *
 * A set of files that only a source checkout has is patched when it is named, and taken back unless another is named.
 * It is text to compile: it brings no runtime, and no process can have it loaded. The checkout's git repository is
 * read, never written: git status shows the patch as the change that it is.
 */
#ifndef SP_PATCHER_APPLY_H
#define SP_PATCHER_APPLY_H

#include "patcher/changes.h"
#include "patcher/plan.h"

struct sp_apply_options {
    bool dry_run;
    bool diff; /* fill in sp_change.diff */
    bool while_running;
    bool by_setup;           /* of apply: see SP_SETUP_MARK */
    const char *const *sets; /* NULL-terminated, or NULL for all of this layout */
};

/* *plan: the state before (for the caller to free), also on SP_ENOPATCH and SP_EDRIFT. *changes: what was (or, with
 * dry_run, would be) done; count 0 when nothing was to do. Either may be NULL on error. */
int sp_apply(struct sp_plan **plan, struct sp_changes **changes, const struct sp_install *install,
             const struct sp_patchsets *sets, const struct sp_apply_options *options);
int sp_revert(struct sp_plan **plan, struct sp_changes **changes, const struct sp_install *install,
              const struct sp_patchsets *sets, const struct sp_apply_options *options);

/* Recover all directories of an install; outcome as sp_txn_recover(). */
int sp_recover(const char **outcome, const struct sp_install *install);

/* SP_EINTERRUPTED, with the command that mends it, for this install however it was named, as the hint. */
int sp_recover_hint(const struct sp_install *install);

/* SP_EINTERRUPTED, with the command to run, when a journal is pending in this install. */
int sp_pending_check(const struct sp_install *install);

#endif
