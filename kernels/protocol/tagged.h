/*
 * tagged.h: the tagged protocols, as the workers of a lane run them: plain.h, but a reset is needed only when the size
 * changes.
 *
 * Host memory only, where a reset costs as much as a message. Bit 0 of every word says in which use of the slot it was
 * written, odd or even; the bits it displaces travel in a word of their own per item. So what the last use left counts
 * as empty, and nothing needs a reset as long as the size stays. When two uses of a slot differ in size, all of it is
 * emptied as in the plain protocol, two calls later. PAR_EMPTY is no word of either parity: with clean data, no word
 * has a negative NaN in its upper half.
 */
#ifndef PAR_TAGGED_H
#define PAR_TAGGED_H

#include "move.h"
#include "turn.h"

/* One item of a part: vecs first, first + 32, ..., `count` of them, and word `index` of the displaced bits. */
typedef struct { uint32_t first, count, index; } par_item;

/* Number of items of a part of so many vecs. */
PAR_DEV uint32_t par_items(uint32_t vecs)
{
    const uint32_t whole = PAR_STRIPE * PAR_ITEM_VECS, rest = vecs % whole;
    return vecs / whole * PAR_STRIPE + (rest < PAR_STRIPE ? rest : PAR_STRIPE);
}

PAR_DEV par_item par_item_at(uint32_t vecs, uint32_t index)
{
    const uint32_t first = index / PAR_STRIPE * (PAR_STRIPE * PAR_ITEM_VECS) + index % PAR_STRIPE;
    const uint32_t count = (vecs - first + PAR_STRIPE - 1) / PAR_STRIPE;
    const par_item item = {first, count < PAR_ITEM_VECS ? count : PAR_ITEM_VECS, index};
    return item;
}

/* Parity of an epoch's use of its slot. */
PAR_DEV uint32_t par_parity(uint32_t epoch) { return epoch / PAR_SLOTS & 1u; }

/* Part q of the scatter area of a slot in rank p's box, and p's results. */
PAR_DEV uint32_t *par_tagged_part(const par_call *c, uint32_t p, uint64_t slot, uint32_t q)
{
    return c->box[p] + slot + (uint64_t)q * c->part_words;
}

PAR_DEV uint32_t *par_tagged_results(const par_call *c, uint32_t p, uint64_t slot)
{
    return c->box[p] + slot + c->gather_words;
}

/* Store an item, whose vecs are clean. */
PAR_DEV void par_tagged_store(const par_call *c, uint32_t *part, par_item item, const par_vec v[PAR_ITEM_VECS],
                              uint32_t parity)
{
    uint32_t displaced = parity;
    PAR_UNROLL
    for (uint32_t k = 0; k < PAR_ITEM_VECS; k++) {
        if (k < item.count) {
            par_vec tagged;
            PAR_UNROLL
            for (uint32_t i = 0; i < 4; i++) {
                displaced |= (v[k].w[i] & 1u) << (4 * k + i + 1);
                tagged.w[i] = (v[k].w[i] & ~1u) | parity;
            }
            par_st4(part + 4ull * (item.first + k * PAR_STRIPE), tagged);
        }
    }
    par_st(part + c->tag_words + item.index, displaced);
}

/* An item as it was read: still tagged. */
typedef struct { par_vec v[PAR_ITEM_VECS]; uint32_t displaced; } par_taken;

PAR_DEV void par_tagged_load(const par_call *c, const uint32_t *part, par_item item, par_taken *t)
{
    t->displaced = par_ld(part + c->tag_words + item.index);
    PAR_UNROLL
    for (uint32_t k = 0; k < PAR_ITEM_VECS; k++)
        if (k < item.count)
            t->v[k] = par_ld4(part + 4ull * (item.first + k * PAR_STRIPE));
}

PAR_DEV int par_tagged_word_arrived(uint32_t w, uint32_t parity) { return (w & 1u) == parity && w != PAR_EMPTY; }

