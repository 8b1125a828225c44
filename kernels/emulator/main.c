/* main.c: par-emulator, the command line of the emulator. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "engine.h"
#include "search.h"

enum { WORLDS = 5, COMBINATIONS = (PAR_ALGORITHMS - 1) * WORLDS, SEEDS_PER_REPLAY = 300 };

static const int worlds[WORLDS] = {2, 3, 4, 5, 8};
static const uint32_t share[WORLDS] = {30, 25, 20, 15, 10}; /* per cent of the schedules: large worlds cost more */

static const char usage[] =
    "usage: par-emulator check   [--schedules N] [--jobs N] [--faults] [--algorithm A] [--world N] [--first SEED]\n"
    "       par-emulator explore [--algorithm A] [--world N] [--bound N] [--most N] [--jobs N]\n"
    "       par-emulator show    --algorithm A --world N --first SEED [--faults]\n"
    "       par-emulator replay  FILE...\n"
    "\n"
    "check    random schedules of all algorithms and worlds 2, 3, 4, 5, 8; the first violation is made small, saved\n"
    "         as par-emulator-finding.txt and printed step by step\n"
    "explore  every schedule of a small configuration with at most --bound (2) deviations from the harmless one\n"
    "show     one schedule, step by step\n"
    "replay   saved schedules, and 300 random ones of the same scenario each; a violation is printed step by step\n"
    "exit code: 0 nothing wrong, 1 a violation, 2 usage, 5 could not\n";

typedef struct {
    uint64_t schedules, first, most;
    int jobs, faults, algorithm, world, bound;
} options;

typedef struct {
    uint64_t runs;
    double seconds;
} result; /* of one combination */

typedef struct {
    result results[COMBINATIONS];
    run_counts counts[PAR_ALGORITHMS];
} job_report; /* in memory that workers share */

/* --- check -------------------------------------------------------------------------------------------------------- */

static int algorithm_of(int combination) { return 1 + combination / WORLDS; }
static int world_of(int combination) { return worlds[combination % WORLDS]; }

static int is_wanted(const options *o, int combination)
{
    return (!o->algorithm || o->algorithm == algorithm_of(combination)) &&
           (!o->world || o->world == world_of(combination));
}

/* Schedules of a combination. */
static uint64_t schedules_of(const options *o, int combination)
{
    uint64_t per_algorithm = o->algorithm ? o->schedules : (o->schedules + PAR_ALGORITHMS - 2) / (PAR_ALGORITHMS - 1);
    return o->world ? per_algorithm : (per_algorithm * share[combination % WORLDS] + 99) / 100;
}

static void tell(finding *f)
{
    printf("violation: %s\nmaking it smaller\n", f->violation);
    fflush(stdout);
    search_shrink(f);
    finding_save(f, "par-emulator-finding.txt");
    finding_print(f);
}

/* The protocols as compiled for one world size only; null: there is none. */
static const emu_subject *special_of(int combination)
{
    const emu_subject *special = 0;
    switch (par_is_chunked(algorithm_of(combination)) ? 0 : world_of(combination)) {
    case 2: special = &emu_protocols_w2; break;
    case 4: special = &emu_protocols_w4; break;
    case 8: special = &emu_protocols_w8; break;
    default: break;
    }
    return special;
}

/* Half of the schedules with the kernel for that world size, if there is one. */
static uint64_t search(finding *f, const options *o, int c, uint64_t first, uint64_t n)
{
    const emu_subject *special = special_of(c);
    const uint64_t half = special ? n / 2 : n;
    uint64_t made = search_random(f, &emu_protocols, algorithm_of(c), world_of(c), o->faults, first, half, 0);
    if (special && !f->violation[0])
        made += search_random(f, special, algorithm_of(c), world_of(c), o->faults, first + half, n - half, 0);
    return made;
}

/* One worker: its part of every combination. */
static int work(const options *o, int job, job_report *report, const volatile int *stop)
{
    finding f;
    int bad = 0;
    memset(&f, 0, sizeof f);
    for (int c = 0; c < COMBINATIONS && !bad && !*stop; c++) {
        uint64_t n = schedules_of(o, c), first = o->first + n * (uint64_t)job / (uint64_t)o->jobs;
        uint64_t mine = o->first + n * (uint64_t)(job + 1) / (uint64_t)o->jobs - first;
        double start = search_clock();
        if (is_wanted(o, c)) {
            report->results[c].runs = search(&f, o, c, first, mine);
            report->results[c].seconds = search_clock() - start;
            bad = f.violation[0] != 0;
        }
    }
    memcpy(report->counts, run_counted, sizeof run_counted);
    if (bad)
        tell(&f);
    finding_free(&f);
    return bad;
}

