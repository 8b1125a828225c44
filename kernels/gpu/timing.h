/*
 * timing.h: how long an all-reduce takes, ours or NCCL's. One process per rank.
 *
 * A time is that of one call among many: per replay the slowest rank, over the replays the median and where 80 % of
 * them lie. Four manners: back to back in a CUDA graph; the same in place; in a step, where a small kernel that
 * touches the input comes before each call and the time of the same graph without the all-reduces is taken off; and
 * eagerly, call after call from C. What does not give the right sum is not timed. All functions are collective.
 */
#ifndef GPU_TIMING_H
#define GPU_TIMING_H

#include "fleet.h"
#include "nccl.h"
#include "options.h"
#include "pattern.h"

typedef enum { TIMING_GRAPH, TIMING_IN_PLACE, TIMING_STEP, TIMING_EAGER, TIMING_MANNERS } manner;

/* Microseconds per call: median, and the 10th and 90th percentile of the replays; n 0: not measured. */
typedef struct {
    double us, p10, p90;
    int n;
} span;

/* How a call is cut; 0: by the library's rule. */
typedef struct {
    size_t lanes, threads, chunk;
} cut;

typedef struct {
    const options *o;
    int dtype;
    int talks;             /* this rank prints */
    int calls, iterations; /* in a graph; replays at most */
    fleet f;
    nccl rival;
    dice d;
    size_t layer_bytes; /* of which layer_us is the time of the layer alone; 0: of none yet */
    double layer_us;
} bench;

/* What has been found out about an algorithm and a size. */
typedef struct {
    int algorithm; /* 0: NCCL */
    size_t bytes;
    cut cut;
    span time[TIMING_MANNERS];
    uint64_t wrong_out, wrong_in;
} findings;

/* Time one manner, with the cut that is set, within about so many seconds, once it has been screened. */
int timing_measure(bench *b, int algorithm, size_t bytes, manner how, double seconds, span *out);

/* Screen and shortly time every cut that the options name; the fastest right one is left in `best` with its time back
 * to back, and wrong elements are counted there. */
int timing_tune(bench *b, findings *best, double seconds);

/* Set the cut of the calls that follow. */
int timing_cut(bench *b, const cut *c);

#endif
