/* engine.c: see engine.h. */
#include "engine.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fibre.h"

enum {
    REGIONS = 512,
    ARENA_WORDS = 1 << 22,
    SUM = EMU_FIBRES,             /* memory thread that knows what a rank's last kernel knew */
    HOST = EMU_FIBRES + EMU_RANKS, /* memory thread of a rank's host */
    OTHERS_SEE = 1,               /* an operation on memory or barriers that other threads use */
    SIGNALS = 4,                  /* of a block, by id */
    ROUNDS_PER_JUMP = 48,         /* times that everybody polls in vain before the clock jumps */
    JUMPS = 64                    /* in vain before a wait counts as unbounded */
};

static const uint64_t START_NS = 1ull << 40; /* a GPU's clock is never near 0, which words of bookkeeping start as */

typedef struct {
    fibre *context;
    emu_body body;
    const void *argument;
    uint32_t op;
    uint32_t generation; /* block barriers passed in this kernel */
    uint8_t rank, block, thread;
    uint8_t first, threads; /* fibre of the block's thread 0; threads of the block */
    uint8_t blocks;
    uint8_t busy;           /* has a context that is not at the start of entry() */
} unit;

typedef struct { uint32_t arrived, gone; int any, result; } gate; /* a block's barrier, at the block's first unit */

/* A barrier at which some only signal and others wait, by threads of the block; at the block's first unit. */
typedef struct { uint64_t signalled, waiting; uint32_t told[EMU_FIBRES]; } signals;

/* Last write to a 16-bit unit of a message in this kernel: fibre + 1 and the barriers it had passed. */
typedef struct { uint8_t writer; uint16_t written_at; } cell;

static struct {
    emu_setup setup;
    const emu_events *events;
    fibre *home;
    unit unit[EMU_FIBRES];
    gate gate[EMU_FIBRES];
    signals signals[EMU_FIBRES][SIGNALS];
    int now; /* fibre that runs, -1: none */
    uint64_t ready, polling;
    uint64_t steps, clock;
    uint32_t rounds, jumps, calm; /* since something useful happened */
    uint32_t rank_ops[EMU_RANKS];
    int left[EMU_RANKS]; /* threads of the rank's kernel that still run */
    uint8_t lost[EMU_RANKS], ended[EMU_RANKS];
    emu_region region[REGIONS];
    int regions;
    uint32_t *arena;
    uint32_t words;
    const char *in[EMU_RANKS], *out[EMU_RANKS];
    size_t bytes[EMU_RANKS];
    cell cells[EMU_RANKS][EMU_CELLS];
    char violation[512];
    emu_event *trace;
    size_t n_trace, room_trace;
} E;

/* --- trace and violations ----------------------------------------------------------------------------------------- */

static void keep(emu_event e)
{
    if (E.n_trace == E.room_trace) {
        E.room_trace = E.room_trace ? 2 * E.room_trace : 1024;
        E.trace = realloc(E.trace, E.room_trace * sizeof *E.trace);
        if (!E.trace)
            abort();
    }
    E.trace[E.n_trace++] = e;
}

static emu_event event(emu_op op)
{
    emu_event e = {E.steps, 0, 0, 0, 1, EMU_NOBODY, (uint8_t)op, 0xff, 0, 0, 1};
    if (E.now >= 0) {
        e.rank = E.unit[E.now].rank;
        e.block = E.unit[E.now].block;
        e.thread = E.unit[E.now].thread;
    }
    return e;
}

static void trace(emu_op op)
{
    if (E.setup.trace)
        keep(event(op));
}

static void trace_of(emu_op op, int rank, uint32_t value)
{
    emu_event e = event(op);
    e.rank = (uint8_t)rank;
    e.value = value;
    if (E.setup.trace)
        keep(e);
}

const emu_event *emu_trace(size_t *n)
{
    *n = E.n_trace;
    return E.trace;
}

static void leave(void)
{
    unit *u = &E.unit[E.now];
    E.now = -1;
    fibre_switch(u->context, E.home);
}

