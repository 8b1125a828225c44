/*
 * scenario.h: what a run makes ranks do: which calls, of what size, in which grid, and what goes wrong. Drawn from a
 * seed, or the least that can show a fault.
 */
#ifndef EMU_SCENARIO_H
#define EMU_SCENARIO_H

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

/* EMU_WITHOUT_ bits of every scenario that is drawn from now on. */
extern uint32_t run_without;

/* Draw a scenario. faults: whether a rank may be late, lost, or abort. */
void run_draw(run_scenario *out, const emu_subject *subject, int algorithm, int world, uint64_t seed, int faults);

/* One lane, one worker, the least that makes every rank wait for every other, over enough calls to use slots again. */
void run_small(run_scenario *out, const emu_subject *subject, int algorithm, int world);

/* A scenario in lines. */
void run_print(const run_scenario *s);

const char *run_fault_name(run_fault fault);

#endif
