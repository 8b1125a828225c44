/*
 * engine.h: GPUs that run blocks of threads on the memory of memory.h, as the choices of choice.h will have it. What
 * kernels/primitives.h declares is defined in primitives.c.
 *
 * Calling sequence:
 *   emu_begin()                       geometry of fibres and what the adversary is
 *   emu_add()                         memory; addresses are for arithmetic only, never dereferenced
 *   emu_launch()                      a kernel on a rank
 *   emu_run()                         until no kernel is left; calls back when one has ended, which may launch the next
 *   emu_value(), emu_violation()      look at the outcome
 *
 * Time stands still while anybody can do something useful. When nobody can, everything that was held back becomes
 * visible (calm); when that does not help either, the clock jumps by a quarter of the time limit, so that whatever
 * waits runs into its limit; when even that changes nothing, a wait has no bound, which is a violation.
 *
 * One engine per process; not for several host threads.
 */
#ifndef EMU_ENGINE_H
#define EMU_ENGINE_H

#include <stddef.h>
#include <stdint.h>

#include "choice.h"
#include "kernels/primitives.h"
#include "memory.h"

enum {
    EMU_RANKS = 8,
    EMU_FIBRES = 64,
    EMU_HOST = 0xff,   /* home of host memory */
    EMU_ALL = 0xff,    /* mask of ranks */
    EMU_CELLS = 4096   /* 16-bit units of a message */
};

typedef struct emu_region emu_region;
struct emu_region {
    const char *name;
    uint32_t *base;   /* set by emu_add() */
    uint32_t words;
    uint32_t initial;
    uint8_t home;             /* rank, or EMU_HOST */
    uint8_t readers, writers; /* masks of ranks that may; who else does is a violation */
    int owner;                /* rank, for names */
    const void *context;      /* for refine and print */
    void (*refine)(const emu_region *r, uint32_t offset, emu_place *place); /* null, or adjust who may */
    void (*print)(const emu_region *r, uint32_t offset, char *text, size_t size); /* null: name[owner]+offset */
};

typedef struct {
    emu_mode mode;
    uint64_t seed;
    const emu_list *given;
    emu_list *log;
    int ranks, per_rank; /* fibres of a rank: most blocks times most threads of a kernel */
    uint64_t timeout_ns; /* of the longest wait, for the clock's jumps */
    uint32_t most_steps; /* more are a violation: a run has an end */
    int trace;           /* keep what happens */
    uint32_t without;    /* EMU_WITHOUT_ bits */
} emu_setup;

/* 0, or -1 when out of memory. */
int emu_begin(const emu_setup *setup);
void emu_end(void); /* frees all; only when no further run follows */

/* Add memory; the regions of a run must be added in the same order for the same seed. */
uint32_t *emu_add(const emu_region *region);

/* The caller's input and output on a rank, for the check that threads do not race on them. */
void emu_message(int rank, const void *in, void *out, size_t bytes);

typedef void (*emu_body)(const void *argument);
void emu_launch(int rank, int blocks, int threads, emu_body body, const void *argument);

/*
 * Events. `ended(context, rank)` after a rank's last thread has left; `idle(context)` when the clock has jumped or
 * nobody runs: returns whether it launched something; `fault(context, rank)` when the rank reaches operation
 * `fault_at`.
 */
typedef struct {
    void *context;
    void (*ended)(void *context, int rank);
    int (*idle)(void *context);
    void (*fault)(void *context, int rank);
    uint32_t fault_at[EMU_RANKS]; /* 0: never */
} emu_events;
void emu_run(const emu_events *events);

/* For fault(): the rank's threads vanish; the host of a rank stores a word. */
void emu_kill(int rank);
void emu_host_store(int rank, uint32_t *p, uint32_t value);
/* A rank's kernel has trapped or was killed. */
int emu_is_lost(int rank);

/* Newest value of a word; the first one when nobody has touched it. */
uint32_t emu_value(const uint32_t *p);
/* What any host is certain to see from now on: the newest value, if a fence has covered it or a host has stored it;
 * else the first one. */
uint32_t emu_certain(const uint32_t *p);
/* Give a word its first value. */
void emu_preset(uint32_t *p, uint32_t value);

/* Report a violation; the first counts. From within a kernel it does not return. */
void emu_fail(const char *format, ...) __attribute__((format(printf, 1, 2)));
const char *emu_violation(void); /* null: none */

/* Trace of the last run, if it was asked for. */
typedef enum {
    EMU_OP_LOAD, EMU_OP_ACQUIRE, EMU_OP_OWN_LOAD, EMU_OP_STORE, EMU_OP_OWN_STORE, EMU_OP_HOST_STORE, EMU_OP_EXCHANGE,
    EMU_OP_FENCE, EMU_OP_BARRIER, EMU_OP_SIGNAL, EMU_OP_WAIT, EMU_OP_LAUNCH, EMU_OP_LEAVE, EMU_OP_CALM,
    EMU_OP_CLOCK, EMU_OP_KILL, EMU_OP_TRAP
} emu_op;
typedef struct {
    uint64_t step;
    uint32_t word, value;
    uint32_t age, ages; /* what was chosen of how many */
    uint16_t by;        /* loads: who wrote what was read */
    uint8_t op, rank, block, thread;
    uint8_t parts;      /* words of the access: this event is the first of so many */
} emu_event;
const emu_event *emu_trace(size_t *n);
void emu_name(uint32_t word, char *text, size_t size);
/* Rank, block, thread of a memory thread number, as text. */
void emu_who(int thread, char *text, size_t size);

#endif
