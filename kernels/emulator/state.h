/*
 * state.h: the engine from within, as engine.c, which lets fibres take turns, and primitives.c, which is what they do,
 * share it.
 *
 * A primitive begins with emu_step(), at which others may come first. What it does then nobody interrupts.
 */
#ifndef EMU_STATE_H
#define EMU_STATE_H

#include "engine.h"
#include "fibre.h"

enum {
    EMU_REGIONS = 512,
    EMU_HOST_THREAD = EMU_FIBRES + EMU_RANKS, /* memory thread of a rank's host */
    EMU_OTHERS_SEE = 1,                       /* an operation on memory or barriers that other threads use */
    EMU_SIGNALS = 4                           /* of a block, by id */
};

typedef struct {
    fibre *context;
    emu_body body;
    const void *argument;
    uint32_t op;
    uint32_t generation; /* block barriers passed in this kernel */
    uint8_t rank, block, thread;
    uint8_t first, threads; /* fibre of the block's thread 0; threads of the block */
    uint8_t blocks;
    uint8_t busy;           /* has a context that is not at the start of entry() */
} emu_unit;

typedef struct { uint32_t arrived, gone; int any, result; } emu_gate; /* a block's barrier, at the block's first unit */

/* A barrier at which some only signal and others wait, by threads of the block; at the block's first unit. */
typedef struct { uint64_t signalled, waiting; uint32_t told[EMU_FIBRES]; } emu_signals;

/* Last write to a 16-bit unit of a message in this kernel: fibre + 1 and the barriers it had passed. */
typedef struct { uint8_t writer; uint16_t written_at; } emu_cell;

typedef struct {
    emu_setup setup;
    const emu_events *events;
    fibre *home;
    emu_unit unit[EMU_FIBRES];
    emu_gate gate[EMU_FIBRES];
    emu_signals signals[EMU_FIBRES][EMU_SIGNALS];
    int now; /* fibre that runs, -1: none */
    uint64_t ready, polling;
    uint64_t steps, clock;
    uint32_t rounds, jumps, calm; /* since something useful happened */
    uint32_t rank_ops[EMU_RANKS];
    int left[EMU_RANKS]; /* threads of the rank's kernel that still run */
    uint8_t lost[EMU_RANKS], ended[EMU_RANKS];
    emu_region region[EMU_REGIONS];
    int regions;
    uint32_t *arena;
    uint32_t words;
    const char *in[EMU_RANKS], *out[EMU_RANKS];
    size_t bytes[EMU_RANKS];
    emu_cell cells[EMU_RANKS][EMU_CELLS];
    char violation[512];
    emu_event *trace;
    size_t n_trace, room_trace;
} emu_state;
extern emu_state emu;

/* Before every operation of a fibre: others may come first. Returns the fibre that goes on. */
emu_unit *emu_step(int others_see);
/* The fibre cannot go on: somebody else. */
void emu_wait_here(void);
/* The fibre ends its part in the run. */
void emu_leave(void);
/* Something has happened that may help others on. */
void emu_useful(void);

/* The place at an address that `rank` reads or writes. */
emu_place *emu_place_of(const uint32_t *p, int rank, int write);

/* An event of the fibre that runs; keep one; both, if a trace was asked for. */
emu_event emu_event_now(emu_op op);
void emu_keep(emu_event e);
void emu_note(emu_op op);

#endif
