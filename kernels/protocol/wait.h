/*
 * wait.h: waiting, and failing: how long a wait may last, who looks for an abort, what a rank that fails leaves behind,
 * and what is checked at entry. No wait is without a bound.
 */
#ifndef PAR_WAIT_H
#define PAR_WAIT_H

#include "place.h"

#ifndef PAR_PATIENCE
#define PAR_PATIENCE 256u /* fruitless polls between two looks at clock and abort words; a power of two */
#endif

/* What a thread waits for; starts as zero but for the fields that say so. */
typedef struct {
    uint32_t late;
    uint64_t since;
    uint32_t phase, epoch, expected; /* set by who waits */
} par_wait;

/* Describe a wait in host memory; the state word comes last. */
PAR_COLD void par_note(const par_call *c, uint32_t *note, const par_wait *w, uint32_t error, uint32_t peer,
                       uint32_t seen, uint64_t waited_ns)
{
    par_st(note + PAR_NOTE_ERROR, error);
    par_st(note + PAR_NOTE_PEER, peer);
    par_st(note + PAR_NOTE_ALGORITHM, c->algorithm);
    par_st(note + PAR_NOTE_PHASE, w->phase);
    par_st(note + PAR_NOTE_LANE, par_block());
    par_st(note + PAR_NOTE_EPOCH, w->epoch);
    par_st(note + PAR_NOTE_EXPECTED, w->expected);
    par_st(note + PAR_NOTE_SEEN, seen);
    par_st(note + PAR_NOTE_WAITED_MS, (uint32_t)(waited_ns / 1000000u));
    par_fence();
    par_st(note + PAR_NOTE_STATE, 1);
}

/* Abort word: the error and whom it is about. 0 means no abort. */
#define PAR_ABORT(error, peer) ((uint32_t)(error) | ((peer) + 1u) << 8)

/*
 * This rank has failed: leave a note, tell everybody, and end. The first thread does all that. Others just leave their
 * loops: a trap of theirs would end the kernel before the note is written.
 */
PAR_COLD void par_fail(const par_call *c, const par_wait *w, uint32_t error, uint32_t peer, uint32_t seen,
                       uint64_t waited_ns)
{
    if (par_own_exchange(c->claim + PAR_CLAIM_FAILED, 1) == 0) {
        par_note(c, c->failed, w, error, peer, seen, waited_ns);
        par_st(c->abort_word + c->rank, PAR_ABORT(error, peer));
        par_fence();
        par_st(c->claim + PAR_CLAIM_DEAD, 1); /* who sees it may trap at once */
        if (c->trap)
            par_trap();
    }
}

/* Whether somebody has aborted; fails this rank too if so. */
PAR_COLD int par_aborted(const par_call *c, const par_wait *w, uint32_t seen, uint64_t waited_ns)
{
    uint32_t word = 0;
    for (uint32_t p = 0; p < PAR_WORLD(c) && word == 0; p++)
        word = par_ld(c->abort_word + p);
    if (word != 0)
        par_fail(c, w, word & 0xffu, (word >> 8) - 1u, seen, waited_ns);
    return word != 0;
}

/*
 * Whether to give up for somebody else's sake. Thousands of threads may ask, and reads of one word of host memory go
 * one after the other, so once in a millisecond or two one of them looks there; the others look at the rank's own word.
 */
PAR_COLD int par_is_over(const par_call *c, const par_wait *w, uint32_t seen, uint64_t now, uint64_t waited_ns)
{
    uint32_t turn = (uint32_t)(now >> 20);
    int over = par_ld(c->claim + PAR_CLAIM_DEAD) != 0;
    if (!over && par_ld(c->claim + PAR_CLAIM_LOOK) != turn && par_own_exchange(c->claim + PAR_CLAIM_LOOK, turn) != turn)
        over = par_aborted(c, w, seen, waited_ns);
    return over;
}

