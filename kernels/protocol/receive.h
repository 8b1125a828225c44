/*
 * receive.h: words of all peers, polled until they are there, and their sum. A word has arrived when it is not
 * PAR_EMPTY.
 */
#ifndef PAR_RECEIVE_H
#define PAR_RECEIVE_H

#include "../numerics.h"
#include "wait.h"

PAR_DEV int par_arrived(par_vec v)
{
    return v.w[0] != PAR_EMPTY && v.w[1] != PAR_EMPTY && v.w[2] != PAR_EMPTY && v.w[3] != PAR_EMPTY;
}

PAR_DEV par_vec par_either(int which, par_vec a, par_vec b)
{
    PAR_UNROLL
    for (int i = 0; i < 4; i++)
        a.w[i] = which ? a.w[i] : b.w[i];
    return a;
}

/* Peers, as bits. */
PAR_DEV uint32_t par_peers(const par_call *c) { return ((1u << PAR_WORLD(c)) - 1u) & ~(1u << c->rank); }

/* Of two ranks the other one, a constant's worth of code; else p. */
PAR_DEV uint32_t par_peer(const par_call *c, uint32_t p) { return PAR_PAIR ? 1u - c->rank : p; }

/* Whether p stands for a peer in a loop over ranks: a pair's only peer is at p = 1, whatever its rank. */
PAR_DEV int par_is_peer(const par_call *c, uint32_t p, uint32_t peers)
{
    (void)c;
    return PAR_PAIR ? p == 1 : p < PAR_WORLD(c) && (peers >> p & 1u);
}

/* Read a vec at an offset from these peers into part[]. */
PAR_DEV void par_poll(const par_call *c, uint64_t offset, uint32_t peers, par_vec part[PAR_MAX_WORLD])
{
    PAR_UNROLL
    for (uint32_t p = 0; p < PAR_MAX_WORLD; p++)
        if (par_is_peer(c, p, peers))
            part[p] = par_ld4(par_from(c, par_peer(c, p), offset));
}

/* After a first poll of all peers: poll on until all are there. 0 if it gave up. */
PAR_DEV int par_settle(const par_call *c, uint64_t offset, par_vec part[PAR_MAX_WORLD], par_wait *w)
{
    uint32_t missing = par_peers(c), spins = 0;
    for (;;) {
        uint32_t late = 0, left = 0;
        PAR_UNROLL
        for (uint32_t p = 0; p < PAR_MAX_WORLD; p++) {
            if (par_is_peer(c, p, missing) && !par_arrived(part[p])) {
                late = par_peer(c, p);
                left |= 1u << late;
            }
        }
        missing = left;
        if (!missing)
            return 1;
        if (par_give_up(c, w, &spins, late, PAR_EMPTY))
            return 0;
        par_poll(c, offset, missing, part);
    }
}

/* The sum of mine and what came from the peers. Of two terms the order makes no bit of difference: NaNs have one
 * pattern, and zeros of both signs add to the same. */
PAR_DEV par_vec par_total(const par_call *c, par_vec own, par_vec part[PAR_MAX_WORLD], int dtype)
{
    PAR_UNROLL
    for (uint32_t p = 0; p < PAR_MAX_WORLD; p++)
        part[p] = par_either(PAR_PAIR ? p == 0 : p == c->rank, own, part[p]); /* part[rank] = own goes through memory */
    return par_sum(part, PAR_WORLD(c), dtype);
}

#endif
