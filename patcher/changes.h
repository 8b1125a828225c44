/*
 * What apply and revert did, or with a dry run would do, as it is told.
 */
#ifndef SP_PATCHER_CHANGES_H
#define SP_PATCHER_CHANGES_H

#include "patcher/writes.h"

struct sp_change {
    const char *path;       /* as the set has it, or relative to the site; owned by the result */
    const char *action;     /* as sp_write has it */
    const char *set;        /* or NULL for files of the runtime */
    struct sp_oid from, to; /* hex "" for none */
    struct sp_buf diff;     /* unified diff of a patched file, when asked for */
};

struct sp_changes {
    struct sp_change *item;
    size_t count;
    size_t broken_links; /* hard links that the write broke on purpose */
    size_t bytecode;     /* .pyc files removed */
};

/* Of all writes, whose paths go into it. diff: those of patched files, too. To be freed in any case. */
int sp_changes_make(struct sp_changes **out, struct sp_writes *writes, const struct sp_plan *plan, bool diff);
void sp_changes_free(struct sp_changes *changes);

#endif
