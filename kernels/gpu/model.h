/*
 * model.h: what the machine allows. Measures one-way latency and link rates with kernels that do nothing else, and
 * computes the least time of an all-reduce from them: a graph node, hops, and the bytes over the link.
 */
#ifndef GPU_MODEL_H
#define GPU_MODEL_H

#include "fleet.h"

/* Microseconds, and bytes per microsecond and GPU while all GPUs are at it (the slowest of them). */
typedef struct {
    double node_us;                          /* an empty kernel in a graph */
    double host_us, peer_us;                 /* one way: a word written until it is seen */
    double host_read, host_write, host_both; /* both: the sum of the two directions */
    double peer_read, peer_write;
} link_rates;

/* Window of the rate measurement, and what model_measure() needs of shared memory. */
enum { MODEL_WINDOW = 4 << 20, MODEL_FLAGS = 4096, MODEL_SHARED = MODEL_FLAGS + PAR_MAX_WORLD * MODEL_WINDOW };

/* Measure; shared comes from shared_alloc(MODEL_SHARED). peer: also over P2P. Collective, one process per rank. */
int model_measure(link_rates *out, fleet *f, void *shared, int peer);

/* Least time of an all-reduce of so many bytes by host or by push. */
double model_us(const link_rates *rates, int host, int world, double bytes);

#endif
