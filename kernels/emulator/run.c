/* run.c: see run.h. */
#include "run.h"

#include <stdio.h>
#include <string.h>

#include "engine.h"
#include "kernels/numerics.h"

enum {
    TIMEOUT_NS = 1000000000,
    LATE_NS = 300000000,
    LATE_JUMPS = 3, /* of the clock, each a quarter of the limit, that a late rank may miss */
    MOST_STEPS = 400000
};

static struct {
    const run_scenario *s;
    par_geometry geometry[PAR_ALGORITHMS];
    par_call base[EMU_RANKS][PAR_ALGORITHMS]; /* pointers */
    par_call call[EMU_RANKS];                 /* the kernel that runs */
    uint32_t at[EMU_RANKS];                   /* calls launched */
    uint32_t withheld[EMU_RANKS];             /* jumps of the clock until a late rank's kernel starts */
    uint32_t threads;
    int failed[EMU_RANKS];
    uint32_t used[PAR_ALGORITHMS]; /* lanes that any call used */
    _Alignas(16) char in[EMU_RANKS][RUN_BYTES + 16], out[EMU_RANKS][RUN_BYTES + 16];
} R;

run_counts run_counted[PAR_ALGORITHMS];

/* --- memory of the ranks ------------------------------------------------------------------------------------------ */

static void refine_inbox(const emu_region *r, uint32_t offset, emu_place *place)
{
    const par_geometry *g = r->context;
    uint32_t sender = offset % g->lane_words % g->slot_words / g->sender_words;
    place->writers = (uint8_t)(1u << r->owner | 1u << sender);
}

static void print_box(const emu_region *r, uint32_t offset, char *text, size_t size)
{
    const par_geometry *g = r->context;
    uint32_t lane = offset / g->lane_words, in_lane = offset % g->lane_words, slot = in_lane / g->slot_words;
    uint32_t sender = in_lane % g->slot_words / g->sender_words, rest = in_lane % g->slot_words % g->sender_words;
    const char *area = rest < g->gather_words ? "data" : "gather";
    char from[20] = "";
    if (rest >= g->gather_words)
        rest -= g->gather_words;
    if (g->slot_words != g->sender_words)
        snprintf(from, sizeof from, " from r%u", sender);
    snprintf(text, size, "box r%d lane %u slot %u%s %s %u.%u", r->owner, lane, slot, from, area, rest / 4, rest % 4);
}

static void print_flag(const emu_region *r, uint32_t offset, char *text, size_t size)
{
    snprintf(text, size, "flag of r%u at r%d lane %u", offset / PAR_FLAG_WORDS % PAR_MAX_WORLD, r->owner,
             offset / PAR_FLAG_WORDS / PAR_MAX_WORLD);
}

static void print_lane(const emu_region *r, uint32_t offset, char *text, size_t size)
{
    static const char *const fields[] = {"epoch", "extent 0", "extent 1", "extent 2", "extent 3", "-", "-", "-"};
    snprintf(text, size, "lane %u of r%d: %s", offset / 8, r->owner, fields[offset % 8]);
}

static void refine_flag(const emu_region *r, uint32_t offset, emu_place *place)
{
    (void)r;
    place->writers = (uint8_t)(1u << offset / PAR_FLAG_WORDS % PAR_MAX_WORLD);
}

static void refine_abort(const emu_region *r, uint32_t offset, emu_place *place)
{
    (void)r;
    place->writers = (uint8_t)(1u << offset);
}

static uint32_t *add_box(int algorithm, int rank)
{
    const par_geometry *g = &R.geometry[algorithm];
    const int transport = par_algorithm_transport(algorithm);
    emu_region r = {.name = "box", .words = (uint32_t)(g->box_bytes / 4), .initial = PAR_EMPTY, .owner = rank,
                    .home = (uint8_t)(transport == PAR_HOST ? EMU_HOST : rank), .context = g, .print = print_box};
    r.readers = (uint8_t)(transport == PAR_PUSH ? 1u << rank : EMU_ALL);
    r.writers = (uint8_t)(1u << rank);
    r.refine = transport == PAR_PUSH ? refine_inbox : 0;
    return emu_add(&r);
}