void emu_fail(const char *format, ...)
{
    va_list list;
    if (!E.violation[0]) {
        va_start(list, format);
        vsnprintf(E.violation, sizeof E.violation, format, list);
        va_end(list);
    }
    if (E.now >= 0)
        leave();
}

const char *emu_violation(void)
{
    return E.violation[0] ? E.violation : 0;
}

/* --- memory ------------------------------------------------------------------------------------------------------- */

uint32_t *emu_add(const emu_region *region)
{
    emu_region *r = &E.region[E.regions++];
    if (E.regions > REGIONS || E.words + region->words > ARENA_WORDS)
        abort();
    *r = *region;
    r->base = E.arena + E.words;
    E.words += (region->words + 31) / 32 * 32;
    return r->base;
}

static const emu_region *region_of(uint32_t word)
{
    int low = 0, high = E.regions;
    while (high - low > 1) {
        int middle = (low + high) / 2;
        if (E.arena + word < E.region[middle].base)
            high = middle;
        else
            low = middle;
    }
    return &E.region[low];
}

/* Called by memory.c at the first use of a word. */
void emu_describe(uint32_t word, uint32_t *value, emu_place *place)
{
    const emu_region *r = region_of(word);
    uint32_t offset = (uint32_t)(E.arena + word - r->base);
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
    uint32_t offset = (uint32_t)(E.arena + word - r->base);
    if (r->print)
        r->print(r, offset, text, size);
    else
        snprintf(text, size, "%s[%d]+%u", r->name, r->owner, offset);
}

void emu_who(int thread, char *text, size_t size)
{
    if (thread == EMU_NOBODY)
        snprintf(text, size, "the start");
    else if (thread >= HOST)
        snprintf(text, size, "host %d", thread - HOST);
    else
        snprintf(text, size, "r%d b%d t%d", E.unit[thread].rank, E.unit[thread].block, E.unit[thread].thread);
}

/* The place at an address that `rank` reads or writes. */
static emu_place *place_of(const uint32_t *p, int rank, int write)
{
    uint64_t word = (uint64_t)((const char *)p - (const char *)E.arena) / 4;
    emu_place *place;
    uint32_t may;
    char name[100];
    if (word >= E.words)
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
    const uint32_t word = (uint32_t)(p - E.arena);
    const emu_place *place = mem_known(word);
    return place ? mem_newest(place)->value : region_of(word)->initial;
}

uint32_t emu_certain(const uint32_t *p)
{
    const uint32_t word = (uint32_t)(p - E.arena);
    const emu_place *place = mem_known(word);
    int certain = place && (mem_newest(place)->by >= HOST || mem_is_performed(place));
    return certain ? mem_newest(place)->value : region_of(word)->initial;
}

void emu_preset(uint32_t *p, uint32_t value)
{
    mem_place((uint32_t)(p - E.arena))->kept[0].value = value;
}

/* --- scheduling --------------------------------------------------------------------------------------------------- */

static void useful(void)
{
    E.rounds = E.jumps = E.calm = 0;
}

static void jump(void)
{
    E.clock += E.setup.timeout_ns / 4 + 1;
    trace_of(EMU_OP_CLOCK, 0xff, (uint32_t)((E.clock - START_NS) / 1000000u));
    if (++E.jumps > JUMPS)
        emu_fail("a wait without bound: nobody moves, however late it gets");
}

/* Everybody polls in vain. */
static void quiet(void)
{
    if (E.setup.trace && !E.calm)
        trace(EMU_OP_CALM);
    E.polling = 0;
    E.calm = 1;
    if (++E.rounds % ROUNDS_PER_JUMP == 0) {
        jump();
        if (E.events->idle(E.events->context))
            useful();
    }
}

static int next(int fibre_number, int others_see)
{
    emu_turn turn = {E.unit[fibre_number].op, fibre_number, others_see, E.ready, E.ready & ~E.polling};
    if (!turn.active) {
        quiet();
        turn.ready = turn.active = E.ready;
    }
    return choice_next(&turn);
}

