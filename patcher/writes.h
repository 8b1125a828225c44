/*
 * What apply and revert write: every byte of every file, made in memory before the first is touched.
 *
 * apply patches pristine files, upgrades those of an earlier revision, and brings the distribution sgl-pcie-runtime up
 * to date; revert reverses the patches and removes the runtime, unless a set that stays needs it. Nothing here writes:
 * apply.h carries it out.
 */
#ifndef SP_PATCHER_WRITES_H
#define SP_PATCHER_WRITES_H

#include "patcher/plan.h"

/* What becomes of a file. data.data NULL: it is removed. */
struct sp_write {
    char *path;
    const char *action;      /* "patch", "upgrade", "revert", "create", "replace", "remove" */
    const char *set;         /* NULL: a file of the runtime */
    struct sp_oid pre, post; /* hex "" for none */
    struct sp_buf data;
    struct sp_buf old; /* of a file of the runtime that was there, to put it back */
};

/* Writes below one directory. */
struct sp_write_list {
    struct sp_write *item;
    size_t count;
};

/* Below the root, the checkout and the site. */
struct sp_writes {
    struct sp_write_list patches, sources, runtime;
};

/* SP_ENOPATCH, SP_EDRIFT: as sp_plan_check(). by_setup: where all is stock, with its mark (runtime.h). To be freed in
 * any case. */
int sp_writes_apply(struct sp_writes *out, const struct sp_install *install, const struct sp_patchsets *sets,
                    const struct sp_plan *plan, bool by_setup);

/* some: the plan is of sets that were named, others may stay. SP_EDRIFT: a file was changed after it was patched. */
int sp_writes_revert(struct sp_writes *out, const struct sp_install *install, const struct sp_patchsets *sets,
                     const struct sp_plan *plan, bool some);
size_t sp_writes_count(const struct sp_writes *writes);
void sp_writes_free(struct sp_writes *writes);

/* Append. Takes data over, also on error. pre: NULL where there is no file yet. */
int sp_write_add(struct sp_write_list *list, const char *path, const char *action, const char *set,
                 const struct sp_oid *pre, struct sp_buf *data);
void sp_write_list_free(struct sp_write_list *list);

#endif
