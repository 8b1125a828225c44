/*
 * plan.h: what perf measures, in which order, and how long each piece may take. Pure: no GPU, no clock of its own.
 *
 *     plan p; pace t;
 *     rc = plan_make(&p, &options, gpus, p2p, no_p2p_already);   the groups of processes, and the points of each
 *     pace_begin(&t, now, seconds, weight of all that is to come);
 *     seconds = pace_share(&t, now, weight);  ... measure ...  pace_spend(&t, weight);
 *
 * A pace shares the time that is left out by weight, so what was cheaper than its share makes the rest more exact, and
 * what was dearer makes it coarser; the end stays where it was.
 */
#ifndef GPU_PLAN_H
#define GPU_PLAN_H

#include "options.h"

enum { PLAN_POINTS = OPTIONS_LIST * PAR_DTYPES, PLAN_GROUPS = 2 * (PAR_MAX_WORLD - 1) };

typedef struct {
    int dtype;
    size_t bytes;
} plan_point;

/* Processes that live together: those of a world size. NCCL's settings hold for a process, so without P2P it has its
 * own. */
typedef struct {
    int world;
    int no_p2p; /* NCCL alone, with NCCL_P2P_DISABLE=1 */
    double weight;
} plan_group;

typedef struct {
    plan_point point[PLAN_POINTS]; /* the same in every group */
    int points;
    plan_group group[PLAN_GROUPS];
    int groups;
    int eager, in_place; /* measured, too */
    int calls, iterations;
    double seconds; /* of all; INFINITY without a budget */
} plan;

/*
 * Worlds that the options name, by default all GPUs, and with a budget groups of two, too; largest first. Sizes and
 * types that they name; by default bf16 at all sizes, and with a budget fp16 and fp32 at three. CODE_CANNOT where
 * nothing is left to measure. no_p2p_already: NCCL does without P2P anyway.
 */
int plan_make(plan *out, const options *o, int gpus, int p2p, int no_p2p_already);

/* How much a point costs beside others, and a group's start. */
double plan_weight(size_t bytes);
#define PLAN_START_WEIGHT 8.0

/* Calls in a graph: what takes long needs fewer for a replay of some milliseconds. */
int plan_calls(int calls, size_t bytes);

/* Replays that fit into so many seconds when one takes `us`, from 3 to most. */
int plan_replays(double seconds, double us, int most);

typedef struct {
    double end, left; /* when it is over; weight that is still to come */
} pace;

void pace_begin(pace *p, double now, double seconds, double weight);
double pace_share(const pace *p, double now, double weight);
void pace_spend(pace *p, double weight);

#endif
