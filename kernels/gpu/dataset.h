/*
 * dataset.h: inputs of all ranks and the sums they must give, in shared memory, made before the ranks are forked.
 *
 * One long vector per rank and dtype. A call takes any piece of it, `shift` elements from its start; what it must
 * return is the same piece of `expected`. Calls with different shifts have different data, so a stale result is seen.
 */
#ifndef GPU_DATASET_H
#define GPU_DATASET_H

#include "options.h"

typedef struct {
    int dtype, ranks;
    size_t count, bytes;
    void *input[PAR_MAX_WORLD];
    void *expected[PAR_MAX_WORLD + 1]; /* by world size; null for those not asked for */
} dataset;

/* Fill for `world` ranks and the world sizes whose bits are set. CODE_CANNOT when memory is short. */
int dataset_init(dataset *d, int dtype, size_t bytes, int world, unsigned worlds, uint64_t seed);
void dataset_free(dataset *d);

#endif
