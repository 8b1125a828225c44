/*
 * move.h: a piece of a message through a slot: sent, scattered, summed, gathered. The plain protocols do that with a
 * lane's whole share, the chunked ones with a tile at a time.
 */
#ifndef PAR_MOVE_H
#define PAR_MOVE_H

#include "message.h"
#include "receive.h"

#define PAR_BATCH 2u /* vecs that a thread has in flight where it moves several */

/*
 * How workers share a job that has a part per peer: a team of threads for each peer, so that a team's accesses are
 * neighbours. With fewer workers than peers a team has one thread and takes several peers in turn.
 */
typedef struct { uint32_t team, teams, member, size; } par_team;

PAR_DEV par_team par_my_team(const par_call *c)
{
    par_team t;
    t.size = c->team;
    t.teams = c->teams;
    t.team = c->team_inverse ? (uint32_t)((uint64_t)par_thread() * c->team_inverse >> 32) : par_thread();
    t.member = par_thread() - t.team * t.size;
    if (t.team >= t.teams) /* left over: no job */
        t.team = PAR_WORLD(c);
    return t;
}

/* A message part as the protocols see it: `count` vecs from vec `first` of the message, staged at a slot of the box. */
typedef struct {
    uint32_t first, count;
    uint64_t slot; /* offset in a box, in words: the scatter area; the gather area is gather_words behind */
} par_piece;

/* Vec i of the scatter area for owner's part; an inbox holds only that part, an outbox all of them. */
PAR_DEV uint64_t par_scatter_at(const par_call *c, const par_piece *m, par_range part, uint32_t i)
{
    return m->slot + 4ull * (c->transport == PAR_PUSH ? i : part.begin + i);
}

PAR_DEV uint64_t par_gather_at(const par_call *c, const par_piece *m, uint32_t i)
{
    return m->slot + c->gather_words + 4ull * i;
}

/* One-shot: all of my input to all. */
PAR_DEV void par_send_all(const par_call *c, const par_piece *m, int dtype)
{
    const uint32_t stride = c->workers;
    for (uint32_t i = par_thread(); i < m->count; i += PAR_BATCH * stride) {
        par_vec v[PAR_BATCH];
        PAR_UNROLL
        for (uint32_t k = 0; k < PAR_BATCH; k++)
            if (i + k * stride < m->count)
                v[k] = par_input(c, m->first + i + k * stride, dtype);
        PAR_UNROLL
        for (uint32_t k = 0; k < PAR_BATCH; k++)
            if (i + k * stride < m->count)
                par_publish(c, m->slot + 4ull * (i + k * stride), par_clean(v[k], dtype));
    }
}

/* Two-shot: of my input, each peer's part to that peer. early: null, or this thread's first vec. */
PAR_DEV void par_scatter(const par_call *c, const par_piece *m, const par_vec *early, int dtype)
{
    const par_team t = par_my_team(c);
    for (uint32_t peer = t.team + 1; peer < PAR_WORLD(c); peer += t.teams) {
        const uint32_t q = par_next(c, peer);
        const par_range part = par_part(c, m->count, q);
        for (uint32_t i = t.member; i < part.count; i += PAR_BATCH * t.size) {
            par_vec v[PAR_BATCH];
            PAR_UNROLL
            for (uint32_t k = 0; k < PAR_BATCH; k++)
                if (early && k == 0 && peer == t.team + 1 && i == t.member)
                    v[k] = *early;
                else if (i + k * t.size < part.count)
                    v[k] = par_input(c, m->first + part.begin + i + k * t.size, dtype);
            PAR_UNROLL
            for (uint32_t k = 0; k < PAR_BATCH; k++)
                if (i + k * t.size < part.count)
                    par_st4(par_to(c, peer, par_scatter_at(c, m, part, i + k * t.size)), par_clean(v[k], dtype));
        }
    }
}

/*
 * Sum everybody's vecs of a part, mine from the input, and store the result; in a two-shot publish it too. What is
 * stored is what is published. Polls; where a flag has said that the data is there, the first poll succeeds, because
 * no data is PAR_EMPTY. 0 if it gave up.
 */
PAR_DEV int par_combine(const par_call *c, const par_piece *m, par_range part, int publish, int dtype, par_wait *w)
{
    for (uint32_t i = par_thread(); i < part.count; i += c->workers) {
        const uint32_t at = m->first + part.begin + i;
        const par_vec own = par_clean(par_input(c, at, dtype), dtype);
        const uint64_t offset = par_scatter_at(c, m, part, i);
        par_vec v[PAR_MAX_WORLD], sum;
        par_poll(c, offset, par_peers(c), v);
        if (!par_settle(c, offset, v, w))
            return 0;
        sum = par_total(c, own, v, dtype);
        if (publish)
            par_publish(c, par_gather_at(c, m, i), sum);
        par_output(c, at, sum, dtype);
    }
    return 1;
}

/* Two-shot: everybody else's results to my output. 0 if it gave up. */
PAR_DEV int par_gather(const par_call *c, const par_piece *m, int dtype, par_wait *w)
{
    const par_team t = par_my_team(c);
    for (uint32_t peer = t.team + 1; peer < PAR_WORLD(c); peer += t.teams) {
        const uint32_t p = par_next(c, peer);
        const par_range part = par_part(c, m->count, p);
        for (uint32_t i = t.member; i < part.count; i += PAR_BATCH * t.size) {
            par_vec v[PAR_BATCH];
            PAR_UNROLL
            for (uint32_t k = 0; k < PAR_BATCH; k++)
                if (i + k * t.size < part.count)
                    v[k] = par_ld4(par_from(c, p, par_gather_at(c, m, i + k * t.size)));
            PAR_UNROLL
            for (uint32_t k = 0; k < PAR_BATCH; k++) {
                if (i + k * t.size < part.count) {
                    const uint32_t *from = par_from(c, p, par_gather_at(c, m, i + k * t.size));
                    uint32_t spins = 0;
                    while (!par_arrived(v[k])) {
                        if (par_give_up(c, w, &spins, p, PAR_EMPTY))
                            return 0;
                        v[k] = par_ld4(from);
                    }
                    par_output(c, m->first + part.begin + i + k * t.size, v[k], dtype);
                }
            }
        }
    }
    return 1;
}

#endif