PAR_DEV int par_tagged_arrived(par_item item, const par_taken *t, uint32_t parity)
{
    int all = par_tagged_word_arrived(t->displaced, parity);
    PAR_UNROLL
    for (uint32_t k = 0; k < PAR_ITEM_VECS; k++) {
        PAR_UNROLL
        for (uint32_t i = 0; i < 4; i++)
            all &= k >= item.count || par_tagged_word_arrived(t->v[k].w[i], parity);
    }
    return all;
}

/* Vec k of an item with its own bits again. */
PAR_DEV par_vec par_untag(const par_taken *t, uint32_t k)
{
    par_vec v = t->v[k];
    PAR_UNROLL
    for (uint32_t i = 0; i < 4; i++)
        v.w[i] = (v.w[i] & ~1u) | (t->displaced >> (4 * k + i + 1) & 1u);
    return v;
}

/* Read an item from one peer; polls until all of it is there. 0 if it gave up. */
PAR_DEV int par_tagged_receive(const par_call *c, uint32_t p, const uint32_t *part, par_item item, par_taken *t,
                               uint32_t parity, par_wait *w)
{
    uint32_t spins = 0;
    par_tagged_load(c, part, item, t);
    while (!par_tagged_arrived(item, t, parity)) {
        if (par_give_up(c, w, &spins, p, t->displaced))
            return 0;
        par_tagged_load(c, part, item, t);
    }
    return 1;
}

/* Vecs of my input that make an item, clean. */
PAR_DEV void par_tagged_input(const par_call *c, uint32_t first, par_item item, par_vec v[PAR_ITEM_VECS], int dtype)
{
    PAR_UNROLL
    for (uint32_t k = 0; k < PAR_ITEM_VECS; k++)
        if (k < item.count)
            v[k] = par_input(c, first + item.first + k * PAR_STRIPE, dtype);
    PAR_UNROLL
    for (uint32_t k = 0; k < PAR_ITEM_VECS; k++)
        if (k < item.count)
            v[k] = par_clean(v[k], dtype);
}

/* An item of my input to a part of my box that begins with vec `first` of the message. */
PAR_DEV void par_tagged_send(const par_call *c, uint32_t *part, uint32_t first, par_item item, uint32_t parity,
                             int dtype)
{
    par_vec v[PAR_ITEM_VECS];
    par_tagged_input(c, first, item, v, dtype);
    par_tagged_store(c, part, item, v, parity);
}

PAR_DEV void par_tagged_scatter(const par_call *c, const par_piece *m, uint32_t parity, int dtype)
{
    const par_team t = par_my_team(c);
    for (uint32_t peer = t.team + 1; peer < PAR_WORLD(c); peer += t.teams) {
        const uint32_t q = par_next(c, peer);
        const par_range part = par_part(c, m->count, q);
        const uint32_t items = par_items(part.count);
        for (uint32_t index = t.member; index < items; index += t.size)
            par_tagged_send(c, par_tagged_part(c, c->rank, m->slot, q), m->first + part.begin,
                            par_item_at(part.count, index), parity, dtype);
    }
}

/* Read an item of part q from these peers. */
PAR_DEV void par_tagged_poll(const par_call *c, uint64_t slot, uint32_t q, par_item item, uint32_t peers,
                             par_taken t[PAR_MAX_WORLD])
{
    PAR_UNROLL
    for (uint32_t p = 0; p < PAR_MAX_WORLD; p++)
        if (par_is_peer(c, p, peers))
            par_tagged_load(c, par_tagged_part(c, par_peer(c, p), slot, q), item, &t[p]);
}

