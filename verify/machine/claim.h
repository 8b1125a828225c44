/*
 * GPUs that a run is about, held against another one: whoever looks who else computes before anything of his own does
 * would not see another one that does the same at that moment, nor be seen.
 *
 * The folder of each GPU in sysfs is locked as base/lock.h does: every user may, nothing is left behind, and it ends
 * with the process. Who holds one is added to the processes of the recording, as if the driver had named it. Containers
 * with a sysfs of their own do not see each other.
 */
#ifndef SP_MACHINE_CLAIM_H
#define SP_MACHINE_CLAIM_H

#include "verify/machine/choose.h"

struct sp_claim {
    int fd[SP_REC_GPUS_MAX];
    size_t count;
};

/* Stops at the first GPU that another one holds, which is no error, nor is one that cannot be locked. root: before
 * /sys. SP_EFAIL: the recording is full. To be freed in any case. */
int sp_claim_make(struct sp_claim *out, struct sp_recording *recording, const struct sp_choice *choice,
                  const char *root);
void sp_claim_free(struct sp_claim *claim);

#endif
