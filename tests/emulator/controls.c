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

enum { MOST_SCHEDULES = 200000, MOST_SECONDS = 60 };

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
    printf("%d of %d controls caught in %.1f s\n", caught, tried, search_clock() - start);
    emu_end();
    return caught == tried && tried > 0 ? 0 : 1;
}
