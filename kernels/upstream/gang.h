/*
 * gang.h: the ranks that this process holds, with upstream's all-reduce (overlay.h) among them, as SGLang sets it up.
 *
 * One rank a process, its buffers shared by CUDA IPC; or all ranks in this process, several on a GPU, with plain
 * pointers and a stream each. The second needs all kernels loaded before the first call (CUDA_MODULE_LOADING=EAGER): a
 * rank's kernel waits for those of the others.
 *
 * Functions return a result code of ranks.h. Those that are collective leave all processes with the same one.
 */
#ifndef UPSTREAM_GANG_H
#define UPSTREAM_GANG_H

#include "../gpu/ranks.h"

#include <stddef.h>

#define GANG_LIMITS "SGLANG_PCIE_UPSTREAM_LIMITS" /* what the patch reads: one-stage up to, two-stage up to */

typedef enum {
    GANG_ONE,   /* one-stage for every size */
    GANG_TWO,   /* two-stage for every size; two ranks always get one-stage */
    GANG_GIVEN, /* as the environment has it */
    GANG_NONE,  /* neither: upstream must refuse */
    GANG_KINDS
} gang_kind;

typedef struct {
    ranks *ranks;
    int world, first, held, local;
    int device[RANKS_MAX];
    size_t room;              /* longest message */
    char *shared[RANKS_MAX];  /* signals, then scratch */
    char *staging[RANKS_MAX]; /* the registered buffer */
    char *input[RANKS_MAX], *output[RANKS_MAX];
    char *table[GANG_KINDS][RANKS_MAX]; /* rank_data */
    void *handle[GANG_KINDS][RANKS_MAX];
    void *stream[RANKS_MAX];
    void *shared_of[RANKS_MAX][RANKS_MAX]; /* held rank's view of every rank's */
    void *staging_of[RANKS_MAX][RANKS_MAX];
} gang;

/* Streams and buffers; device: of every rank. Collective. */
int gang_open(gang *g, ranks *r, int world, int local, const int *device, size_t room);
void gang_close(gang *g);

/* Upstream's communicator of a kind. given: what the environment has for it, or NULL. Collective. */
int gang_make(gang *g, gang_kind kind, const char *given);

/* One all-reduce of all held ranks, input to output. staged: as SGLang does outside a capture. Otherwise the stream is
 * being captured; or, all ranks in one process, the input is what the last staged call had. */
int gang_call(gang *g, gang_kind kind, size_t count, int dtype, int staged);

/* After a capture: exchange what was captured. Collective. */
int gang_register(gang *g, gang_kind kind);

/* Fill the inputs, poison the outputs; then wait. */
int gang_load(gang *g, size_t count, int dtype, unsigned seed);

/* Wait for all streams. */
int gang_finish(gang *g);

/* Compare the outputs with the sum: elements that are wrong over all ranks, and how many of them are still poison.
 * Collective. */
int gang_compare(gang *g, size_t count, int dtype, unsigned seed, size_t *wrong, size_t *untouched);

/* Enqueues one call for all held ranks. */
typedef int gang_enqueue(gang *g, void *context);

/* Microseconds of a call among many, the median of repetitions, each that of the slowest rank. One rank a process: in a
 * CUDA graph; captured, if not NULL, is called after the capture. All in one process: behind a kernel that waits until
 * everything is enqueued. Collective. */
int gang_time(gang *g, gang_enqueue *enqueue, gang_enqueue *captured, void *context, double *us);

#endif
