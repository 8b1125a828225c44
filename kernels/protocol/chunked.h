/*
 * chunked.h: the chunked protocols: in steps that flags announce.
 *
 * A lane's steps are numbered on through all calls. In step s it sends a tile, waits until every peer has done step s-1
 * (one flag per lane and peer, which holds the number of steps done), and works on what the peers wrote in step s-1; at
 * the end of the part that writes the workers signal, and the housekeeper fences and sets the flag. A slot is written
 * again four steps later. When we send in step s, our last wait was in step s-1, or, when s-1 began a call (and did not
 * wait), in step s-2; so every peer has done step s-3, in which it read what was written in s-4.
 */
#ifndef PAR_CHUNKED_H
#define PAR_CHUNKED_H

#include "move.h"

/* Rank p's flag for rank q and this lane: in an outbox all read the same word, into other GPUs everybody gets his own.
 * */
PAR_DEV uint32_t *par_flag(const par_call *c, uint32_t p, uint32_t q)
{
    uint32_t *base = c->transport == PAR_HOST ? c->flag[p] : c->flag[q];
    return base + (uint64_t)(par_block() * PAR_MAX_WORLD + p) * PAR_FLAG_WORDS;
}

/* Tell every peer how many steps are done. */
PAR_DEV void par_post(const par_call *c, uint32_t steps)
{
    if (c->transport == PAR_HOST) {
        par_st(par_flag(c, c->rank, c->rank), steps);
    } else {
        for (uint32_t k = 1; k < PAR_WORLD(c); k++)
            par_st(par_flag(c, c->rank, par_next(c, k)), steps);
    }
}

/* Wait until every peer has done so many steps; each thread looks at its share of the peers, so a barrier must follow.
 * 0 if it gave up. */
PAR_DEV int par_await(const par_call *c, uint32_t steps, par_wait *w)
{
    for (uint32_t p = par_thread(); p < PAR_WORLD(c); p += c->workers) {
        const uint32_t *flag = par_flag(c, p, c->rank);
        uint32_t seen, spins = 0;
        w->epoch = w->expected = steps;
        while (p != c->rank && (int32_t)((seen = par_ld_acquire(flag)) - steps) < 0)
            if (par_give_up(c, w, &spins, p, seen))
                return 0;
    }
    return 1;
}

/* Tile i of this lane's share, staged in the slot of step s. */
PAR_DEV par_piece par_tile(const par_call *c, par_share share, uint32_t i, uint32_t s)
{
    const uint32_t begin = i * c->tile, left = share.count - begin;
    const par_piece m = {share.first + begin, left < c->tile ? left : c->tile, par_slot(c, s)};
    return m;
}

/*
 * The part of a step that writes what peers read: send tile i, wait until everybody has done step s-1, sum tile i-1.
 * The block meets in the middle; 0, for all of it, if somebody has given up. *ok: whether this thread has not.
 */
PAR_DEV int par_step(const par_call *c, par_share share, uint32_t tiles, uint32_t i, uint32_t s, int two, int dtype,
                     par_wait *w, int *ok)
{
    const int worker = par_is_worker(c);
    if (worker && i < tiles) {
        const par_piece m = par_tile(c, share, i, s);
        if (two)
            par_scatter(c, &m, 0, dtype);
        else
            par_send_all(c, &m, dtype);
    }
    if (i > 0) {
        if (worker && *ok)
            *ok = par_await(c, s, w);
        if (par_barrier_or(!*ok))
            return 0;
    }
    if (worker && i > 0 && i <= tiles) {
        const par_piece m = par_tile(c, share, i - 1, s - 1);
        const par_range all = {0, m.count};
        *ok = par_combine(c, &m, two ? par_part(c, m.count, c->rank) : all, two, dtype, w);
    }
    return 1;
}

/*
 * One-shot and two-shot in steps: send tile i, sum tile i-1, gather tile i-2 (two-shot). `two` is constant.
 */
PAR_DEV void par_chunked(const par_call *c, int two, int dtype)
{
    par_lane *lane = c->lane + par_block();
    const uint32_t first = par_own_ld(&lane->epoch);
    const par_share share = par_lane_share(c);
    const uint32_t tiles = (share.count + c->tile - 1) / c->tile, steps = tiles + (two ? 2 : 1);
    const par_entry entry = par_enter(c);
    par_wait w = {0, 0, 0, first, 0};
    int ok = 1;

    if (par_is_worker(c) && c->dawdle)
        par_dawdle(c, first);
    for (uint32_t i = 0; i < steps; i++) {
        const uint32_t s = first + i;
        w.phase = i <= tiles ? 1 : 2;
        if (!par_step(c, share, tiles, i, s, two, dtype, &w, &ok))
            return;
        if (par_is_worker(c)) {
            par_signal(PAR_STEP);
        } else {
            par_wait_signals(PAR_STEP);
            if (par_is_keeper(c) && i < steps - 1) {
                par_fence();
                par_post(c, s + 1);
            }
        }
        if (two && i > 1 && ok && par_is_worker(c)) {
            const par_piece m = par_tile(c, share, i - 2, s - 2);
            ok = par_gather(c, &m, dtype, &w);
        }
    }
    if (par_is_keeper(c)) {
        par_check_entry(c, &entry, first);
        par_own_st(&lane->epoch, first + steps);
    }
    par_barrier_or(0);
    if (par_is_keeper(c))
        par_own_st(c->busy + par_block(), 0);
}

#endif
