/* engine.c: see engine.h. */
#include "state.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    ARENA_WORDS = 1 << 22,
    SUM = EMU_FIBRES,             /* memory thread that knows what a rank's last kernel knew */
    ROUNDS_PER_JUMP = 48,         /* times that everybody polls in vain before the clock jumps */
    JUMPS = 64                    /* in vain before a wait counts as unbounded */
};

static const uint64_t START_NS = 1ull << 40; /* a GPU's clock is never near 0, which words of bookkeeping start as */

emu_state emu;

/* --- trace and violations ----------------------------------------------------------------------------------------- */

void emu_keep(emu_event e)
{
    if (emu.n_trace == emu.room_trace) {
        emu.room_trace = emu.room_trace ? 2 * emu.room_trace : 1024;
        emu.trace = realloc(emu.trace, emu.room_trace * sizeof *emu.trace);
        if (!emu.trace)
            abort();
    }
    emu.trace[emu.n_trace++] = e;
}

emu_event emu_event_now(emu_op op)
{
    emu_event e = {emu.steps, 0, 0, 0, 1, EMU_NOBODY, (uint8_t)op, 0xff, 0, 0, 1};
    if (emu.now >= 0) {
        e.rank = emu.unit[emu.now].rank;
        e.block = emu.unit[emu.now].block;
        e.thread = emu.unit[emu.now].thread;
    }
    return e;
}

void emu_note(emu_op op)
{
    if (emu.setup.trace)
        emu_keep(emu_event_now(op));
}

static void trace_of(emu_op op, int rank, uint32_t value)
{
    emu_event e = emu_event_now(op);
    e.rank = (uint8_t)rank;
    e.value = value;
    if (emu.setup.trace)
        emu_keep(e);
}

const emu_event *emu_trace(size_t *n)
{
    *n = emu.n_trace;
    return emu.trace;
}

void emu_leave(void)
{
    emu_unit *u = &emu.unit[emu.now];
    emu.now = -1;
    fibre_switch(u->context, emu.home);
}

void emu_fail(const char *format, ...)
{
    va_list list;
    if (!emu.violation[0]) {
        va_start(list, format);
        vsnprintf(emu.violation, sizeof emu.violation, format, list);
        va_end(list);
    }
    if (emu.now >= 0)
        emu_leave();
}

const char *emu_violation(void)
{
    return emu.violation[0] ? emu.violation : 0;
}

/* --- memory ------------------------------------------------------------------------------------------------------- */

uint32_t *emu_add(const emu_region *region)
{
    emu_region *r = &emu.region[emu.regions++];
    if (emu.regions > EMU_REGIONS || emu.words + region->words > ARENA_WORDS)
        abort();
    *r = *region;
    r->base = emu.arena + emu.words;
    emu.words += (region->words + 31) / 32 * 32;
    return r->base;
}

static const emu_region *region_of(uint32_t word)
{
    int low = 0, high = emu.regions;
    while (high - low > 1) {
        int middle = (low + high) / 2;
        if (emu.arena + word < emu.region[middle].base)
            high = middle;
        else
            low = middle;
    }
    return &emu.region[low];
}

/* Called by memory.c at the first use of a word. */
void emu_describe(uint32_t word, uint32_t *value, emu_place *place)
{
    const emu_region *r = region_of(word);
    uint32_t offset = (uint32_t)(emu.arena + word - r->base);
    *value = r->initial;
    place->home = r->home;
    place->readers = r->readers;
    place->writers = r->writers;
    if (offset >= r->words)
        place->readers = place->writers = 0;
    else if (r->refine)
        r->refine(r, offset, place);
}

void emu_name(uint32_t word, char *text, size_t size)
{
    const emu_region *r = region_of(word);
    uint32_t offset = (uint32_t)(emu.arena + word - r->base);
    if (r->print)
        r->print(r, offset, text, size);
    else
        snprintf(text, size, "%s[%d]+%u", r->name, r->owner, offset);
}

void emu_who(int thread, char *text, size_t size)
{
    if (thread == EMU_NOBODY)
        snprintf(text, size, "the start");
    else if (thread >= EMU_HOST_THREAD)
        snprintf(text, size, "host %d", thread - EMU_HOST_THREAD);
    else
        snprintf(text, size, "r%d b%d t%d", emu.unit[thread].rank, emu.unit[thread].block, emu.unit[thread].thread);
}

/* The place at an address that `rank` reads or writes. */
emu_place *emu_place_of(const uint32_t *p, int rank, int write)
{
    uint64_t word = (uint64_t)((const char *)p - (const char *)emu.arena) / 4;
    emu_place *place;
    uint32_t may;
    char name[100];
    if (word >= emu.words)
        emu_fail("access outside all memory");
    place = mem_place((uint32_t)word);
    may = write ? place->writers : place->readers;
    if (!(may >> rank & 1u)) {
        emu_name((uint32_t)word, name, sizeof name);
        emu_fail("rank %d may not %s %s", rank, write ? "write" : "read", name);
    }
    return place;
}

