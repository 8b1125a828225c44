/*
 * protocol.h: the four protocols, as every thread of a lane runs them.
 *
 * A lane is one block. Threads 0..workers-1 move data, the next one keeps house (fences, flags, bookkeeping, checks at
 * entry), so that no thread that moves data ever waits for a fence. docs/memory-model.md says why each protocol is
 * sound and under which assumptions; in short:
 *
 * Sentinel. A slot is filled with PAR_EMPTY. The writer stores words that are never PAR_EMPTY, the reader polls each
 * word until it is something else: no flag, no fence, no order needed, only that a 32-bit element arrives whole. Slots
 * are used in turn by the lane's epoch e. Call e resets slot e-2, exactly as far as it was written then (extent), and
 * fences before it ends. A peer that writes or polls that slot again is in call e+2; it has seen a word of ours
 * from call e+1, which we sent after that fence. And nobody still reads what we reset: we are in call e, so each peer
 * has sent us a word of e-1, so it has left e-2. Both need that every call of a lane brings a word from every peer,
 * which is why a two-shot lane has at least as many vecs as there are ranks.
 *
 * Tagged. The same, but a bit of each word tells this use of a slot from the last one, so that a reset is needed only
 * when the size changes. For host memory, where resets cost.
 *
 * Chunked. A lane goes in steps, numbered on through all calls. In step s it sends a tile, waits until every peer has
 * done step s-1 (one flag per lane and peer, which holds the number of steps done), and works on what the peers wrote
 * in step s-1; at the end of the part that writes the workers signal, and the housekeeper fences and sets the flag. A
 * slot is written again four steps later. When we send in step s, our last wait was in step s-1, or, when s-1 began a
 * call (and did not wait), in step s-2; so every peer has done step s-3, in which it read what was written in s-4.
 */
#ifndef PAR_PROTOCOL_H
#define PAR_PROTOCOL_H

#include "call.h"
#include "numerics.h"

#ifndef PAR_PATIENCE
#define PAR_PATIENCE 256u /* fruitless polls between two looks at clock and abort words; a power of two */
#endif

#ifndef PAR_WORLD
#define PAR_WORLD(c) ((c)->world) /* a constant in the kernels for one world size */
#define PAR_PAIR 0                /* whether that is known to be 2 */
#else
#define PAR_PAIR (PAR_WORLD(0) == 2u)
#endif

#define PAR_BATCH 2u /* vecs that a thread has in flight where it moves several */

PAR_DEV int par_is_worker(const par_call *c) { return par_thread() < c->workers; }
PAR_DEV int par_is_keeper(const par_call *c) { return par_thread() == c->workers; }

/* --- where things are --------------------------------------------------------------------------------------------- */

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

/* --- input and output --------------------------------------------------------------------------------------------- */

/* The 16 bytes at byte `at`, element by element; zero behind the end. */
PAR_COLD par_vec par_input_slow(const par_call *c, uint64_t at, int dtype)
{
    const char *in = (const char *)c->in;
    par_vec v = {{0, 0, 0, 0}};
    for (uint32_t b = 0; b < 16 && at + b < c->bytes; b += dtype == PAR_FP32 ? 4 : 2) {
        if (dtype == PAR_FP32)
            v.w[b / 4] = par_in_u32(in + at + b);
        else
            v.w[b / 4] |= par_in_u16(in + at + b) << 8 * (b & 2u);
    }
    return v;
}

PAR_COLD void par_output_slow(const par_call *c, uint64_t at, par_vec v, int dtype)
{
    char *out = (char *)c->out;
    for (uint32_t b = 0; b < 16 && at + b < c->bytes; b += dtype == PAR_FP32 ? 4 : 2) {
        if (dtype == PAR_FP32)
            par_out_u32(out + at + b, v.w[b / 4]);
        else
            par_out_u16(out + at + b, v.w[b / 4] >> 8 * (b & 2u));
    }
}

/* Vec i of the input, as it is. */
PAR_DEV par_vec par_input(const par_call *c, uint32_t i, int dtype)
{
    if (i < c->whole_in)
        return par_in4((const char *)c->in + 16ull * i);
    return par_input_slow(c, 16ull * i, dtype);
}

PAR_DEV void par_output(const par_call *c, uint32_t i, par_vec v, int dtype)
{
    if (i < c->whole_out)
        par_out4((char *)c->out + 16ull * i, v);
    else
        par_output_slow(c, 16ull * i, v, dtype);
}

/* --- waiting and failing ------------------------------------------------------------------------------------------ */

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


/* --- receiving ---------------------------------------------------------------------------------------------------- */

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

/* --- moving ------------------------------------------------------------------------------------------------------- */

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

enum { PAR_SENT = 1, PAR_RESET = 1, PAR_STEP = 1, PAR_DONE = 2 }; /* what workers signal to the housekeeper */

/* --- sentinel ----------------------------------------------------------------------------------------------------- */

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

/* --- tagged ------------------------------------------------------------------------------------------------------- */

/*
 * Host memory only, where a reset costs as much as a message. Bit 0 of every word says in which use of the slot it was
 * written, odd or even; the bits it displaces travel in a word of their own per item. So what the last use left counts
 * as empty, and nothing needs a reset as long as the size stays. When two uses of a slot differ in size, all of it is
 * emptied as in the plain protocol, two calls later. PAR_EMPTY is no word of either parity: with clean data, no word
 * has a negative NaN in its upper half.
 */

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

/* --- plain and tagged --------------------------------------------------------------------------------------------- */

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

/* --- chunked ------------------------------------------------------------------------------------------------------ */

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

/* --- entry points ------------------------------------------------------------------------------------------------- */

PAR_DEV void par_plain_one_shot(const par_call *call, int dtype) { par_sentinel(call, 0, 0, dtype); }
PAR_DEV void par_plain_two_shot(const par_call *call, int dtype) { par_sentinel(call, 1, 0, dtype); }
PAR_DEV void par_tagged_one_shot(const par_call *call, int dtype) { par_sentinel(call, 0, 1, dtype); }
PAR_DEV void par_tagged_two_shot(const par_call *call, int dtype) { par_sentinel(call, 1, 1, dtype); }
PAR_DEV void par_chunked_one_shot(const par_call *call, int dtype) { par_chunked(call, 0, dtype); }
PAR_DEV void par_chunked_two_shot(const par_call *call, int dtype) { par_chunked(call, 1, dtype); }

/* Plain or tagged, as the call says. */
PAR_DEV void par_sentinel_one_shot(const par_call *call, int dtype) { par_sentinel(call, 0, (int)call->tagged, dtype); }
PAR_DEV void par_sentinel_two_shot(const par_call *call, int dtype) { par_sentinel(call, 1, (int)call->tagged, dtype); }

#endif