static uint64_t print_results(const options *o, const job_report *reports)
{
    uint64_t all = 0;
    printf("%-24s", "schedules");
    for (int w = 0; w < WORLDS; w++)
        printf("  world %d", worlds[w]);
    printf("   per second\n");
    for (int a = 0; a < PAR_ALGORITHMS - 1; a++) {
        uint64_t row = 0;
        double seconds = 0;
        printf("%-24s", par_algorithm_name(a + 1));
        for (int w = 0; w < WORLDS; w++) {
            uint64_t runs = 0;
            for (int j = 0; j < o->jobs; j++) {
                runs += reports[j].results[a * WORLDS + w].runs;
                seconds += reports[j].results[a * WORLDS + w].seconds;
            }
            printf(" %8llu", (unsigned long long)runs);
            row += runs;
        }
        printf("   %10.0f\n", seconds > 0 ? (double)row / seconds : 0);
        all += row;
    }
    return all;
}

/* What the faults led to. */
static void print_counts(const options *o, const job_report *reports)
{
    printf("%-24s %10s %10s %10s %10s %10s %10s %10s\n", "ranks that", "made calls", "lost", "left: entry", "scatter",
           "gather", "trapped", "named late");
    for (int a = 1; a < PAR_ALGORITHMS; a++) {
        run_counts sum;
        memset(&sum, 0, sizeof sum);
        for (int j = 0; j < o->jobs; j++) {
            const run_counts *c = &reports[j].counts[a];
            sum.kernels += c->kernels;
            sum.lost += c->lost;
            sum.traps += c->traps;
            sum.late += c->late;
            for (int i = 0; i < 3; i++)
                sum.failed[i] += c->failed[i];
        }
        printf("%-24s %10llu %10llu %11llu %10llu %10llu %10llu %10llu\n", par_algorithm_name(a),
               (unsigned long long)sum.kernels, (unsigned long long)sum.lost, (unsigned long long)sum.failed[0],
               (unsigned long long)sum.failed[1], (unsigned long long)sum.failed[2], (unsigned long long)sum.traps,
               (unsigned long long)sum.late);
    }
}

