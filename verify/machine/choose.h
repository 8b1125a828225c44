/*
 * Which GPUs: a list that the user gives, or CUDA_VISIBLE_DEVICES as CUDA understands it.
 *
 *     --gpus         "0,2", "0-3", "GPU-1a2b" (as many characters as make it unique), "0000:81:00.0", "all". What is
 *                    not there, is ambiguous or is named twice is an error.
 *     the variable   numbers or UUIDs. What comes before the first entry that is not there counts, the rest does not;
 *                    an empty one hides all GPUs, and so does a GPU named twice. MIG instances are refused.
 *
 * Numbers are NVML's, in the order of the bus. CUDA counts the fastest GPU first unless CUDA_DEVICE_ORDER is
 * PCI_BUS_ID; for GPUs of one kind that is the same, for others `reordered` is set and a UUID is the only sure name.
 */
#ifndef SP_MACHINE_CHOOSE_H
#define SP_MACHINE_CHOOSE_H

#include "verify/machine/record.h"

struct sp_choice {
    size_t number[SP_REC_GPUS_MAX];
    size_t count;
    const char *source; /* "--gpus", "CUDA_VISIBLE_DEVICES" or "all" */
    bool uuids;         /* named by UUID */
    bool reordered;
};

/* list: of --gpus, or NULL; visible and order: CUDA_VISIBLE_DEVICES and CUDA_DEVICE_ORDER, or NULL where unset.
 * SP_EUSAGE: the list is wrong; SP_ECANNOT: MIG, or there is no driver; SP_EHANG: it does not answer. */
int sp_choose_gpus(struct sp_choice *out, const struct sp_recording *recording, const char *list, const char *visible,
                   const char *order);

/* SP_ECANNOT or SP_EHANG, with what is missing and what to do, unless at least two GPUs were chosen. */
int sp_choice_check(const struct sp_choice *choice, const struct sp_recording *recording);

#endif