static uint32_t *add_flags(int algorithm, int rank)
{
    const int host = par_algorithm_transport(algorithm) == PAR_HOST;
    emu_region r = {.name = "flag", .words = (uint32_t)(R.geometry[algorithm].flag_bytes / 4), .initial = R.s->epoch,
                    .owner = rank, .home = (uint8_t)(host ? EMU_HOST : rank), .print = print_flag,
                    .refine = refine_flag};
    r.readers = (uint8_t)(host ? EMU_ALL : 1u << rank);
    return emu_add(&r);
}

static uint32_t *add_own(const char *name, int rank, uint32_t words)
{
    emu_region r = {.name = name, .words = words, .owner = rank, .home = (uint8_t)rank};
    r.readers = r.writers = (uint8_t)(1u << rank);
    if (words > PAR_LANES)
        r.print = print_lane;
    return emu_add(&r);
}

static uint32_t *add_note(const char *name, int rank)
{
    emu_region r = {.name = name, .words = PAR_NOTE_WORDS, .owner = rank, .home = EMU_HOST, .readers = EMU_ALL,
                    .writers = (uint8_t)(1u << rank)};
    return emu_add(&r);
}

static void add_rank(int rank, uint32_t *abort_word)
{
    uint32_t *busy = add_own("busy", rank, PAR_LANES), *claim = add_own("claim", rank, PAR_CLAIM_WORDS);
    uint32_t *failed = add_note("failed", rank), *late = add_note("late", rank);
    for (int a = 1; a < PAR_ALGORITHMS; a++) {
        par_call *c = &R.base[rank][a];
        memset(c, 0, sizeof *c);
        c->lane = (par_lane *)(void *)add_own("lane", rank, R.geometry[a].lanes * 8 + PAR_LANES);
        for (uint32_t l = 0; l < R.geometry[a].lanes && R.s->epoch; l++)
            emu_preset(&c->lane[l].epoch, R.s->epoch);
        c->busy = busy;
        c->claim = claim;
        c->failed = failed;
        c->late = late;
        c->abort_word = abort_word;
        c->timeout_ns = TIMEOUT_NS;
        c->late_ns = LATE_NS;
        c->rank = (uint32_t)rank;
        c->world = (uint32_t)R.s->world;
        c->trap = R.s->trap;
    }
}

static void add_memory(void)
{
    const int world = R.s->world;
    emu_region aborts = {.name = "abort", .words = PAR_MAX_WORLD, .home = EMU_HOST, .readers = EMU_ALL,
                         .refine = refine_abort};
    uint32_t *abort_word = emu_add(&aborts);
    for (int r = 0; r < world; r++)
        add_rank(r, abort_word);
    for (int a = 1; a < PAR_ALGORITHMS; a++) {
        for (int r = 0; r < world; r++) {
            uint32_t *box = add_box(a, r), *flag = R.geometry[a].flag_bytes ? add_flags(a, r) : 0;
            for (int q = 0; q < world; q++) {
                R.base[q][a].box[r] = box;
                R.base[q][a].flag[r] = flag;
            }
        }
        for (int r = 0; r < world; r++)
            par_call_routes(&R.base[r][a], R.geometry, a);
    }
}

static void set_geometry(const run_scenario *s)
{
    for (int a = 1; a < PAR_ALGORITHMS; a++) {
        uint64_t vecs = s->room_vecs * s->room_lanes;
        if (!par_is_two_shot(a)) /* its limit falls with the world size */
            vecs = (vecs * (uint32_t)s->world + 1) / 2;
        par_geometry_init(&R.geometry[a], a, s->world, s->room_lanes, 16 * vecs, 16 * s->room_vecs);
    }
}

/* --- messages ----------------------------------------------------------------------------------------------------- */

static uint32_t mixed(uint64_t x)
{
    return (uint32_t)(choice_random(&x) >> 16);
}

