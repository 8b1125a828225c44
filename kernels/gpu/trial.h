/*
 * trial.h: the correctness tests that run inside a process. They are batches of calls, enqueued without waiting and
 * then compared all at once.
 *
 * Every rank takes the same decisions from the same dice, so that all enqueue the same calls. A wrong element is noted
 * and the trial goes on. After an abort the communicator is made anew and the algorithm that waited in vain is left
 * out.
 */
#ifndef GPU_TRIAL_H
#define GPU_TRIAL_H

#include "fleet.h"
#include "options.h"
#include "pattern.h"

/* What one process found, in shared memory. */
typedef struct {
    uint64_t calls[PAR_ALGORITHMS], wrong[PAR_ALGORITHMS], soaked, soak_wrong, replays;
    int hung[PAR_ALGORITHMS];
    double soak_seconds;
    char text[PAR_ALGORITHMS][512]; /* the first failure of each algorithm */
} findings;

typedef struct {
    const options *o;
    unsigned algorithms; /* to test, a bit each */
    findings *found;
    fleet f;
    dice d;
    fleet_call calls[FLEET_TALLIES]; /* of the batch */
    int n;
} trial;

/* Place and alignment of a call, in and out apart. */
enum { TRIAL_VARIANTS = 6 };

/* Longest message of the mixed, graph and life trials. */
enum { TRIAL_SMALL = 262144 };

/* --- the trials: 0, or the code of what was not about the all-reduce being wrong or aborted; collective -------------
 */

/* Sizes of one algorithm grow, shrink and grow again, in-place and out-of-place, aligned and not. */
int trial_ladder(trial *t, int algorithm);
/* A message over the limit must be refused before anything is enqueued. Not collective. */
int trial_too_large(trial *t, int algorithm);
/* Algorithms in random order, eager. */
int trial_mixed(trial *t);
/* Several captured graphs, replayed on either stream, among eager calls on either stream. */
int trial_graphs(trial *t);
/* A second communicator beside the first, made and closed again and again: within its memory bound, nothing lost. */
int trial_life(trial *t);
/* Many small calls in a row, in eager batches and graphs, with random delays on random ranks. */
int trial_soak(trial *t);

/* --- what they share ---------------------------------------------------------------------------------------------- */

/* Wait for the batch on all ranks, compare and count; `code` is what enqueuing gave. */
int trial_end_batch(trial *t, int code);
/* After an abort: blame an algorithm (guess, if the reports do not tell) and start again. Any other code is passed on.
 */
int trial_recover(trial *t, int guess, int code);
/* A random algorithm that is still in the test; there must be one: trial_any_left(). */
int trial_pick_algorithm(trial *t);
int trial_any_left(const trial *t);
/* Elements of a message of a random size; sizes are spread evenly over the powers of two up to `most` bytes. */
size_t trial_pick_count(trial *t, int algorithm, size_t most);
/* A call of that many elements on a random piece of the dataset. */
fleet_call trial_make_call(trial *t, int algorithm, size_t count, int variant);

#endif