/*
 * A limit for this wait. Who waits for results waits longer: if they are late because their owner waits for a third
 * rank, then some thread of ours waits for that rank too, and it shall be the one to name it.
 */
PAR_DEV uint64_t par_limit(const par_wait *w, uint64_t limit_ns)
{
    return w->phase == 2 ? limit_ns + limit_ns / 16 : limit_ns;
}

/* A look around after many fruitless polls. Non-zero: give up, everything is said. */
PAR_COLD int par_look(const par_call *c, par_wait *w, uint32_t peer, uint32_t seen)
{
    uint64_t now = par_clock_ns(), waited;
    int over = 0;
    if (w->since == 0)
        w->since = now;
    waited = now - w->since;
    over = par_is_over(c, w, seen, now, waited);
    if (!over && waited > par_limit(w, c->timeout_ns)) {
        par_fail(c, w, (uint32_t)-PAR_ERR_TIMEOUT, peer, seen, waited);
        over = 1;
    } else if (!over && waited > par_limit(w, c->late_ns) && !w->late) {
        const uint32_t turn = (uint32_t)(now >> 33); /* one note in eight seconds is enough */
        w->late = 1;
        if (par_own_exchange(c->claim + PAR_CLAIM_LATE, turn) != turn)
            par_note(c, c->late, w, (uint32_t)-PAR_ERR_TIMEOUT, peer, seen, waited);
    }
    return over;
}

/* To be called after every fruitless poll; counts them in *spins. */
PAR_DEV int par_give_up(const par_call *c, par_wait *w, uint32_t *spins, uint32_t peer, uint32_t seen)
{
    return (++*spins % PAR_PATIENCE) == 0 && par_look(c, w, peer, seen);
}

/* Tests: be late. */
PAR_COLD void par_dawdle(const par_call *c, uint32_t epoch)
{
    uint64_t start = par_clock_ns(), wait = c->delay_ns;
    if (c->jitter_ns) {
        uint32_t h = (epoch * 0x9e3779b9u) ^ (par_block() * 0x85ebca6bu) ^ (c->rank * 0xc2b2ae35u);
        h = (h ^ h >> 15) * 0x2c1b3c6du;
        h = (h ^ h >> 12) * 0x297a2d39u;
        wait += (h ^ h >> 15) % c->jitter_ns;
    }
    while (par_clock_ns() - start < wait && par_ld(c->abort_word + c->rank) == 0)
        ;
}

/*
 * The housekeeper at entry: is the lane free, is the communicator alive? A look into host memory takes longer than a
 * short call, and a fence waits for it, so at entry, too, one thread of a rank looks there once in a millisecond or
 * two; the others read what it found in the rank's own word. Nobody depends on it: who waits for a rank that has
 * aborted looks. The workers do not wait for the answer: what they send meanwhile goes to memory that is still mapped.
 */
typedef struct { uint32_t busy, dead, look; } par_entry;

PAR_DEV par_entry par_enter(const par_call *c)
{
    par_entry e = {0, 0, 0};
    if (!par_is_keeper(c))
        return e;
    e.busy = par_own_exchange(c->busy + par_block(), 1);
    e.dead = par_ld(c->claim + PAR_CLAIM_DEAD);
    e.look = par_ld(c->claim + PAR_CLAIM_LOOK);
    return e;
}

PAR_DEV void par_check_entry(const par_call *c, const par_entry *e, uint32_t epoch)
{
    par_wait w = {0, 0, 0, epoch, 0};
    if (e->dead) {
        if (c->trap)
            par_trap();
    } else if (e->busy) {
        par_fail(c, &w, (uint32_t)-PAR_ERR_OVERLAP, c->rank, 1, 0);
    } else if (par_block() == 0) {
        const uint64_t now = par_clock_ns();
        if (e->look != (uint32_t)(now >> 20))
            par_is_over(c, &w, 0, now, 0);
    }
}

#endif
