/*
 * Which GPUs are measured together, and with which backends: by what a verdict proved on the chosen ones. SGLang's
 * groups are of 2, 4 or 8 ranks, or of all GPUs.
 */
#ifndef SP_BENCH_BENCH_SETS_H
#define SP_BENCH_BENCH_SETS_H

#include "verify/verdict/sets.h"

enum { SP_BENCH_SETS = 16, SP_BENCH_BACKENDS = 3 };

struct sp_bench_set {
    struct sp_set set;
    bool backend[SP_BENCH_BACKENDS]; /* as sp_backends */
};

/* Returns how many. verdict: content of verdict.json; NULL: nothing is proved, all backends are measured. Pure. */
size_t sp_bench_sets(struct sp_bench_set out[SP_BENCH_SETS], const struct sp_subjects *gpus, const json_t *verdict);

/* Has a profile tables for each of them, for peers and for the host as far as these are proved on it? Pure. */
bool sp_bench_sets_have(const json_t *profile, const struct sp_subjects *gpus, const json_t *verdict);

#endif