/* An element of a rank's input: a small number that nobody else has, or now and then something special. */
static uint32_t element(const run_scenario *s, int rank, uint32_t call, uint32_t i)
{
    static const uint32_t special[3][4] = {{0xffffu, 0x8000u, 0x7c00u, 0x7e01u},
                                           {0xffffu, 0x8000u, 0x7f80u, 0xff81u},
                                           {0xffffffffu, 0x80000000u, 0x7f800000u, 0xff800001u}};
    uint32_t h = mixed(s->seed ^ (uint64_t)rank << 32 ^ (uint64_t)call << 40 ^ i);
    float f = (float)((int)(h >> 8 & 0x7ffu) - 1024) / 8.0f;
    uint32_t bits = 0;
    if ((h & 0xffu) < s->special)
        bits = special[s->dtype][h >> 30];
    else if (s->dtype == PAR_FP32)
        bits = par_as_bits(f);
    else if (s->dtype == PAR_BF16)
        bits = par_bf16_pair(f, 0) & 0xffffu;
    else
        bits = par_float_to_half(f);
    return bits;
}

static void fill(const run_scenario *s, int rank, uint32_t call, char *to, uint32_t bytes)
{
    const uint32_t size = (uint32_t)par_dtype_size(s->dtype);
    for (uint32_t i = 0; i < bytes / size; i++) {
        uint32_t bits = element(s, rank, call, i);
        memcpy(to + i * size, &bits, size);
    }
}

/* The sum of all ranks' inputs of a call, by the tree. */
static void expected(const run_scenario *s, uint32_t call, char *to, uint32_t bytes)
{
    static _Alignas(16) char in[EMU_RANKS][RUN_BYTES + 16];
    for (int r = 0; r < s->world; r++) {
        memset(in[r] + bytes / 16 * 16, 0, 16);
        fill(s, r, call, in[r], bytes);
    }
    for (uint32_t at = 0; at < bytes; at += 16) {
        par_vec v[PAR_MAX_WORLD], sum;
        for (int r = 0; r < s->world; r++) {
            memcpy(&v[r], in[r] + at, 16);
            v[r] = par_clean(v[r], s->dtype);
        }
        sum = par_sum(v, (uint32_t)s->world, s->dtype);
        memcpy(to + at, &sum, 16);
    }
}

/* --- calls -------------------------------------------------------------------------------------------------------- */

static void body(const void *argument)
{
    const par_call *c = argument;
    const emu_subject *p = R.s->subject;
    const int a = (int)c->algorithm, dtype = R.s->dtype;
    if (par_is_chunked(a))
        (par_is_two_shot(a) ? p->chunked_two_shot : p->chunked_one_shot)(c, dtype);
    else
        (par_is_two_shot(a) ? p->sentinel_two_shot : p->sentinel_one_shot)(c, dtype);
}

static void launch(int rank)
{
    const uint32_t n = R.at[rank]++;
    const run_call *k = &R.s->call[n];
    par_call *c = &R.call[rank];
    par_plan plan;
    char *in = R.in[rank] + k->shift * par_dtype_size(R.s->dtype), *out;
    out = k->in_place ? in : R.out[rank] + k->shift * par_dtype_size(R.s->dtype);
    if (par_plan_init(&plan, R.geometry, k->algorithm, R.s->world, k->bytes, k->lanes, k->workers, k->tile_bytes)) {
        emu_fail("the scenario's call %u of %u bytes does not fit", n, k->bytes);
    } else {
        *c = R.base[rank][plan.algorithm];
        par_call_plan(c, R.geometry, &plan);
        c->delay_ns = rank == R.s->fault_rank ? R.s->delay : 0;
        c->dawdle = c->delay_ns != 0;
        par_call_message(c, in, out, k->bytes);
        memset(R.out[rank], 0xab, sizeof R.out[rank]);
        fill(R.s, rank, n, in, k->bytes);
        if (plan.lanes > R.used[plan.algorithm])
            R.used[plan.algorithm] = plan.lanes;
        emu_message(rank, in, out, k->bytes);
        emu_launch(rank, (int)plan.lanes, (int)(plan.workers + 1 + k->idle), body, c);
    }
}

static uint32_t late_jumps(const run_scenario *s)
{
    return 1 + s->fault_op % LATE_JUMPS;
}

static void launch_next(int rank)
{
    const run_scenario *s = R.s;
    if (R.at[rank] < s->n_calls && s->fault == RUN_LATE && rank == s->fault_rank && R.at[rank] == s->fault_call &&
        R.withheld[rank] == 0)
        R.withheld[rank] = late_jumps(s);
    else if (R.at[rank] < s->n_calls)
        launch(rank);
}

