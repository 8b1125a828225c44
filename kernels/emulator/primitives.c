/* primitives.c: what kernels/primitives.h declares, as operations of the fibre that runs. */
#include "state.h"

#include <stdlib.h>
#include <string.h>

/* --- shared memory ------------------------------------------------------------------------------------------------ */

static void trace_access(emu_op op, int n, emu_place *const *place, const uint32_t *count, uint32_t ages,
                         const uint32_t *value, const uint16_t *by)
{
    for (int i = 0; i < n; i++) {
        emu_event e = emu_event_now(op);
        e.word = place[i]->word;
        e.value = value[i];
        e.age = ages >> 8 * i & 0xffu;
        e.ages = count[i];
        e.by = by ? by[i] : EMU_NOBODY;
        e.parts = (uint8_t)(i == 0 ? n : 0);
        emu_keep(e);
    }
}

/* Which ages n words get; most have one. */
static uint32_t ages_of(int n, const uint32_t *count, emu_place *const *place, int write)
{
    uint32_t most = 0;
    for (int i = 0; i < n; i++)
        most = count[i] > most ? count[i] : most;
    if (most > 1) {
        emu_turn turn = {emu.unit[emu.now].op, emu.now, 1, 0, 0};
        return choice_ages(&turn, n, count, place, write, emu.calm && !write);
    }
    return 0;
}

static void load(const uint32_t *p, int n, emu_op op, uint32_t *value)
{
    const int me = emu.now;
    emu_place *place[4];
    uint32_t count[4], ages;
    uint16_t by[4];
    int again, nothing_new = 1;
    for (int i = 0; i < n; i++) {
        place[i] = emu_place_of(p + i, emu.unit[me].rank, 0);
        count[i] = mem_read_ages(me, place[i]);
    }
    ages = ages_of(n, count, place, 0);
    for (int i = 0; i < n; i++) {
        emu_write w = mem_read(me, place[i], ages >> 8 * i & 0xffu, op == EMU_OP_ACQUIRE, &again);
        value[i] = w.value;
        by[i] = w.by;
        nothing_new &= again;
        place[i]->watchers |= 1ull << me;
    }
    if (!nothing_new)
        emu_useful();
    else if (op != EMU_OP_OWN_LOAD)
        emu.polling |= 1ull << me;
    if (emu.setup.trace)
        trace_access(op, n, place, count, ages, value, by);
}

static void store(int by, uint32_t *p, int n, emu_op op, const uint32_t *value)
{
    emu_place *place[4];
    uint32_t count[4], ages = 0;
    for (int i = 0; i < n; i++) {
        place[i] = emu_place_of(p + i, by < EMU_FIBRES ? emu.unit[by].rank : by - EMU_HOST_THREAD, 1);
        count[i] = mem_write_ages(by, place[i]);
    }
    if (by < EMU_FIBRES)
        ages = ages_of(n, count, place, 1);
    for (int i = 0; i < n; i++) {
        mem_write(by, place[i], ages >> 8 * i & 0xffu, value[i]);
        emu.polling &= ~place[i]->watchers;
        place[i]->watchers = 0;
    }
    emu_useful();
    if (emu.setup.trace)
        trace_access(op, n, place, count, ages, value, 0);
}

void emu_host_store(int rank, uint32_t *p, uint32_t value)
{
    store(EMU_HOST_THREAD + rank, p, 1, EMU_OP_HOST_STORE, &value);
}

static void aligned(const void *p)
{
    if ((uintptr_t)p % 16 != 0)
        emu_fail("a 16-byte access that is not aligned");
}

uint32_t par_ld(const uint32_t *p)
{
    uint32_t v;
    emu_step(EMU_OTHERS_SEE);
    load(p, 1, EMU_OP_LOAD, &v);
    return v;
}

uint32_t par_ld_acquire(const uint32_t *p)
{
    uint32_t v;
    emu_step(EMU_OTHERS_SEE);
    load(p, 1, EMU_OP_ACQUIRE, &v);
    return v;
}

par_vec par_ld4(const uint32_t *p)
{
    par_vec v;
    emu_step(EMU_OTHERS_SEE);
    aligned(p);
    load(p, 4, EMU_OP_LOAD, v.w);
    return v;
}

void par_st(uint32_t *p, uint32_t v)
{
    emu_step(EMU_OTHERS_SEE);
    store(emu.now, p, 1, EMU_OP_STORE, &v);
}

void par_st4(uint32_t *p, par_vec v)
{
    emu_step(EMU_OTHERS_SEE);
    aligned(p);
    store(emu.now, p, 4, EMU_OP_STORE, v.w);
}

void par_fence(void)
{
    emu_step(EMU_OTHERS_SEE);
    mem_fence(emu.now);
    emu_note(EMU_OP_FENCE);
}

/* --- block barrier ------------------------------------------------------------------------------------------------ */

static void open_gate(const emu_unit *u, emu_gate *g)
{
    mem_barrier(u->first, u->threads);
    for (int i = 0; i < u->threads; i++) {
        emu.unit[u->first + i].generation++;
        emu.ready |= 1ull << (u->first + i);
        emu.polling &= ~(1ull << (u->first + i));
    }
    g->result = g->any;
    g->any = 0;
    g->arrived = 0;
    emu_useful();
}

int par_barrier_or(int any)
{
    emu_unit *u = emu_step(EMU_OTHERS_SEE);
    emu_gate *g = &emu.gate[u->first];
    if (g->gone)
        emu_fail("rank %d: a barrier that a thread of the block has left without", u->rank);
    g->any |= any != 0;
    emu_note(EMU_OP_BARRIER);
    if (++g->arrived == u->threads)
        open_gate(u, g);
    else
        emu_wait_here();
    return g->result;
}