uint32_t emu_value(const uint32_t *p)
{
    const uint32_t word = (uint32_t)(p - emu.arena);
    const emu_place *place = mem_known(word);
    return place ? mem_newest(place)->value : region_of(word)->initial;
}

uint32_t emu_certain(const uint32_t *p)
{
    const uint32_t word = (uint32_t)(p - emu.arena);
    const emu_place *place = mem_known(word);
    int certain = place && (mem_newest(place)->by >= EMU_HOST_THREAD || mem_is_performed(place));
    return certain ? mem_newest(place)->value : region_of(word)->initial;
}

void emu_preset(uint32_t *p, uint32_t value)
{
    mem_place((uint32_t)(p - emu.arena))->kept[0].value = value;
}

/* --- scheduling --------------------------------------------------------------------------------------------------- */

void emu_useful(void)
{
    emu.rounds = emu.jumps = emu.calm = 0;
}

static void jump(void)
{
    emu.clock += emu.setup.timeout_ns / 4 + 1;
    trace_of(EMU_OP_CLOCK, 0xff, (uint32_t)((emu.clock - START_NS) / 1000000u));
    if (++emu.jumps > JUMPS)
        emu_fail("a wait without bound: nobody moves, however late it gets");
}

/* Everybody polls in vain. */
static void quiet(void)
{
    if (emu.setup.trace && !emu.calm)
        emu_note(EMU_OP_CALM);
    emu.polling = 0;
    emu.calm = 1;
    if (++emu.rounds % ROUNDS_PER_JUMP == 0) {
        jump();
        if (emu.events->idle(emu.events->context))
            emu_useful();
    }
}

static int next(int fibre_number, int others_see)
{
    emu_turn turn = {emu.unit[fibre_number].op, fibre_number, others_see, emu.ready, emu.ready & ~emu.polling};
    if (!turn.active) {
        quiet();
        turn.ready = turn.active = emu.ready;
    }
    return choice_next(&turn);
}

static void go(int to)
{
    fibre *from = emu.unit[emu.now].context;
    emu.now = to;
    emu.unit[to].busy = 1;
    fibre_switch(from, emu.unit[to].context);
}

/* Before every operation of a fibre: others may come first. */
emu_unit *emu_step(int others_see)
{
    emu_unit *u = &emu.unit[emu.now];
    int to;
    u->op++;
    if (++emu.steps > emu.setup.most_steps)
        emu_fail("no end after %u steps", emu.setup.most_steps);
    if (++emu.rank_ops[u->rank] == emu.events->fault_at[u->rank]) {
        emu.events->fault(emu.events->context, u->rank);
        if (emu.lost[u->rank])
            emu_leave();
    }
    to = next(emu.now, others_see);
    if (to != emu.now)
        go(to);
    return u;
}

/* The fibre cannot go on: somebody else. */
void emu_wait_here(void)
{
    emu.ready &= ~(1ull << emu.now);
    emu.unit[emu.now].op++; /* this is another decision than the one before the operation */
    if (emu.ready)
        go(next(emu.now, 1));
    else
        emu_leave();
}

static void vanish(int fibre_number)
{
    emu_unit *u = &emu.unit[fibre_number];
    emu.ready &= ~(1ull << fibre_number);
    if (u->busy)
        fibre_restart(u->context);
    u->busy = 0;
}

void emu_kill(int rank)
{
    trace_of(EMU_OP_KILL, rank, 0);
    emu.lost[rank] = 1;
    for (int i = rank * emu.setup.per_rank; i < (rank + 1) * emu.setup.per_rank; i++)
        vanish(i);
    emu.left[rank] = 0;
    emu_useful();
}

int emu_is_lost(int rank) { return emu.lost[rank]; }

/* --- kernels ------------------------------------------------------------------------------------------------------ */

static fibre *entry(void *argument)
{
    emu_unit *u = argument;
    int me = (int)(u - emu.unit), after = -1;
    u->body(u->argument);
    emu_note(EMU_OP_LEAVE);
    emu.ready &= ~(1ull << me);
    mem_end(me, SUM + u->rank);
    emu_useful();
    u->op++;
    if (emu.gate[u->first].arrived)
        emu_fail("rank %d: thread %d has left while others of its block wait at a barrier", u->rank, u->thread);
    emu.gate[u->first].gone++;
    if (--emu.left[u->rank] == 0)
        emu.ended[u->rank] = 1;
    else if (emu.ready)
        after = next(me, 1);
    u->busy = 0;
    emu.now = after;
    if (after >= 0)
        emu.unit[after].busy = 1;
    return after >= 0 ? emu.unit[after].context : emu.home;
}

