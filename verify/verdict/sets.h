/*
 * Which GPUs a world size is tried on: the first of the chosen ones between which everything passed that a backend
 * needs.
 */
#ifndef SP_VERDICT_SETS_H
#define SP_VERDICT_SETS_H

#include "verify/verdict/verdict.h"

/* Some of the subjects, by index into them. */
struct sp_set {
    size_t count;
    size_t at[SP_REC_GPUS_MAX];
};

/* False: there is none, and *out holds the first `world` GPUs. Pure. */
bool sp_set_find(struct sp_set *out, const struct sp_checks *checks, const struct sp_subjects *gpus,
                 const char *backend, size_t world);

/* The set of the largest world whose kernels.BACKEND.… passed; 0 and an empty set: none did. Pure. */
size_t sp_set_largest(struct sp_set *out, const struct sp_checks *checks, const struct sp_subjects *gpus,
                      const char *backend);

/* "0-2-3" */
void sp_set_name(char out[SP_CHECK_ID], const struct sp_subjects *gpus, const struct sp_set *set);

#endif
