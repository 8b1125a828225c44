/*
 * turn.h: a lane's turn in a plain or tagged call: which slot it uses, which one it empties, and how.
 */
#ifndef PAR_TURN_H
#define PAR_TURN_H

#include "place.h"

/* A lane's bookkeeping as read at entry, by every thread, so that nobody waits for another. */
typedef struct { uint32_t epoch, stale; } par_turn; /* stale: extent of the slot that this call resets */

PAR_DEV par_turn par_take_turn(const par_call *c)
{
    const par_lane *lane = c->lane + par_block();
    par_turn t;
    t.epoch = par_own_ld(&lane->epoch);
    t.stale = par_own_ld(&lane->extent[(t.epoch - 2) % PAR_SLOTS]);
    return t;
}

/* What this rank resets: its outbox, or what the k-th rank after it wrote into its inbox. */
PAR_DEV uint32_t *par_mine(const par_call *c, uint32_t k, uint64_t offset) { return c->mine[k - 1] + offset; }

/* Empty `count` vecs. */
PAR_DEV void par_empty(uint32_t *at, uint32_t count, uint32_t member, uint32_t size)
{
    const par_vec empty = {{PAR_EMPTY, PAR_EMPTY, PAR_EMPTY, PAR_EMPTY}};
    for (uint32_t i = member; i < count; i += size)
        par_st4(at + 4ull * i, empty);
}

#endif
