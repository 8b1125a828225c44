/*
 * search.h: looking for runs that break something, and making what was found small.
 */
#ifndef EMU_SEARCH_H
#define EMU_SEARCH_H

#include "run.h"

typedef struct {
    run_scenario scenario;
    int random;         /* the seed decides */
    emu_list list;      /* else: deviations from the harmless run */
    char violation[512];
} finding;

/* Random runs, seeds first..first+n-1. Returns how many were made; fewer than n when one broke something: then *out has
 * it, with its deviations. `seconds` > 0 is a limit of time. */
uint64_t search_random(finding *out, const emu_subject *subject, int algorithm, int world, int faults, uint64_t first,
                       uint64_t n, double seconds);

/* Fewer and smaller calls, fewer threads, fewer deviations, while the same kind of violation stays. */
void search_shrink(finding *f);

/*
 * All runs of a scenario with at most `bound` deviations from the harmless run. Returns the number of runs; stops at
 * the first violation (*out) or after `most` runs (*complete = 0).
 */
uint64_t search_all(finding *out, const run_scenario *s, int bound, uint64_t most, int *complete);

/* A finding as a file, and back. 0, or -1. */
int finding_save(const finding *f, const char *path);
int finding_load(finding *f, const emu_subject *subject, const char *path);
void finding_free(finding *f);

/* Run it again and print the scenario, the deviations and every step as a table. Returns the violation or null. */
const char *finding_print(const finding *f);

double search_clock(void);

#endif