/* After a first poll of all peers: poll on until all are there. 0 if it gave up. */
PAR_DEV int par_tagged_settle(const par_call *c, uint64_t slot, uint32_t q, par_item item, par_taken t[PAR_MAX_WORLD],
                              uint32_t parity, par_wait *w)
{
    uint32_t missing = par_peers(c), spins = 0;
    for (;;) {
        uint32_t late = 0, left = 0;
        PAR_UNROLL
        for (uint32_t p = 0; p < PAR_MAX_WORLD; p++) {
            if (par_is_peer(c, p, missing) && !par_tagged_arrived(item, &t[p], parity)) {
                late = par_peer(c, p);
                left |= 1u << late;
            }
        }
        missing = left;
        if (!missing)
            return 1;
        if (par_give_up(c, w, &spins, late, 0))
            return 0;
        par_tagged_poll(c, slot, q, item, missing, t);
    }
}

/* Add what came from the peers to an item of mine. */
PAR_DEV void par_tagged_total(const par_call *c, par_vec own[PAR_ITEM_VECS], par_item item,
                              const par_taken t[PAR_MAX_WORLD], int dtype)
{
    PAR_UNROLL
    for (uint32_t k = 0; k < PAR_ITEM_VECS; k++) {
        if (k < item.count) {
            par_vec v[PAR_MAX_WORLD];
            PAR_UNROLL
            for (uint32_t p = 0; p < PAR_MAX_WORLD; p++)
                if (p < PAR_WORLD(c))
                    v[p] = par_untag(&t[p], k);
            own[k] = par_total(c, own[k], v, dtype);
        }
    }
}

/* As par_combine(): sum my part, store and publish. */
PAR_DEV int par_tagged_combine(const par_call *c, const par_piece *m, par_range part, uint32_t parity, int dtype,
                               par_wait *w)
{
    const uint32_t items = par_items(part.count);
    for (uint32_t index = par_thread(); index < items; index += c->workers) {
        const par_item item = par_item_at(part.count, index);
        const uint32_t first = m->first + part.begin;
        par_taken t[PAR_MAX_WORLD];
        par_vec own[PAR_ITEM_VECS];
        par_tagged_poll(c, m->slot, c->rank, item, par_peers(c), t);
        par_tagged_input(c, first, item, own, dtype);
        if (!par_tagged_settle(c, m->slot, c->rank, item, t, parity, w))
            return 0;
        par_tagged_total(c, own, item, t, dtype);
        par_tagged_store(c, par_tagged_results(c, c->rank, m->slot), item, own, parity);
        PAR_UNROLL
        for (uint32_t k = 0; k < PAR_ITEM_VECS; k++)
            if (k < item.count)
                par_output(c, first + item.first + k * PAR_STRIPE, own[k], dtype);
    }
    return 1;
}

PAR_DEV int par_tagged_gather(const par_call *c, const par_piece *m, uint32_t parity, int dtype, par_wait *w)
{
    const par_team team = par_my_team(c);
    for (uint32_t peer = team.team + 1; peer < PAR_WORLD(c); peer += team.teams) {
        const uint32_t p = par_next(c, peer);
        const par_range part = par_part(c, m->count, p);
        const uint32_t items = par_items(part.count);
        for (uint32_t index = team.member; index < items; index += team.size) {
            const par_item item = par_item_at(part.count, index);
            par_taken t;
            if (!par_tagged_receive(c, p, par_tagged_results(c, p, m->slot), item, &t, parity, w))
                return 0;
            PAR_UNROLL
            for (uint32_t k = 0; k < PAR_ITEM_VECS; k++)
                if (k < item.count)
                    par_output(c, m->first + part.begin + item.first + k * PAR_STRIPE, par_untag(&t, k), dtype);
        }
    }
    return 1;
}

/* Empty a part of so many vecs, and the words of its items. */
PAR_DEV void par_tagged_empty(const par_call *c, uint32_t *part, uint32_t vecs)
{
    par_empty(part, vecs, par_thread(), c->workers);
    par_empty(part + c->tag_words, (par_items(vecs) + 3) / 4, par_thread(), c->workers);
}

