/*
 * timing.h: how long an all-reduce takes, ours or NCCL's. One process per rank.
 *
 * A time is that of one call in a CUDA graph of many: per replay the slowest rank, of the replays the median. "In a
 * step": a small kernel that touches the message comes before each call; the time of the same graph without the
 * all-reduces is taken off. What does not give the right sum is not timed. All functions are collective.
 */
#ifndef GPU_TIMING_H
#define GPU_TIMING_H

#include "fleet.h"
#include "nccl.h"
#include "options.h"
#include "pattern.h"

/* How a call is cut; 0: by the library's rule. */
typedef struct {
    size_t lanes, threads, chunk;
} cut;

/* Microseconds per call; 0: not measured. */
typedef struct {
    double out, in, step;
} times;

typedef struct {
    size_t bytes;
    int algorithm, fastest;
    cut cut;
    times ours, nccl;
    uint64_t wrong_out, wrong_in;
    double model;
} row;

typedef struct {
    const options *o;
    int dtype;
    int talks; /* this rank prints */
    fleet f;
    nccl rival;
    dice d;
} bench;

/* Out-of-place, in-place and in a step, with the cut that is set; algorithm 0: NCCL. */
int timing_all(bench *b, int algorithm, size_t bytes, times *t);

/* Compare and time every cut that the options name; the row gets the fastest right one, and counts wrong elements. */
int timing_tune(bench *b, row *r);

/* Set the cut of the calls that follow. */
int timing_cut(bench *b, const cut *c);

#endif
