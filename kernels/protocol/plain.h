/*
 * plain.h: the plain protocols, as the workers of a lane run them. Validity is in the data.
 *
 * A slot is filled with PAR_EMPTY. The writer stores words that are never PAR_EMPTY, the reader polls each word until
 * it is something else: no flag, no fence, no order needed, only that a 32-bit element arrives whole. Slots are used in
 * turn by the lane's epoch e. Call e resets slot e-2, exactly as far as it was written then (extent), and fences before
 * it ends. A peer that writes or polls that slot again is in call e+2; it has seen a word of ours from call e+1, which
 * we sent after that fence. And nobody still reads what we reset: we are in call e, so each peer has sent us a word of
 * e-1, so it has left e-2. Both need that every call of a lane brings a word from every peer, which is why a two-shot
 * lane has at least as many vecs as there are ranks.
 */
#ifndef PAR_PLAIN_H
#define PAR_PLAIN_H

#include "move.h"
#include "turn.h"

/* Reset what a one-shot of `count` vecs wrote: my outbox, or my inbox from every peer. The housekeeper's warp does. */
PAR_DEV void par_reset_one_shot(const par_call *c, uint64_t slot, uint32_t count)
{
    const uint32_t member = par_thread() - c->workers, size = par_threads() - c->workers;
    for (uint32_t k = 1; k < PAR_WORLD(c) && k <= c->targets; k++)
        par_empty(par_mine(c, k, slot), count, member, size);
}

/* Reset what a two-shot of `count` vecs wrote: my outbox but for my own part and my results, or what every peer put
 * into my inbox. */
PAR_DEV void par_reset_two_shot(const par_call *c, uint64_t slot, uint32_t count)
{
    const par_range mine = par_part(c, count, c->rank);
    if (c->transport != PAR_PUSH) {
        const uint32_t end = mine.begin + mine.count, me = par_thread();
        par_empty(par_to(c, 1, slot), mine.begin, me, c->workers);
        par_empty(par_to(c, 1, slot + 4ull * end), count - end, me, c->workers);
        par_empty(par_to(c, 1, slot + c->gather_words), mine.count, me, c->workers);
    } else {
        const par_team t = par_my_team(c);
        for (uint32_t peer = t.team + 1; peer < PAR_WORLD(c); peer += t.teams) {
            const uint32_t p = par_next(c, peer);
            par_empty(par_mine(c, peer, slot), mine.count, t.member, t.size);
            par_empty(par_mine(c, peer, slot + c->gather_words), par_part(c, count, p).count, t.member, t.size);
        }
    }
}

/*
 * What the workers of a one-shot do. A thread reads from its peers the vecs that it sends itself; `raw` is its first,
 * as read at entry. Its next vec leaves before this one is waited for, so that a link is busy both ways.
 */
PAR_DEV void par_one_shot_work(const par_call *c, uint32_t epoch, par_share share, par_vec raw, int dtype)
{
    const uint64_t slot = par_slot(c, epoch);
    par_vec own = par_clean(raw, dtype), part[PAR_MAX_WORLD];
    par_wait w = {0, 0, 1, epoch, 0};
    uint32_t i = par_thread();
    if (c->dawdle)
        par_dawdle(c, epoch);
    if (i < share.count) {
        par_publish(c, slot + 4ull * i, own);
        par_poll(c, slot + 4ull * i, par_peers(c), part);
    }
    if (c->transport != PAR_PUSH)
        par_signal(PAR_SENT);
    while (i < share.count) {
        const uint32_t next = i + c->workers;
        par_vec then = own;
        if (next < share.count) {
            then = par_clean(par_input(c, share.first + next, dtype), dtype);
            par_publish(c, slot + 4ull * next, then);
        }
        if (!par_settle(c, slot + 4ull * i, part, &w))
            break;
        par_output(c, share.first + i, par_total(c, own, part, dtype), dtype);
        i = next;
        own = then;
        if (i < share.count)
            par_poll(c, slot + 4ull * i, par_peers(c), part);
    }
    par_signal(PAR_DONE);
}

/* What the workers of a two-shot do: send, sum, reset, receive. */
PAR_DEV void par_two_shot_work(const par_call *c, par_turn turn, par_share share, par_vec raw, int dtype)
{
    const par_piece m = {share.first, share.count, par_slot(c, turn.epoch)};
    const uint64_t old = par_slot(c, turn.epoch - 2);
    par_wait w = {0, 0, 1, turn.epoch, 0};
    int ok;
    if (c->dawdle)
        par_dawdle(c, turn.epoch);
    par_scatter(c, &m, &raw, dtype);
    ok = par_combine(c, &m, par_part(c, share.count, c->rank), 1, dtype, &w);
    par_reset_two_shot(c, old, turn.stale); /* while the results are on their way */
    par_signal(PAR_RESET);
    w.phase = 2;
    if (ok)
        par_gather(c, &m, dtype, &w);
    par_signal(PAR_DONE);
}

#endif
