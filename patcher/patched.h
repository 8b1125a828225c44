/*
 * Is the patch in an install whole? status says what it lacks, enable refuses: one rule for both.
 */
#ifndef SP_PATCHER_PATCHED_H
#define SP_PATCHER_PATCHED_H

#include "patcher/plan.h"

/* Files of the sets that go without saying; "named": of the others. */
struct sp_patched {
    size_t files, applied, old;
    size_t named_applied, named_old;
    const char *next; /* the command that makes it whole, or NULL */
    char lacks[256];  /* what it lacks; "" when it is whole */
};

/* Of a plan that sp_plan_check() let pass. */
void sp_patched_judge(struct sp_patched *out, const struct sp_plan *plan, const struct sp_install *install);

#endif
