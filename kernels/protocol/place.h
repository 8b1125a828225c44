/*
 * place.h: who a thread is, and where things are: a lane's share of the message and the parts of it, slots, and the
 * addresses at which a rank's words are written and read.
 */
#ifndef PAR_PLACE_H
#define PAR_PLACE_H

#include "../call.h"
#include "../primitives.h"

#ifndef PAR_WORLD
#define PAR_WORLD(c) ((c)->world) /* a constant in the kernels for one world size */
#define PAR_PAIR 0                /* whether that is known to be 2 */
#else
#define PAR_PAIR (PAR_WORLD(0) == 2u)
#endif

PAR_DEV int par_is_worker(const par_call *c) { return par_thread() < c->workers; }
PAR_DEV int par_is_keeper(const par_call *c) { return par_thread() == c->workers; }

enum { PAR_SENT = 1, PAR_RESET = 1, PAR_STEP = 1, PAR_DONE = 2 }; /* what workers signal to the housekeeper */

typedef struct { uint32_t begin, count; } par_range; /* in vecs */

/* Rank i's part of n vecs: parts differ by one vec at most. */
PAR_DEV par_range par_part(const par_call *c, uint32_t n, uint32_t i)
{
    const uint32_t least = (uint32_t)((uint64_t)n * c->world_inverse >> 32), longer = n - least * PAR_WORLD(c);
    par_range r;
    r.begin = i * least + (i < longer ? i : longer);
    r.count = least + (i < longer);
    return r;
}

/* This lane's part of the message: first vec and number of vecs. */
typedef struct { uint32_t first, count; } par_share;

PAR_DEV par_share par_lane_share(const par_call *c)
{
    const uint32_t lane = par_block();
    par_share s;
    s.first = lane * c->share + (lane < c->longer ? lane : c->longer);
    s.count = c->share + (lane < c->longer);
    return s;
}

/* Offset in a box of this lane's slot, in words. */
PAR_DEV uint64_t par_slot(const par_call *c, uint32_t epoch)
{
    return (uint64_t)par_block() * c->lane_words + (uint64_t)(epoch % PAR_SLOTS) * c->slot_words;
}

/* Where words for the k-th rank after this one go, and where words of rank p are, both for an offset in a box. */
PAR_DEV uint32_t *par_to(const par_call *c, uint32_t k, uint64_t offset) { return c->to[k - 1] + offset; }
PAR_DEV const uint32_t *par_from(const par_call *c, uint32_t p, uint64_t offset)
{
    return (PAR_PAIR ? c->after : c->from[p]) + offset;
}

/* Rank after this one by k, so that ranks do not all begin with the same peer. */
PAR_DEV uint32_t par_next(const par_call *c, uint32_t k)
{
    uint32_t q = c->rank + k;
    return q < PAR_WORLD(c) ? q : q - PAR_WORLD(c);
}

/* Store a vec where all peers will read it: once in an outbox, or into every peer's inbox. */
PAR_DEV void par_publish(const par_call *c, uint64_t offset, par_vec v)
{
    par_st4(par_to(c, 1, offset), v);
    for (uint32_t k = 2; k < PAR_WORLD(c) && k <= c->targets; k++)
        par_st4(par_to(c, k, offset), v);
}

#endif