static void go(int to)
{
    fibre *from = E.unit[E.now].context;
    E.now = to;
    E.unit[to].busy = 1;
    fibre_switch(from, E.unit[to].context);
}

/* Before every operation of a fibre: others may come first. */
static unit *step(int others_see)
{
    unit *u = &E.unit[E.now];
    int to;
    u->op++;
    if (++E.steps > E.setup.most_steps)
        emu_fail("no end after %u steps", E.setup.most_steps);
    if (++E.rank_ops[u->rank] == E.events->fault_at[u->rank]) {
        E.events->fault(E.events->context, u->rank);
        if (E.lost[u->rank])
            leave();
    }
    to = next(E.now, others_see);
    if (to != E.now)
        go(to);
    return u;
}

/* The fibre cannot go on: somebody else. */
static void wait_here(void)
{
    E.ready &= ~(1ull << E.now);
    E.unit[E.now].op++; /* this is another decision than the one before the operation */
    if (E.ready)
        go(next(E.now, 1));
    else
        leave();
}

static void vanish(int fibre_number)
{
    unit *u = &E.unit[fibre_number];
    E.ready &= ~(1ull << fibre_number);
    if (u->busy)
        fibre_restart(u->context);
    u->busy = 0;
}

void emu_kill(int rank)
{
    trace_of(EMU_OP_KILL, rank, 0);
    E.lost[rank] = 1;
    for (int i = rank * E.setup.per_rank; i < (rank + 1) * E.setup.per_rank; i++)
        vanish(i);
    E.left[rank] = 0;
    useful();
}

int emu_is_lost(int rank) { return E.lost[rank]; }

/* --- kernels ------------------------------------------------------------------------------------------------------ */

static fibre *entry(void *argument)
{
    unit *u = argument;
    int me = (int)(u - E.unit), after = -1;
    u->body(u->argument);
    trace(EMU_OP_LEAVE);
    E.ready &= ~(1ull << me);
    mem_end(me, SUM + u->rank);
    useful();
    u->op++;
    if (E.gate[u->first].arrived)
        emu_fail("rank %d: thread %d has left while others of its block wait at a barrier", u->rank, u->thread);
    E.gate[u->first].gone++;
    if (--E.left[u->rank] == 0)
        E.ended[u->rank] = 1;
    else if (E.ready)
        after = next(me, 1);
    u->busy = 0;
    E.now = after;
    if (after >= 0)
        E.unit[after].busy = 1;
    return after >= 0 ? E.unit[after].context : E.home;
}

static void clear_signals(int first)
{
    for (int id = 0; id < SIGNALS; id++)
        E.signals[first][id].signalled = E.signals[first][id].waiting = 0;
}

void emu_launch(int rank, int blocks, int threads, emu_body body, const void *argument)
{
    int first = rank * E.setup.per_rank;
    if (blocks * threads > E.setup.per_rank)
        abort();
    trace_of(EMU_OP_LAUNCH, rank, (uint32_t)blocks << 16 | (uint32_t)threads);
    for (int i = 0; i < blocks * threads; i++) {
        unit *u = &E.unit[first + i];
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
        E.ready |= 1ull << (first + i);
        memset(&E.gate[first + i], 0, sizeof(gate));
        clear_signals(first + i);
    }
    E.left[rank] = blocks * threads;
    memset(E.cells[rank], 0, sizeof(cell) * (E.bytes[rank] + 1) / 2);
}

static void tell_ended(void)
{
    for (int r = 0; r < E.setup.ranks; r++) {
        if (E.ended[r] && !E.violation[0]) {
            E.ended[r] = 0;
            E.events->ended(E.events->context, r);
        }
    }
}

static int anybody_left(void)
{
    int left = 0;
    for (int r = 0; r < E.setup.ranks; r++)
        left += E.left[r];
    return left;
}

