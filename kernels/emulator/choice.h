/*
 * choice.h: who decides what the adversary does.
 *
 * There are two kinds of decisions: which fibre goes on, and which age a read or write has. Each has a harmless default
 * (the same fibre goes on until it waits, then the next in line; reads see the newest write, writes land last), so that
 * a run is the default plus a list of deviations, each bound to "fibre f at its k-th operation". That makes deviations
 * independent of each other: any subset of a list is again a run, which is what shrinking and bounded exploration need.
 *
 *   random    a strategy drawn from a seed decides; deviations can be written down
 *   replay    a given list decides, and nothing else
 *   explore   like replay; after the last deviation of the list, all that could be decided otherwise is written down
 */
#ifndef EMU_CHOICE_H
#define EMU_CHOICE_H

#include <stddef.h>
#include <stdint.h>

#include "memory.h"

typedef enum { EMU_SWITCH, EMU_AGE } emu_kind;

typedef struct {
    uint32_t op;    /* of the fibre */
    uint16_t fibre;
    uint16_t kind;
    uint32_t value; /* EMU_SWITCH: fibre; EMU_AGE: ages of up to four words, a byte each */
} emu_deviation;

typedef struct {
    emu_deviation *at;
    size_t n, room;
} emu_list;

void list_add(emu_list *list, emu_deviation d);
void list_free(emu_list *list);

typedef enum { EMU_RANDOM, EMU_REPLAY, EMU_EXPLORE } emu_mode;

/*
 * Begin a run of `ranks` times `per_rank` fibres, numbered rank by rank. random: from `seed`; `log` may be null.
 * replay, explore: `given`, in the order in which a run came by them; explore writes alternatives to `log`.
 */
void choice_begin(emu_mode mode, uint64_t seed, const emu_list *given, emu_list *log, int ranks, int per_rank);

/* A strategy in words, of the last run. */
const char *choice_text(void);

typedef struct {
    uint32_t op;
    int fibre;
    int others_see;   /* explore: it matters who comes first */
    uint64_t ready;   /* who could go on */
    uint64_t active;  /* who could and has something to do; not empty unless ready is */
} emu_turn;

/* Which fibre goes on; ready is not empty. */
int choice_next(const emu_turn *turn);

/* Ages for n words; count[i] ages are possible for word i; newest[i] is its newest write. calm: be harmless. */
uint32_t choice_ages(const emu_turn *turn, int n, const uint32_t *count, emu_place *const *place, int write, int calm);

/* Random numbers of the seed, for whoever sets up a run. */
uint64_t choice_random(uint64_t *state);

#endif