static void open_signals(const emu_unit *u, emu_signals *s)
{
    for (int i = 0; i < u->threads; i++) {
        for (int j = 0; j < u->threads && s->waiting >> i & 1u; j++)
            mem_learn(u->first + i, s->told[j]);
    }
    emu.ready |= s->waiting << u->first;
    emu.polling &= ~(s->waiting << u->first);
    s->signalled = s->waiting = 0;
}

/* Come to the barrier; whether it opens. */
static int arrive(emu_unit *u, uint32_t id, int waits)
{
    const uint64_t me = 1ull << u->thread;
    emu_signals *s = &emu.signals[u->first][id];
    if (id >= EMU_SIGNALS || (s->signalled & me))
        emu_fail("rank %d: thread %d signals again before the others have waited", u->rank, u->thread);
    if (waits)
        s->waiting |= me;
    else
        s->signalled |= me;
    s->told[u->thread] = mem_tell(emu.now);
    emu_note(waits ? EMU_OP_WAIT : EMU_OP_SIGNAL);
    emu_useful();
    if (__builtin_popcountll(s->waiting | s->signalled) < u->threads)
        return 0;
    open_signals(u, s);
    return 1;
}

void par_signal(uint32_t id)
{
    arrive(emu_step(EMU_OTHERS_SEE), id, 0);
}

void par_wait_signals(uint32_t id)
{
    if (!arrive(emu_step(EMU_OTHERS_SEE), id, 1))
        emu_wait_here();
}

/* --- own memory --------------------------------------------------------------------------------------------------- */

uint32_t par_own_ld(const uint32_t *p)
{
    uint32_t v;
    emu_step(0);
    load(p, 1, EMU_OP_OWN_LOAD, &v);
    return v;
}

void par_own_st(uint32_t *p, uint32_t v)
{
    emu_step(0);
    store(emu.now, p, 1, EMU_OP_OWN_STORE, &v);
}

uint32_t par_own_exchange(uint32_t *p, uint32_t v)
{
    emu_place *place;
    uint32_t old;
    emu_step(EMU_OTHERS_SEE);
    place = emu_place_of(p, emu.unit[emu.now].rank, 1);
    old = mem_exchange(emu.now, place, v);
    emu_useful();
    if (emu.setup.trace) {
        emu_event e = emu_event_now(EMU_OP_EXCHANGE);
        e.word = place->word;
        e.value = v;
        emu_keep(e);
    }
    return old;
}

/* --- the message -------------------------------------------------------------------------------------------------- */

void emu_message(int rank, const void *in, void *out, size_t bytes)
{
    if (bytes > 2 * EMU_CELLS)
        abort();
    emu.in[rank] = in;
    emu.out[rank] = out;
    emu.bytes[rank] = bytes;
}

/* Whether a write of another thread comes before this access by block barriers. */
static int ordered(const emu_unit *u, const emu_cell *c)
{
    return c->writer == 0 || c->writer == emu.now + 1 ||
           (emu.unit[c->writer - 1].first == u->first && c->written_at < u->generation);
}

/*
 * The output may be the input, and is one memory with it then. That nobody overwrites what others have yet to read
 * needs no check: it would show in the sum. But what another thread wrote, nobody may touch without a barrier between.
 */
static void touch(const void *p, size_t bytes, int write)
{
    const emu_unit *u = emu_step(0);
    const int r = u->rank, same = emu.in[r] == emu.out[r];
    const size_t at = (size_t)((const char *)p - (write ? emu.out[r] : emu.in[r]));
    if (at > emu.bytes[r] || at + bytes > emu.bytes[r])
        emu_fail("rank %d: access outside the %s", r, write ? "output" : "input");
    for (size_t i = at / 2; i < (at + bytes) / 2 && (write || same); i++) {
        emu_cell *c = &emu.cells[r][i];
        if (!ordered(u, c))
            emu_fail("rank %d: two threads race on element %zu of the message", r, i);
        if (write) {
            c->writer = (uint8_t)(emu.now + 1);
            c->written_at = (uint16_t)u->generation;
        }
    }
}

par_vec par_in4(const void *p)
{
    par_vec v;
    aligned(p);
    touch(p, 16, 0);
    memcpy(&v, p, 16);
    return v;
}

uint32_t par_in_u32(const void *p)
{
    uint32_t v;
    touch(p, 4, 0);
    memcpy(&v, p, 4);
    return v;
}

uint32_t par_in_u16(const void *p)
{
    uint16_t v;
    touch(p, 2, 0);
    memcpy(&v, p, 2);
    return v;
}

void par_out4(void *p, par_vec v)
{
    aligned(p);
    touch(p, 16, 1);
    memcpy(p, &v, 16);
}

void par_out_u32(void *p, uint32_t v)
{
    touch(p, 4, 1);
    memcpy(p, &v, 4);
}

void par_out_u16(void *p, uint32_t v)
{
    uint16_t half = (uint16_t)v;
    touch(p, 2, 1);
    memcpy(p, &half, 2);
}

/* --- who, when ---------------------------------------------------------------------------------------------------- */

uint32_t par_thread(void) { return emu.unit[emu.now].thread; }
uint32_t par_threads(void) { return emu.unit[emu.now].threads; }
uint32_t par_block(void) { return emu.unit[emu.now].block; }
uint32_t par_blocks(void) { return emu.unit[emu.now].blocks; }

uint64_t par_clock_ns(void)
{
    emu_step(0);
    emu.polling |= 1ull << emu.now; /* a loop on the clock alone must let others go on */
    return ++emu.clock;
}

void par_trap(void)
{
    int rank = emu.unit[emu.now].rank;
    emu_step(EMU_OTHERS_SEE);
    emu_note(EMU_OP_TRAP);
    emu_kill(rank);
    emu_leave();
}