static int check(const options *o)
{
    const size_t bytes = sizeof(int) + sizeof(job_report) * (size_t)o->jobs;
    const double start = search_clock();
    job_report *reports = mmap(0, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    int *stop, status, bad = 0;
    uint64_t all;
    if (reports == MAP_FAILED)
        return 5;
    stop = (int *)(void *)(reports + o->jobs);
    for (int j = 0; j < o->jobs; j++) {
        pid_t child = fork();
        if (child == 0) {
            bad = work(o, j, reports + j, stop);
            *stop |= bad;
            fflush(stdout);
            _exit(bad);
        }
        bad |= child < 0;
    }
    while (wait(&status) > 0)
        bad |= status != 0;
    all = print_results(o, reports);
    if (o->faults)
        print_counts(o, reports);
    printf("%llu schedules in %.1f s with %d worker%s%s: %s\n", (unsigned long long)all, search_clock() - start,
           o->jobs, o->jobs == 1 ? "" : "s", o->faults ? ", a rank late, lost or aborting in each" : "",
           bad ? "a violation" : "no violation");
    munmap(reports, bytes);
    return bad;
}

/* --- the others --------------------------------------------------------------------------------------------------- */

/* Every schedule of a small configuration, up to the bound. */
static int explore_one(const options *o, int algorithm, int world)
{
    run_scenario s;
    const double start = search_clock();
    finding f;
    int complete, bad;
    uint64_t runs;
    run_small(&s, &emu_protocols, algorithm, world);
    runs = search_all(&f, &s, o->bound, o->most, &complete);
    bad = f.violation[0] != 0;
    if (bad)
        finding_print(&f);
    printf("%-22s world %d: %8llu schedules with up to %d deviations in %5.1f s, %s: %s\n",
           par_algorithm_name(algorithm), world, (unsigned long long)runs, o->bound, search_clock() - start, complete ? "all" : "NOT all",
           bad ? "a violation" : "no violation");
    finding_free(&f);
    return bad;
}

static int explore_some(const options *o, int job)
{
    int bad = 0;
    for (int a = 1; a < PAR_ALGORITHMS; a++)
        if ((!o->algorithm || o->algorithm == a) && a % o->jobs == job)
            bad |= explore_one(o, a, o->world ? o->world : 2);
    return bad;
}

static int explore(const options *o)
{
    int status, bad = 0;
    for (int j = 0; j < o->jobs; j++) {
        pid_t child = fork();
        if (child == 0) {
            bad = explore_some(o, j);
            fflush(stdout);
            _exit(bad);
        }
        bad |= child < 0;
    }
    while (wait(&status) > 0)
        bad |= status != 0;
    return bad;
}

static int show(const options *o)
{
    finding f;
    int bad;
    memset(&f, 0, sizeof f);
    f.random = 1;
    run_draw(&f.scenario, &emu_protocols, o->algorithm, o->world, o->first, o->faults);
    bad = finding_print(&f) != 0;
    finding_free(&f);
    return bad;
}

/* The saved schedule, then others of the same scenario: a change of the protocols moves what a schedule means. */
static int replay_one(finding *f)
{
    const char *violation = run(&f->scenario, EMU_REPLAY, &f->list, 0, 0);
    for (uint64_t i = 0; i < SEEDS_PER_REPLAY && !violation; i++) {
        f->random = 1;
        f->scenario.seed += i;
        violation = run(&f->scenario, EMU_RANDOM, 0, 0, 0);
    }
    if (violation)
        finding_print(f);
    return violation != 0;
}

static int replay(int n, char **files)
{
    int bad = 0;
    for (int i = 0; i < n; i++) {
        finding f;
        if (finding_load(&f, &emu_protocols, files[i])) {
            fprintf(stderr, "par-emulator: cannot read '%s'\n", files[i]);
            bad = 5;
        } else if (replay_one(&f)) {
            bad = bad ? bad : 1;
        } else {
            printf("%s: nothing is wrong\n", files[i]);
        }
        finding_free(&f);
    }
    return bad;
}

/* --- command line ------------------------------------------------------------------------------------------------- */

/* One option with its value; how many words it took, 0: none such. */
static int option(options *o, int argc, char **argv, int i)
{
    const char *name = argv[i], *value = i + 1 < argc ? argv[i + 1] : "";
    int words = 2;
    if (!strcmp(name, "--faults")) {
        o->faults = 1;
        words = 1;
    } else if (!strcmp(name, "--schedules")) {
        o->schedules = strtoull(value, 0, 10);
    } else if (!strcmp(name, "--first")) {
        o->first = strtoull(value, 0, 10);
    } else if (!strcmp(name, "--most")) {
        o->most = strtoull(value, 0, 10);
    } else if (!strcmp(name, "--jobs")) {
        o->jobs = atoi(value);
    } else if (!strcmp(name, "--world")) {
        o->world = atoi(value);
    } else if (!strcmp(name, "--bound")) {
        o->bound = atoi(value);
    } else if (!strcmp(name, "--algorithm")) {
        o->algorithm = par_algorithm_by_name(value);
    } else {
        words = 0;
    }
    return i + words <= argc ? words : 0;
}

static int is_valid(const options *o, int needs_one)
{
    return o->jobs >= 1 && o->jobs <= 256 && o->algorithm >= 0 && o->algorithm < PAR_ALGORITHMS && o->bound >= 0 &&
           (o->world == 0 || (o->world >= 2 && o->world <= PAR_MAX_WORLD)) &&
           (!needs_one || (o->algorithm && o->world));
}

int main(int argc, char **argv)
{
    options o = {100000, 1, UINT64_MAX, 2, 0, 0, 0, 2};
    const char *command = argc > 1 ? argv[1] : "";
    const int needs_one = !strcmp(command, "show");
    int i = 2, words = 1, code = 2;
    setvbuf(stdout, 0, _IOLBF, 0);
    if (!strcmp(command, "replay") && argc > 2) {
        code = replay(argc - 2, argv + 2);
        goto out;
    }
    for (; i < argc && words > 0; i += words)
        words = option(&o, argc, argv, i);
    if (words == 0 || !is_valid(&o, needs_one))
        fputs(usage, stderr);
    else if (!strcmp(command, "check"))
        code = check(&o);
    else if (!strcmp(command, "explore"))
        code = explore(&o);
    else if (!strcmp(command, "show"))
        code = show(&o);
    else
        fputs(usage, stderr);
out:
    emu_end();
    return code;
}