/* Empty all that a message of `count` vecs, or a smaller one, wrote into a slot. */
PAR_DEV void par_tagged_reset(const par_call *c, uint64_t slot, uint32_t count, int two)
{
    if (two) {
        const uint32_t vecs = par_part(c, count, 0).count; /* the first part is the longest */
        for (uint32_t peer = 1; peer < PAR_WORLD(c); peer++)
            par_tagged_empty(c, par_tagged_part(c, c->rank, slot, par_next(c, peer)), vecs);
        par_tagged_empty(c, par_tagged_results(c, c->rank, slot), vecs);
    } else {
        par_tagged_empty(c, par_tagged_part(c, c->rank, slot, 0), count);
    }
}

#define PAR_AHEAD 3u /* items that a thread sends ahead of the one it waits for: a link is busy both ways */

/* One-shot: the message is one part, 0. */
PAR_DEV int par_tagged_exchange(const par_call *c, const par_piece *m, uint32_t parity, int dtype, par_wait *w)
{
    uint32_t *mine = par_tagged_part(c, c->rank, m->slot, 0);
    const uint32_t items = par_items(m->count), ahead = PAR_AHEAD * c->workers;
    for (uint32_t index = par_thread(); index < items; index += c->workers) {
        const par_item item = par_item_at(m->count, index);
        par_taken t[PAR_MAX_WORLD];
        par_vec own[PAR_ITEM_VECS];
        par_tagged_poll(c, m->slot, 0, item, par_peers(c), t);
        if (index + ahead < items)
            par_tagged_send(c, mine, m->first, par_item_at(m->count, index + ahead), parity, dtype);
        par_tagged_input(c, m->first, item, own, dtype);
        if (!par_tagged_settle(c, m->slot, 0, item, t, parity, w))
            return 0;
        par_tagged_total(c, own, item, t, dtype);
        PAR_UNROLL
        for (uint32_t k = 0; k < PAR_ITEM_VECS; k++)
            if (k < item.count)
                par_output(c, m->first + item.first + k * PAR_STRIPE, own[k], dtype);
    }
    return 1;
}

/* What the workers do: send, receive; and now and then reset. */
PAR_DEV void par_tagged_work(const par_call *c, par_turn turn, par_share share, int two, int dtype)
{
    const par_piece m = {share.first, share.count, par_slot(c, turn.epoch)};
    const uint32_t parity = par_parity(turn.epoch), items = par_items(share.count);
    par_wait w = {0, 0, 1, turn.epoch, 0};
    if (c->dawdle)
        par_dawdle(c, turn.epoch);
    if (two) {
        par_tagged_scatter(c, &m, parity, dtype);
    } else {
        for (uint32_t index = par_thread(); index < items && index < PAR_AHEAD * c->workers; index += c->workers)
            par_tagged_send(c, par_tagged_part(c, c->rank, m.slot, 0), m.first, par_item_at(m.count, index), parity,
                            dtype);
    }
    if (turn.stale & PAR_MIXED)
        par_tagged_reset(c, par_slot(c, turn.epoch - 2), turn.stale & ~PAR_MIXED, two);
    par_signal(PAR_RESET);
    if (!two) {
        par_tagged_exchange(c, &m, parity, dtype, &w);
    } else if (par_tagged_combine(c, &m, par_part(c, m.count, c->rank), parity, dtype, &w)) {
        w.phase = 2;
        par_tagged_gather(c, &m, parity, dtype, &w);
    }
    par_signal(PAR_DONE);
}

/* What the lane keeps about the slots: the one that was reset is empty, the one of this call holds `count` vecs, or is
 * mixed if it held another number before. */
PAR_DEV void par_tagged_remember(par_lane *lane, par_turn turn, uint32_t count)
{
    uint32_t *extent = &lane->extent[turn.epoch % PAR_SLOTS];
    const uint32_t before = par_own_ld(extent);
    uint32_t now = count;
    if (before != 0 && before != count)
        now = PAR_MIXED | (before > count ? before : count);
    par_own_st(extent, now);
    if (turn.stale & PAR_MIXED)
        par_own_st(&lane->extent[(turn.epoch - 2) % PAR_SLOTS], 0);
}

#endif
