/* search.c: see search.h. */
#include "search.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { SEEDS_PER_SHRINK = 100, MOST_RUNS_PER_SHRINK = 30000, SECONDS_PER_SHRINK = 10 };

double search_clock(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

void finding_free(finding *f)
{
    list_free(&f->list);
    memset(f, 0, sizeof *f);
}

static void set_violation(finding *f, const char *text)
{
    snprintf(f->violation, sizeof f->violation, "%s", text);
}

/* Violations of a kind begin alike. */
static int same_kind(const char *a, const char *b)
{
    return a && b && strncmp(a, b, 8) == 0;
}

/* --- random ------------------------------------------------------------------------------------------------------- */

/* The deviations of a random run, which is made again. */
static void write_down(finding *f)
{
    f->list.n = 0;
    run(&f->scenario, EMU_RANDOM, 0, &f->list, 0);
}

uint64_t search_random(finding *out, const emu_subject *subject, int algorithm, int world, int faults, uint64_t first,
                       uint64_t n, double seconds)
{
    const double end = search_clock() + seconds;
    uint64_t made = 0;
    const char *violation = 0;
    while (made < n && !violation && (seconds <= 0 || made % 64 != 63 || search_clock() < end)) {
        run_draw(&out->scenario, subject, algorithm, world, first + made, faults);
        violation = run(&out->scenario, EMU_RANDOM, 0, 0, 0);
        made++;
    }
    out->violation[0] = 0;
    if (violation) {
        set_violation(out, violation);
        write_down(out);
    }
    return made;
}

/* --- bounded exploration ------------------------------------------------------------------------------------------ */

typedef struct {
    const run_scenario *s;
    finding *out;
    emu_list list;
    uint64_t runs, most;
} exploration;

/* The run with the deviations so far, then every run with one more, behind the last. */
static void explore(exploration *x, int left)
{
    emu_list others = {0, 0, 0};
    const char *violation = run(x->s, EMU_EXPLORE, &x->list, left > 0 ? &others : 0, 0);
    x->runs++;
    if (violation) {
        set_violation(x->out, violation);
        for (size_t i = 0; i < x->list.n; i++)
            list_add(&x->out->list, x->list.at[i]);
    }
    for (size_t i = 0; i < others.n && !x->out->violation[0] && x->runs < x->most; i++) {
        list_add(&x->list, others.at[i]);
        explore(x, left - 1);
        x->list.n--;
    }
    list_free(&others);
}

uint64_t search_all(finding *out, const run_scenario *s, int bound, uint64_t most, int *complete)
{
    exploration x = {s, out, {0, 0, 0}, 0, most};
    memset(out, 0, sizeof *out);
    out->scenario = *s;
    explore(&x, bound);
    list_free(&x.list);
    *complete = x.runs < most;
    return x.runs;
}

/* --- shrinking ---------------------------------------------------------------------------------------------------- */

/* Whether some seed still breaks a smaller scenario in the same way; then the finding becomes that. */
static int still_breaks(finding *f, const run_scenario *smaller)
{
    run_scenario s = *smaller;
    int found = 0;
    for (uint64_t i = 0; i < SEEDS_PER_SHRINK && !found; i++) {
        s.seed = smaller->seed + i * 1000003;
        found = same_kind(run(&s, EMU_RANDOM, 0, 0, 0), f->violation);
    }
    if (found) {
        f->scenario = s;
        write_down(f);
    }
    return found;
}

static void drop_calls(finding *f)
{
    for (uint32_t i = f->scenario.n_calls; i-- > 0;) {
        run_scenario s = f->scenario;
        if (s.n_calls > 1) {
            memmove(&s.call[i], &s.call[i + 1], (s.n_calls - i - 1) * sizeof s.call[0]);
            s.n_calls--;
            still_breaks(f, &s);
        }
    }
}

/* One simplification of one call; 0: there is no such. */
static int simplify(run_call *k, int what)
{
    const run_call before = *k;
    switch (what) {
    case 0: k->idle = 0; break;
    case 1: k->shift = 0; break;
    case 2: k->in_place = 0; break;
    case 3: k->workers = 1; break;
    case 4: k->lanes = 1; break;
    case 5: k->bytes = k->bytes > 16 ? (k->bytes - 1) / 16 * 16 : k->bytes; break;
    default: k->bytes = (k->bytes + 15) / 16 * 16; break;
    }
    return memcmp(&before, k, sizeof before) != 0;
}

static void simplify_calls(finding *f)
{
    for (int what = 0; what < 7; what++) {
        run_scenario s = f->scenario;
        int any = 0;
        for (uint32_t i = 0; i < s.n_calls; i++)
            any |= simplify(&s.call[i], what);
        if (any && !still_breaks(f, &s)) {
            for (uint32_t i = 0; i < f->scenario.n_calls; i++) {
                s = f->scenario;
                if (simplify(&s.call[i], what))
                    still_breaks(f, &s);
            }
        }
    }
}

static void simplify_scenario(finding *f)
{
    run_scenario s = f->scenario;
    s.special = s.delay = 0;
    s.dtype = PAR_FP32;
    if (memcmp(&s, &f->scenario, sizeof s) != 0)
        still_breaks(f, &s);
    s = f->scenario;
    s.epoch = 0;
    if (s.epoch != f->scenario.epoch)
        still_breaks(f, &s);
    s = f->scenario;
    s.room_lanes = 1;
    if (s.room_lanes != f->scenario.room_lanes)
        still_breaks(f, &s);
}

static int replays(const finding *f, const emu_list *list)
{
    return same_kind(run(&f->scenario, EMU_REPLAY, list, 0, 0), f->violation);
}

/* The list without n deviations from `at`. */
static void without(emu_list *out, const emu_list *list, size_t at, size_t n)
{
    out->n = 0;
    for (size_t i = 0; i < list->n; i++)
        if (i < at || i >= at + n)
            list_add(out, list->at[i]);
}

/* Leave out ever smaller pieces for as long as it helps. */
static void drop_deviations(finding *f)
{
    emu_list trial = {0, 0, 0};
    for (size_t piece = f->list.n / 2 + 1; piece > 0; piece = piece > 1 ? (piece + 1) / 2 : 0) {
        int again = 1;
        while (again) {
            again = 0;
            for (size_t at = 0; at < f->list.n;) {
                without(&trial, &f->list, at, piece);
                if (replays(f, &trial)) {
                    emu_list swap = f->list;
                    f->list = trial;
                    trial = swap;
                    again = piece == 1;
                } else {
                    at += piece;
                }
            }
        }
    }
    list_free(&trial);
}

/* Perhaps one or two deviations will do; whether so. */
static int break_with_few(finding *f)
{
    int complete, found = 0;
    const double start = search_clock();
    for (int bound = 0; bound <= 2 && !found && search_clock() - start < SECONDS_PER_SHRINK; bound++) {
        finding shortest;
        search_all(&shortest, &f->scenario, bound, MOST_RUNS_PER_SHRINK, &complete);
        found = shortest.violation[0] != 0;
        if (found) {
            list_free(&f->list);
            f->list = shortest.list;
            set_violation(f, shortest.violation);
        } else {
            finding_free(&shortest);
        }
    }
    return found;
}

void search_shrink(finding *f)
{
    const char *violation;
    drop_calls(f);
    simplify_scenario(f);
    simplify_calls(f);
    drop_calls(f);
    if (!break_with_few(f) && replays(f, &f->list))
        drop_deviations(f);
    violation = run(&f->scenario, EMU_REPLAY, &f->list, 0, 0);
    if (violation)
        set_violation(f, violation);
}

/* --- files -------------------------------------------------------------------------------------------------------- */

int finding_save(const finding *f, const char *path)
{
    const run_scenario *s = &f->scenario;
    FILE *out = fopen(path, "w");
    if (!out)
        return -1;
    fprintf(out, "# %s\n", f->violation);
    fprintf(out, "algorithm %s world %d dtype %d seed %llu room %u %u epoch %u trap %u special %u "
                 "delay %u\n",
            par_algorithm_name(s->algorithm), s->world, s->dtype, (unsigned long long)s->seed, s->room_lanes,
            s->room_vecs, s->epoch, s->trap, s->special, s->delay);
    fprintf(out, "fault %d rank %d by %d call %u op %u\n", (int)s->fault, s->fault_rank, s->fault_by, s->fault_call,
            s->fault_op);
    for (uint32_t i = 0; i < s->n_calls; i++) {
        const run_call *k = &s->call[i];
        fprintf(out, "call %s bytes %u lanes %u workers %u tile %u idle %u in-place %u shift %u\n",
                par_algorithm_name(k->algorithm), k->bytes, k->lanes, k->workers, k->tile_bytes, k->idle, k->in_place,
                k->shift);
    }
    for (size_t i = 0; i < f->list.n; i++)
        fprintf(out, "%s fibre %u op %u value %u\n", f->list.at[i].kind == EMU_SWITCH ? "switch" : "age",
                f->list.at[i].fibre, f->list.at[i].op, f->list.at[i].value);
    return fclose(out) ? -1 : 0;
}

static int load_line(finding *f, const char *line)
{
    run_scenario *s = &f->scenario;
    run_call k;
    emu_deviation d = {0, 0, EMU_SWITCH, 0};
    char name[64], kind[16];
    unsigned long long seed;
    int fault, good = 1;
    memset(&k, 0, sizeof k);
    if (line[0] == '#' || line[0] == '\n') {
        good = 1;
    } else if (sscanf(line,
                      "algorithm %63s world %d dtype %d seed %llu room %u %u epoch %u trap %u special %u delay %u", name,
                      &s->world, &s->dtype, &seed, &s->room_lanes, &s->room_vecs, &s->epoch, &s->trap,
                      &s->special, &s->delay) >= 9) {
        s->algorithm = par_algorithm_by_name(name);
        s->seed = seed;
    } else if (sscanf(line, "fault %d rank %d by %d call %u op %u", &fault, &s->fault_rank, &s->fault_by,
                      &s->fault_call, &s->fault_op) == 5) {
        s->fault = (run_fault)fault;
    } else if (s->n_calls < RUN_CALLS &&
               sscanf(line, "call %63s bytes %u lanes %u workers %u tile %u idle %u in-place %u shift %u", name,
                      &k.bytes, &k.lanes, &k.workers, &k.tile_bytes, &k.idle, &k.in_place, &k.shift) == 8) {
        k.algorithm = par_algorithm_by_name(name);
        s->call[s->n_calls++] = k;
    } else if (sscanf(line, "%15s fibre %hu op %u value %u", kind, &d.fibre, &d.op, &d.value) == 4) {
        d.kind = strcmp(kind, "age") == 0 ? EMU_AGE : EMU_SWITCH;
        list_add(&f->list, d);
    } else {
        good = 0;
    }
    return good;
}

int finding_load(finding *f, const emu_subject *subject, const char *path)
{
    char line[400];
    int good = 1;
    FILE *in = fopen(path, "r");
    memset(f, 0, sizeof *f);
    f->scenario.subject = subject;
    if (!in)
        return -1;
    while (good && fgets(line, sizeof line, in))
        good = load_line(f, line);
    fclose(in);
    return good && f->scenario.world >= 2 && f->scenario.world <= PAR_MAX_WORLD && f->scenario.algorithm > 0 ? 0 : -1;
}
