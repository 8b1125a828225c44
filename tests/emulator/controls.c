/*
 * controls.c: protocols with one fault each. If the emulator does not find it, the emulator is no evidence.
 *
 *   test-controls [NAME [show]]     one control only; show: the shortest run found, step by step
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/emulator/engine.h"
#include "kernels/emulator/search.h"

typedef struct {
    const emu_subject *subject;
    const char *about, *runs; /* runs: "algorithm world [faults], ..." */
} control;

#include "controls_table.h" /* generated: controls[] from controls/ */

enum { MOST_SCHEDULES = 200000, MOST_SECONDS = 60, MOST_EXPLORED = 20000, WITHOUT_SCHEDULES = 10000 };

/* How few deviations show the fault in a small configuration; for information, not every fault can show there. */
static void print_least(const control *c, int algorithm, int world)
{
    run_scenario s;
    finding f;
    int complete, bound = -1;
    uint64_t runs = 0;
    run_small(&s, c->subject, algorithm, world);
    do {
        runs += search_all(&f, &s, ++bound, MOST_EXPLORED, &complete);
    } while (bound < 2 && !f.violation[0] && complete);
    if (f.violation[0])
        printf("%24s  explored: %d deviation%s will do, schedule %llu\n", "", bound, bound == 1 ? "" : "s",
               (unsigned long long)runs);
    else
        printf("%24s  explored: not in the small configuration with up to 2 deviations (%llu schedules%s)\n", "",
               (unsigned long long)runs, complete ? "" : ", not all");
    finding_free(&f);
}

/* One configuration; whether the fault was found. */
static int hunt(const control *c, const char *algorithm, int world, int faults, int show)
{
    finding f;
    uint64_t n;
    const double start = search_clock();
    double seconds;
    int caught;
    memset(&f, 0, sizeof f);
    n = search_random(&f, c->subject, par_algorithm_by_name(algorithm), world, faults, 1, MOST_SCHEDULES, MOST_SECONDS);
    seconds = search_clock() - start;
    caught = f.violation[0] != 0;
    printf("  %-22s %d%s  %s after %6llu schedules, %6.3f s  %s\n", algorithm, world, faults ? " faults" : "       ",
           caught ? "caught" : "NOT CAUGHT", (unsigned long long)n, seconds, f.violation);
    if (!faults && world <= 3)
        print_least(c, par_algorithm_by_name(algorithm), world);
    if (caught && show) {
        search_shrink(&f);
        finding_print(&f);
    }
    finding_free(&f);
    return caught;
}

/* Every configuration of a control; whether all were caught. */
static int try_control(const control *c, int show)
{
    const char *at = c->runs;
    char algorithm[40], faults[10];
    int world, used, all = 1, n = 0;
    printf("%s: %s\n", c->subject->name, c->about);
    if (c->subject->stale) {
        printf("  STALE: the protocols have changed, %s\n", c->subject->stale);
        return 0;
    }
    while (sscanf(at, " %39[a-z-] %d%n", algorithm, &world, &used) == 2) {
        int with_faults;
        at += used;
        with_faults = sscanf(at, " %9[a-z]%n", faults, &used) == 1;
        at += with_faults ? used : 0;
        at += *at == ',';
        all &= par_algorithm_by_name(algorithm) > 0 && hunt(c, algorithm, world, with_faults, show);
        n++;
    }
    return all && n > 0;
}

/* An assumption about kernel boundaries taken away: the sentinel protocols need it, the chunked ones do not. */
static int try_without(uint32_t without, const char *name)
{
    int as_said = 1;
    run_without = without;
    for (int a = 1; a < PAR_ALGORITHMS; a++) {
        finding f;
        uint64_t n;
        int breaks;
        memset(&f, 0, sizeof f);
        n = search_random(&f, &emu_protocols, a, 3, 0, 1, WITHOUT_SCHEDULES, 0);
        breaks = f.violation[0] != 0;
        printf("  without %-4s %-22s %s after %6llu schedules  %s\n", name, par_algorithm_name(a),
               breaks ? "breaks" : "holds ", (unsigned long long)n, f.violation);
        as_said &= breaks == !par_is_chunked(a);
        finding_free(&f);
    }
    run_without = 0;
    return as_said;
}

static int try_assumptions(void)
{
    int as_said;
    printf("assumptions: what each protocol rests on is what docs/memory-model.md says\n");
    as_said = try_without(EMU_WITHOUT_A7, "A7");
    as_said &= try_without(EMU_WITHOUT_A15, "A15");
    return as_said;
}

int main(int argc, char **argv)
{
    const int n = (int)(sizeof controls / sizeof controls[0]);
    const double start = search_clock();
    int caught = 0, tried = 0;
    setvbuf(stdout, 0, _IOLBF, 0);
    for (int i = 0; i < n; i++) {
        if (argc < 2 || !strcmp(argv[1], controls[i].subject->name)) {
            tried++;
            caught += try_control(&controls[i], argc > 2);
        }
    }
    if (argc < 2) {
        tried++;
        caught += try_assumptions();
    }
    printf("%d of %d controls caught in %.1f s\n", caught, tried, search_clock() - start);
    emu_end();
    return caught == tried && tried > 0 ? 0 : 1;
}
