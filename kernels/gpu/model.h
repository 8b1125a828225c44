/*
 * model.h: what the machine allows. Measures one-way latency and link rates with kernels that do nothing else, and
 * computes from them what an all-reduce should take: a kernel in which all ranks wait for a word of each other, the
 * hops that come after that one, and the bytes over the link and through the GPU's own memory. Nothing is fitted.
 */
#ifndef GPU_MODEL_H
#define GPU_MODEL_H

#include "fleet.h"

/* Microseconds, and bytes per microsecond and GPU while all GPUs are at it (the slowest of them). */
typedef struct {
    double node_us;                            /* an empty kernel in a graph */
    double local_us;                           /* one that reads 2 KB and writes them, both in its own memory */
    double host_exchange_us, peer_exchange_us; /* one in which every rank waits for a word of every other */
    double host_us, peer_us;                   /* one way: written until seen, by kernels that run already */
    double host_read, host_write, host_both;   /* both: the sum of the two directions */
    double peer_read, peer_write;
    double own; /* its own memory, reads and writes together */
} link_rates;

/* Window of the rate measurement, and what model_measure() needs of shared memory. */
enum { MODEL_WINDOW = 4 << 20, MODEL_FLAGS = 12288, MODEL_SHARED = MODEL_FLAGS + PAR_MAX_WORLD * MODEL_WINDOW };

/* Measure; shared comes from shared_alloc(MODEL_SHARED). peer: also over P2P. Collective, one process per rank. */
int model_measure(link_rates *out, fleet *f, void *shared, int peer);

/* What an all-reduce of so many bytes would take without waiting for anybody and without trying in vain. */
double model_us(const link_rates *rates, int algorithm, int world, double bytes);

#endif