static void clear_signals(int first)
{
    for (int id = 0; id < EMU_SIGNALS; id++)
        emu.signals[first][id].signalled = emu.signals[first][id].waiting = 0;
}

void emu_launch(int rank, int blocks, int threads, emu_body body, const void *argument)
{
    int first = rank * emu.setup.per_rank;
    if (blocks * threads > emu.setup.per_rank)
        abort();
    trace_of(EMU_OP_LAUNCH, rank, (uint32_t)blocks << 16 | (uint32_t)threads);
    for (int i = 0; i < blocks * threads; i++) {
        emu_unit *u = &emu.unit[first + i];
        u->body = body;
        u->argument = argument;
        u->generation = 0;
        u->rank = (uint8_t)rank;
        u->block = (uint8_t)(i / threads);
        u->thread = (uint8_t)(i % threads);
        u->first = (uint8_t)(first + i / threads * threads);
        u->threads = (uint8_t)threads;
        u->blocks = (uint8_t)blocks;
        mem_begin(first + i, SUM + rank);
        emu.ready |= 1ull << (first + i);
        memset(&emu.gate[first + i], 0, sizeof(emu_gate));
        clear_signals(first + i);
    }
    emu.left[rank] = blocks * threads;
    memset(emu.cells[rank], 0, sizeof(emu_cell) * (emu.bytes[rank] + 1) / 2);
}

static void tell_ended(void)
{
    for (int r = 0; r < emu.setup.ranks; r++) {
        if (emu.ended[r] && !emu.violation[0]) {
            emu.ended[r] = 0;
            emu.events->ended(emu.events->context, r);
        }
    }
}

static int anybody_left(void)
{
    int left = 0;
    for (int r = 0; r < emu.setup.ranks; r++)
        left += emu.left[r];
    return left;
}

void emu_run(const emu_events *events)
{
    int more = 1, from = 0;
    emu.events = events;
    while (more && !emu.violation[0]) {
        tell_ended();
        if (emu.ready && !emu.violation[0]) {
            int to;
            emu.unit[from].op++;
            to = next(from, 1);
            from = emu.now = to;
            if (!emu.violation[0]) {
                emu.unit[to].busy = 1;
                fibre_switch(emu.home, emu.unit[to].context);
            }
            emu.now = -1;
        } else if (!emu.violation[0]) {
            if (anybody_left())
                emu_fail("a block barrier that not all threads of the block reach");
            emu.clock += emu.setup.timeout_ns / 4 + 1;
            more = emu.events->idle(emu.events->context);
        }
    }
    for (int i = 0; i < EMU_FIBRES; i++)
        vanish(i);
}

static int make_fibres(void)
{
    int bad = 0;
    emu.home = fibre_of_caller();
    emu.arena = aligned_alloc(128, 4 * ARENA_WORDS); /* never touched: addresses only */
    bad = !emu.home || !emu.arena;
    for (int i = 0; i < EMU_FIBRES && !bad; i++) {
        emu.unit[i].context = fibre_new(entry, &emu.unit[i]);
        bad = !emu.unit[i].context;
    }
    return bad ? -1 : 0;
}

int emu_begin(const emu_setup *setup)
{
    int bad = emu.home ? 0 : make_fibres();
    if (setup->ranks * setup->per_rank > EMU_FIBRES)
        abort();
    emu.setup = *setup;
    emu.now = -1;
    emu.ready = emu.polling = emu.steps = 0;
    emu.clock = START_NS;
    emu.regions = 0;
    emu.words = 0;
    emu.n_trace = 0;
    emu.violation[0] = 0;
    emu_useful();
    for (int i = 0; i < EMU_FIBRES; i++)
        emu.unit[i].op = 0;
    memset(emu.rank_ops, 0, sizeof emu.rank_ops);
    memset(emu.left, 0, sizeof emu.left);
    memset(emu.lost, 0, sizeof emu.lost);
    memset(emu.ended, 0, sizeof emu.ended);
    memset(emu.bytes, 0, sizeof emu.bytes);
    choice_begin(setup->mode, setup->seed, setup->given, setup->log, setup->ranks, setup->per_rank);
    return bad ? -1 : mem_reset(ARENA_WORDS, setup->without);
}

void emu_end(void)
{
    for (int i = 0; i < EMU_FIBRES; i++)
        fibre_free(emu.unit[i].context);
    fibre_free(emu.home);
    free(emu.arena);
    free(emu.trace);
    mem_free();
    memset(&emu, 0, sizeof emu);
}