void emu_run(const emu_events *events)
{
    int more = 1, from = 0;
    E.events = events;
    while (more && !E.violation[0]) {
        tell_ended();
        if (E.ready && !E.violation[0]) {
            int to;
            E.unit[from].op++;
            to = next(from, 1);
            from = E.now = to;
            if (!E.violation[0]) {
                E.unit[to].busy = 1;
                fibre_switch(E.home, E.unit[to].context);
            }
            E.now = -1;
        } else if (!E.violation[0]) {
            if (anybody_left())
                emu_fail("a block barrier that not all threads of the block reach");
            E.clock += E.setup.timeout_ns / 4 + 1;
            more = E.events->idle(E.events->context);
        }
    }
    for (int i = 0; i < EMU_FIBRES; i++)
        vanish(i);
}

static int make_fibres(void)
{
    int bad = 0;
    E.home = fibre_of_caller();
    E.arena = aligned_alloc(128, 4 * ARENA_WORDS); /* never touched: addresses only */
    bad = !E.home || !E.arena;
    for (int i = 0; i < EMU_FIBRES && !bad; i++) {
        E.unit[i].context = fibre_new(entry, &E.unit[i]);
        bad = !E.unit[i].context;
    }
    return bad ? -1 : 0;
}

int emu_begin(const emu_setup *setup)
{
    int bad = E.home ? 0 : make_fibres();
    if (setup->ranks * setup->per_rank > EMU_FIBRES)
        abort();
    E.setup = *setup;
    E.now = -1;
    E.ready = E.polling = E.steps = 0;
    E.clock = START_NS;
    E.regions = 0;
    E.words = 0;
    E.n_trace = 0;
    E.violation[0] = 0;
    useful();
    for (int i = 0; i < EMU_FIBRES; i++)
        E.unit[i].op = 0;
    memset(E.rank_ops, 0, sizeof E.rank_ops);
    memset(E.left, 0, sizeof E.left);
    memset(E.lost, 0, sizeof E.lost);
    memset(E.ended, 0, sizeof E.ended);
    memset(E.bytes, 0, sizeof E.bytes);
    choice_begin(setup->mode, setup->seed, setup->given, setup->log, setup->ranks, setup->per_rank);
    return bad ? -1 : mem_reset(ARENA_WORDS, setup->without);
}

void emu_end(void)
{
    for (int i = 0; i < EMU_FIBRES; i++)
        fibre_free(E.unit[i].context);
    fibre_free(E.home);
    free(E.arena);
    free(E.trace);
    mem_free();
    memset(&E, 0, sizeof E);
}

/* --- primitives: shared memory ------------------------------------------------------------------------------------ */

static void trace_access(emu_op op, int n, emu_place *const *place, const uint32_t *count, uint32_t ages,
                         const uint32_t *value, const uint16_t *by)
{
    for (int i = 0; i < n; i++) {
        emu_event e = event(op);
        e.word = place[i]->word;
        e.value = value[i];
        e.age = ages >> 8 * i & 0xffu;
        e.ages = count[i];
        e.by = by ? by[i] : EMU_NOBODY;
        e.parts = (uint8_t)(i == 0 ? n : 0);
        keep(e);
    }
}

/* Which ages n words get; most have one. */
static uint32_t ages_of(int n, const uint32_t *count, emu_place *const *place, int write)
{
    uint32_t most = 0;
    for (int i = 0; i < n; i++)
        most = count[i] > most ? count[i] : most;
    if (most > 1) {
        emu_turn turn = {E.unit[E.now].op, E.now, 1, 0, 0};
        return choice_ages(&turn, n, count, place, write, E.calm && !write);
    }
    return 0;
}

