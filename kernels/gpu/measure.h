/*
 * measure.h: what one group of processes measures, point by point: NCCL, and of ours first all algorithms shortly, then
 * those near the fastest in full. Rows are printed as soon as they are there, and kept for the parent.
 */
#ifndef GPU_MEASURE_H
#define GPU_MEASURE_H

#include "plan.h"
#include "rows.h"

enum { MEASURE_ROWS = PLAN_POINTS * (PAR_ALGORITHMS + 1), MEASURE_SLACK = 1 << 16 };

/* In shared memory, written by rank 0. */
typedef struct {
    group_head head;
    row rows[MEASURE_ROWS];
    int n, points; /* rows; points that were measured */
    uint64_t wrong;
    char no_nccl[512]; /* why there is no NCCL; empty if there is */
} measured;

typedef struct {
    const options *o;
    const plan *plan;
    const plan_group *group;
    const dataset *data; /* by dtype */
    int device[PAR_MAX_WORLD];
    unsigned algorithms, transports;
    double begin, end;          /* of everything; of this group */
    double before, all;         /* weight behind it, and of everything */
    int points_before, points;  /* likewise */
    const measured *rivals;     /* NCCL without P2P, measured before; or null */
    measured *found;
    void *window;               /* MODEL_SHARED bytes, shared; null: no model */
} measure_job;

/* The body of a rank; context: a measure_job. */
int measure_body(ranks *self, void *context);

#endif