/* Whether this rank's kernel has noticed a failure. */
static int has_failed(int rank)
{
    return emu_value(R.base[rank][1].claim + PAR_CLAIM_DEAD) != 0;
}

/* Whether every host is certain to see that somebody has aborted, so that it trusts no output. */
static int is_told(void)
{
    uint32_t any = 0;
    for (int p = 0; p < R.s->world; p++)
        any |= emu_certain(R.base[0][1].abort_word + p);
    return any != 0;
}

static void check_output(int rank)
{
    static char want[RUN_BYTES + 16];
    const par_call *c = &R.call[rank];
    const uint32_t n = R.at[rank] - 1, bytes = (uint32_t)c->bytes, size = (uint32_t)par_dtype_size(R.s->dtype);
    expected(R.s, n, want, bytes);
    for (uint32_t i = 0; i < bytes / size && !emu_violation(); i++) {
        uint32_t seen = 0, right = 0;
        memcpy(&seen, (const char *)c->out + i * size, size);
        memcpy(&right, want + i * size, size);
        if (seen != right && !is_told())
            emu_fail("wrong sum: rank %d, call %u, element %u is %08x instead of %08x", rank, n, i, seen, right);
    }
}

static void check_failure(int rank)
{
    const par_call *c = &R.call[rank];
    if (R.s->fault == RUN_PLAIN || R.s->fault == RUN_LATE)
        emu_fail("rank %d gave up without a cause in call %u: error %u, peer %u, expected %u, seen %u", rank,
                 R.at[rank] - 1, emu_value(c->failed + PAR_NOTE_ERROR), emu_value(c->failed + PAR_NOTE_PEER),
                 emu_value(c->failed + PAR_NOTE_EXPECTED), emu_value(c->failed + PAR_NOTE_SEEN));
    else if (emu_value(c->failed + PAR_NOTE_STATE) != 1 || emu_value(c->abort_word + rank) == 0)
        emu_fail("rank %d has left call %u without a report", rank, R.at[rank] - 1);
}

static void ended(void *context, int rank)
{
    (void)context;
    run_counted[R.s->algorithm].kernels++;
    if (has_failed(rank)) {
        run_counted[R.s->algorithm].failed[emu_value(R.call[rank].failed + PAR_NOTE_PHASE) % 3] += !R.failed[rank];
        R.failed[rank] = 1;
        check_failure(rank);
    } else {
        check_output(rank);
    }
    if (!emu_violation() && !emu_is_lost(rank))
        launch_next(rank);
}

/* The clock has jumped. */
static int idle(void *context)
{
    int launched = 0;
    (void)context;
    for (int r = 0; r < R.s->world; r++) {
        if (R.withheld[r] && --R.withheld[r] == 0) {
            launch(r);
            launched = 1;
        } else if (R.withheld[r]) {
            launched = -1;
        }
    }
    return launched;
}

static void fault(void *context, int rank)
{
    const run_scenario *s = R.s;
    (void)context;
    if (s->fault == RUN_LOST || s->fault == RUN_WATCHED)
        emu_kill(rank);
    if (s->fault == RUN_WATCHED)
        emu_host_store(s->fault_by, R.base[0][1].abort_word + s->fault_by,
                       (uint32_t)-PAR_ERR_PEER_DIED | (uint32_t)(rank + 1) << 8);
    if (s->fault == RUN_ABORT)
        emu_host_store(rank, R.base[0][1].abort_word + rank, (uint32_t)-PAR_ERR_ABORTED | (uint32_t)(rank + 1) << 8);
}

/* --- afterwards --------------------------------------------------------------------------------------------------- */

/* Slots but those of the last two calls of a lane are empty; tagged ones keep what was in them. */
static void check_slots(int algorithm, int rank, uint32_t lane)
{
    const par_geometry *g = &R.geometry[algorithm];
    const par_call *c = &R.base[rank][algorithm];
    const uint32_t epoch = emu_value(&c->lane[lane].epoch);
    for (uint32_t e = epoch - 4; e != epoch - 2; e++) {
        const uint32_t *slot = c->box[rank] + lane * g->lane_words + e % PAR_SLOTS * g->slot_words;
        for (uint32_t i = 0; i < g->slot_words && !emu_violation(); i++)
            if (emu_value(slot + i) != PAR_EMPTY)
                emu_fail("a slot that is not empty at the end: rank %d, lane %u, slot %u, word %u", rank, lane,
                         e % PAR_SLOTS, i);
    }
}