static void load(const uint32_t *p, int n, emu_op op, uint32_t *value)
{
    const int me = E.now;
    emu_place *place[4];
    uint32_t count[4], ages;
    uint16_t by[4];
    int again, nothing_new = 1;
    for (int i = 0; i < n; i++) {
        place[i] = place_of(p + i, E.unit[me].rank, 0);
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
        useful();
    else if (op != EMU_OP_OWN_LOAD)
        E.polling |= 1ull << me;
    if (E.setup.trace)
        trace_access(op, n, place, count, ages, value, by);
}

static void store(int by, uint32_t *p, int n, emu_op op, const uint32_t *value)
{
    emu_place *place[4];
    uint32_t count[4], ages = 0;
    for (int i = 0; i < n; i++) {
        place[i] = place_of(p + i, by < EMU_FIBRES ? E.unit[by].rank : by - HOST, 1);
        count[i] = mem_write_ages(by, place[i]);
    }
    if (by < EMU_FIBRES)
        ages = ages_of(n, count, place, 1);
    for (int i = 0; i < n; i++) {
        mem_write(by, place[i], ages >> 8 * i & 0xffu, value[i]);
        E.polling &= ~place[i]->watchers;
        place[i]->watchers = 0;
    }
    useful();
    if (E.setup.trace)
        trace_access(op, n, place, count, ages, value, 0);
}

void emu_host_store(int rank, uint32_t *p, uint32_t value)
{
    store(HOST + rank, p, 1, EMU_OP_HOST_STORE, &value);
}

static void aligned(const void *p)
{
    if ((uintptr_t)p % 16 != 0)
        emu_fail("a 16-byte access that is not aligned");
}

uint32_t par_ld(const uint32_t *p)
{
    uint32_t v;
    step(OTHERS_SEE);
    load(p, 1, EMU_OP_LOAD, &v);
    return v;
}

uint32_t par_ld_acquire(const uint32_t *p)
{
    uint32_t v;
    step(OTHERS_SEE);
    load(p, 1, EMU_OP_ACQUIRE, &v);
    return v;
}

par_vec par_ld4(const uint32_t *p)
{
    par_vec v;
    step(OTHERS_SEE);
    aligned(p);
    load(p, 4, EMU_OP_LOAD, v.w);
    return v;
}

void par_st(uint32_t *p, uint32_t v)
{
    step(OTHERS_SEE);
    store(E.now, p, 1, EMU_OP_STORE, &v);
}

void par_st4(uint32_t *p, par_vec v)
{
    step(OTHERS_SEE);
    aligned(p);
    store(E.now, p, 4, EMU_OP_STORE, v.w);
}

void par_fence(void)
{
    step(OTHERS_SEE);
    mem_fence(E.now);
    trace(EMU_OP_FENCE);
}

/* --- primitives: block barrier ------------------------------------------------------------------------------------ */

static void open_gate(const unit *u, gate *g)
{
    mem_barrier(u->first, u->threads);
    for (int i = 0; i < u->threads; i++) {
        E.unit[u->first + i].generation++;
        E.ready |= 1ull << (u->first + i);
        E.polling &= ~(1ull << (u->first + i));
    }
    g->result = g->any;
    g->any = 0;
    g->arrived = 0;
    useful();
}

int par_barrier_or(int any)
{
    unit *u = step(OTHERS_SEE);
    gate *g = &E.gate[u->first];
    if (g->gone)
        emu_fail("rank %d: a barrier that a thread of the block has left without", u->rank);
    g->any |= any != 0;
    trace(EMU_OP_BARRIER);
    if (++g->arrived == u->threads)
        open_gate(u, g);
    else
        wait_here();
    return g->result;
}

static void open_signals(const unit *u, signals *s)
{
    for (int i = 0; i < u->threads; i++) {
        for (int j = 0; j < u->threads && s->waiting >> i & 1u; j++)
            mem_learn(u->first + i, s->told[j]);
    }
    E.ready |= s->waiting << u->first;
    E.polling &= ~(s->waiting << u->first);
    s->signalled = s->waiting = 0;
}

/* Come to the barrier; whether it opens. */
static int arrive(unit *u, uint32_t id, int waits)
{
    const uint64_t me = 1ull << u->thread;
    signals *s = &E.signals[u->first][id];
    if (id >= SIGNALS || (s->signalled & me))
        emu_fail("rank %d: thread %d signals again before the others have waited", u->rank, u->thread);
    if (waits)
        s->waiting |= me;
    else
        s->signalled |= me;
    s->told[u->thread] = mem_tell(E.now);
    trace(waits ? EMU_OP_WAIT : EMU_OP_SIGNAL);
    useful();
    if (__builtin_popcountll(s->waiting | s->signalled) < u->threads)
        return 0;
    open_signals(u, s);
    return 1;
}

void par_signal(uint32_t id)
{
    arrive(step(OTHERS_SEE), id, 0);
}

void par_wait_signals(uint32_t id)
{
    if (!arrive(step(OTHERS_SEE), id, 1))
        wait_here();
}

/* --- primitives: own memory --------------------------------------------------------------------------------------- */

uint32_t par_own_ld(const uint32_t *p)
{
    uint32_t v;
    step(0);
    load(p, 1, EMU_OP_OWN_LOAD, &v);
    return v;
}

void par_own_st(uint32_t *p, uint32_t v)
{
    step(0);
    store(E.now, p, 1, EMU_OP_OWN_STORE, &v);
}

uint32_t par_own_exchange(uint32_t *p, uint32_t v)
{
    emu_place *place;
    uint32_t old;
    step(OTHERS_SEE);
    place = place_of(p, E.unit[E.now].rank, 1);
    old = mem_exchange(E.now, place, v);
    useful();
    if (E.setup.trace) {
        emu_event e = event(EMU_OP_EXCHANGE);
        e.word = place->word;
        e.value = v;
        keep(e);
    }
    return old;
}

/* --- primitives: the message -------------------------------------------------------------------------------------- */

void emu_message(int rank, const void *in, void *out, size_t bytes)
{
    if (bytes > 2 * EMU_CELLS)
        abort();
    E.in[rank] = in;
    E.out[rank] = out;
    E.bytes[rank] = bytes;
}

/* Whether a write of another thread comes before this access by block barriers. */
static int ordered(const unit *u, const cell *c)
{
    return c->writer == 0 || c->writer == E.now + 1 ||
           (E.unit[c->writer - 1].first == u->first && c->written_at < u->generation);
}

/*
 * The output may be the input, and is one memory with it then. That nobody overwrites what others have yet to read
 * needs no check: it would show in the sum. But what another thread wrote, nobody may touch without a barrier between.
 */
static void touch(const void *p, size_t bytes, int write)
{
    const unit *u = step(0);
    const int r = u->rank, same = E.in[r] == E.out[r];
    const size_t at = (size_t)((const char *)p - (write ? E.out[r] : E.in[r]));
    if (at > E.bytes[r] || at + bytes > E.bytes[r])
        emu_fail("rank %d: access outside the %s", r, write ? "output" : "input");
    for (size_t i = at / 2; i < (at + bytes) / 2 && (write || same); i++) {
        cell *c = &E.cells[r][i];
        if (!ordered(u, c))
            emu_fail("rank %d: two threads race on element %zu of the message", r, i);
        if (write) {
            c->writer = (uint8_t)(E.now + 1);
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

/* --- primitives: who, when ---------------------------------------------------------------------------------------- */

uint32_t par_thread(void) { return E.unit[E.now].thread; }
uint32_t par_threads(void) { return E.unit[E.now].threads; }
uint32_t par_block(void) { return E.unit[E.now].block; }
uint32_t par_blocks(void) { return E.unit[E.now].blocks; }

uint64_t par_clock_ns(void)
{
    step(0);
    E.polling |= 1ull << E.now; /* a loop on the clock alone must let others go on */
    return ++E.clock;
}

void par_trap(void)
{
    int rank = E.unit[E.now].rank;
    step(OTHERS_SEE);
    trace(EMU_OP_TRAP);
    emu_kill(rank);
    leave();
}
