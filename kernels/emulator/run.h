/*
 * run.h: one run: ranks that make a few calls under an adversary, and what must be true afterwards.
 *
 * A scenario says what is called and what goes wrong; the adversary's choices come from its seed or from a list. What
 * is checked, at every call and rank:
 *   - a call that ends without a failure has the sum of the summation tree in its output, bit for bit, unless its host
 *     is certain to see an abort by then
 *   - a call fails only if the scenario has a cause for it; then every rank leaves, and says why
 *   - nobody reads or writes where its transport does not let it, threads do not race on input and output
 *   - no wait is without bound
 * and after the last call, if nothing went wrong:
 *   - boxes of sentinel algorithms are empty but for the slots of the last two calls of a lane
 *   - busy words, claims and abort words are as at the start
 */
#ifndef EMU_RUN_H
#define EMU_RUN_H

#include "choice.h"
#include "subject.h"

enum { RUN_CALLS = 16, RUN_BYTES = 1024 };

typedef enum {
    RUN_PLAIN,
    RUN_LATE,    /* a rank's kernel starts when others have waited for long */
    RUN_LOST,    /* a rank's threads vanish in the middle; the others run into the time limit */
    RUN_WATCHED, /* likewise, and a host notices and sets its abort word */
    RUN_ABORT,   /* a host aborts in the middle */
    RUN_FAULTS
} run_fault;

typedef struct {
    int algorithm;
    uint32_t bytes;
    uint32_t lanes, workers, tile_bytes;
    uint32_t idle;     /* threads that only take part in barriers */
    uint32_t in_place;
    uint32_t shift;    /* elements by which in and out are off 16-byte alignment */
} run_call;

typedef struct {
    uint64_t seed;
    const emu_subject *subject;
    int algorithm, world, dtype; /* algorithm: of most calls */
    uint32_t room_lanes, room_vecs; /* of the boxes: lanes, vecs of a lane (sentinel) or tile (chunked) */
    uint32_t n_calls;
    run_call call[RUN_CALLS];
    uint32_t epoch; /* of every lane at the start */
    uint32_t trap;
    uint32_t without; /* EMU_WITHOUT_ bits: assumptions taken away */
    uint32_t delay;   /* ns that fault_rank dawdles in every call */
    uint32_t special; /* of 256: elements that are NaN, infinity or -0 */
    run_fault fault;
    int fault_rank, fault_by;          /* who is late, lost or aborts; whose host notices */
    uint32_t fault_call, fault_op;     /* late: which call; else: at which operation of the rank */
} run_scenario;

/* What has happened in all runs so far, to see that a campaign reached what it is meant to reach. */
typedef struct {
    uint64_t kernels, failed[3]; /* failed: rank's first report, by phase: at entry, scatter or one-shot, gather */
    uint64_t late, lost, traps;
} run_counts;
extern run_counts run_counted[PAR_ALGORITHMS];

/* EMU_WITHOUT_ bits of every scenario that is drawn from now on. */
extern uint32_t run_without;

/* Draw a scenario. faults: whether a rank may be late, lost, or abort. */
void run_draw(run_scenario *out, const emu_subject *subject, int algorithm, int world, uint64_t seed, int faults);

/* One lane, one worker, the least that makes every rank wait for every other, over enough calls to use slots again. */
void run_small(run_scenario *out, const emu_subject *subject, int algorithm, int world);

/* Run it. Returns null or the violation, valid until the next run. `given` and `log` as for choice_begin(). */
const char *run(const run_scenario *s, emu_mode mode, const emu_list *given, emu_list *log, int trace);

/* A scenario in lines. */
void run_print(const run_scenario *s);

const char *run_fault_name(run_fault fault);

#endif