static void check_rest(int rank)
{
    const par_call *c = &R.base[rank][1];
    uint32_t any = emu_value(c->claim + PAR_CLAIM_FAILED) | emu_value(c->abort_word + rank);
    for (uint32_t l = 0; l < R.s->room_lanes; l++)
        any |= emu_value(c->busy + l);
    if (any)
        emu_fail("rank %d: busy, claim or abort word set after calls that went well", rank);
}

/* A rank that the others waited for, over the second jump of the clock at least, is named. */
static void check_late(void)
{
    int named = 0;
    for (int r = 0; r < R.s->world; r++)
        if (emu_value(R.base[r][1].late + PAR_NOTE_STATE) == 1)
            named = 1;
    run_counted[R.s->algorithm].late += (uint64_t)named;
    if (!named && R.s->fault_call < R.s->n_calls && late_jumps(R.s) == LATE_JUMPS)
        emu_fail("nobody has named the rank that was late");
}

static void count_lost(int rank)
{
    if (emu_is_lost(rank) && rank == R.s->fault_rank && R.s->fault != RUN_ABORT)
        run_counted[R.s->algorithm].lost++;
    else if (emu_is_lost(rank)) {
        run_counted[R.s->algorithm].traps++;
        if (emu_value(R.base[rank][1].failed + PAR_NOTE_STATE) != 1)
            emu_fail("rank %d trapped before its note was written", rank);
    }
}

static void check_end(void)
{
    const run_scenario *s = R.s;
    int quiet = s->fault == RUN_PLAIN || s->fault == RUN_LATE;
    for (int r = 0; r < s->world && !emu_violation(); r++) {
        count_lost(r);
        if (!emu_is_lost(r) && R.at[r] < s->n_calls)
            emu_fail("rank %d has not made all calls", r);
        else if (quiet)
            check_rest(r);
        for (int a = 1; a < PAR_ALGORITHMS && quiet; a++)
            for (uint32_t l = 0; l < R.used[a] && !par_is_chunked(a) && !par_is_tagged(a) && !emu_violation(); l++)
                check_slots(a, r, l);
    }
    if (s->fault == RUN_LATE && !emu_violation())
        check_late();
}

static uint32_t most_threads(const run_scenario *s)
{
    uint32_t most = 1;
    for (uint32_t i = 0; i < s->n_calls; i++) {
        const run_call *k = &s->call[i];
        par_plan plan;
        uint32_t n;
        memset(&plan, 0, sizeof plan);
        par_plan_init(&plan, R.geometry, k->algorithm, s->world, k->bytes, k->lanes, k->workers, k->tile_bytes);
        n = plan.lanes * (plan.workers + 1 + k->idle);
        most = n > most ? n : most;
    }
    return most;
}

const char *run(const run_scenario *s, emu_mode mode, const emu_list *given, emu_list *log, int trace)
{
    emu_events events = {.ended = ended, .idle = idle, .fault = fault};
    emu_setup setup = {.mode = mode, .seed = s->seed, .given = given, .log = log, .ranks = s->world,
                       .timeout_ns = TIMEOUT_NS, .most_steps = MOST_STEPS, .trace = trace, .without = s->without};
    set_geometry(s);
    setup.per_rank = (int)most_threads(s);
    if (emu_begin(&setup))
        return "out of memory";
    R.s = s;
    memset(R.at, 0, sizeof R.at);
    memset(R.withheld, 0, sizeof R.withheld);
    memset(R.failed, 0, sizeof R.failed);
    memset(R.used, 0, sizeof R.used);
    add_memory();
    if (s->fault > RUN_LATE)
        events.fault_at[s->fault_rank] = s->fault_op;
    for (int r = 0; r < s->world && !emu_violation(); r++)
        launch_next(r);
    emu_run(&events);
    if (!emu_violation())
        check_end();
    return emu_violation();
}
