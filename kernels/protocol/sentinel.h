/*
 * sentinel.h: a plain or tagged call as a whole: its workers (plain.h, tagged.h) and who keeps house meanwhile.
 */
#ifndef PAR_SENTINEL_H
#define PAR_SENTINEL_H

#include "plain.h"
#include "tagged.h"

/*
 * What the housekeeper's warp does meanwhile in a one-shot: all of it resets, and every thread fences what it has
 * reset. Through the host the resets share a link with the words, so those go first. Workers may not yet have read the
 * epoch, so it moves on when they are done.
 */
PAR_DEV void par_one_shot_keep(const par_call *c, uint32_t count)
{
    par_lane *lane = c->lane + par_block();
    const par_turn turn = par_take_turn(c);
    const par_entry entry = par_enter(c);
    if (c->transport != PAR_PUSH)
        par_wait_signals(PAR_SENT);
    par_reset_one_shot(c, par_slot(c, turn.epoch - 2), turn.stale);
    par_fence(); /* my resets, before anything of the next call */
    if (par_is_keeper(c))
        par_check_entry(c, &entry, turn.epoch);
    par_wait_signals(PAR_DONE);
    if (par_is_keeper(c)) {
        par_own_st(&lane->extent[turn.epoch % PAR_SLOTS], count);
        par_own_st(&lane->epoch, turn.epoch + 1);
        par_own_st(c->busy + par_block(), 0);
    }
}

/* What it does in the others. */
PAR_DEV void par_sentinel_keep(const par_call *c, uint32_t count, int tagged)
{
    par_lane *lane = c->lane + par_block();
    par_turn turn = {par_own_ld(&lane->epoch), 0};
    const par_entry entry = par_enter(c);
    if (tagged)
        turn.stale = par_own_ld(&lane->extent[(turn.epoch - 2) % PAR_SLOTS]);
    par_wait_signals(PAR_RESET);
    if (par_is_keeper(c)) {
        par_fence(); /* the resets, before anything of the next call */
        if (tagged)
            par_tagged_remember(lane, turn, count);
        else
            par_own_st(&lane->extent[turn.epoch % PAR_SLOTS], count);
        par_own_st(&lane->epoch, turn.epoch + 1);
        par_check_entry(c, &entry, turn.epoch);
    }
    par_wait_signals(PAR_DONE);
    if (par_is_keeper(c))
        par_own_st(c->busy + par_block(), 0);
}

/* The vec of the input that a thread sends first. Read before the lane's turn is, so that both are on their way. */
PAR_DEV par_vec par_first_sent(const par_call *c, par_share share, int dtype)
{
    const par_vec none = {{0, 0, 0, 0}};
    return par_thread() < share.count ? par_input(c, share.first + par_thread(), dtype) : none;
}

PAR_DEV par_vec par_first_scattered(const par_call *c, par_share share, int dtype)
{
    const par_vec none = {{0, 0, 0, 0}};
    const par_team t = par_my_team(c);
    const par_range part = par_part(c, share.count, par_next(c, t.team + 1));
    const int mine = t.team + 1 < PAR_WORLD(c) && t.member < part.count;
    return mine ? par_input(c, share.first + part.begin + t.member, dtype) : none;
}

/* One-shot and two-shot with validity in the data. `two` and `tagged` are constant in kernels. */
PAR_DEV void par_sentinel(const par_call *c, int two, int tagged, int dtype)
{
    const par_vec none = {{0, 0, 0, 0}};
    const par_share share = par_lane_share(c);
    /* Two questions, not one with two answers: then the workers' code comes first and in one piece. It is fetched anew
     * by every launch. */
    if (par_is_worker(c)) {
        if (two || tagged) {
            const par_vec raw = tagged ? none : par_first_scattered(c, share, dtype);
            const par_turn turn = par_take_turn(c);
            if (tagged)
                par_tagged_work(c, turn, share, two, dtype);
            else
                par_two_shot_work(c, turn, share, raw, dtype);
        } else {
            const par_vec raw = par_first_sent(c, share, dtype);
            par_one_shot_work(c, par_own_ld(&c->lane[par_block()].epoch), share, raw, dtype);
        }
    }
    if (par_thread_again() >= c->workers) {
        if (two || tagged)
            par_sentinel_keep(c, share.count, tagged);
        else
            par_one_shot_keep(c, share.count);
    }
}

#endif
