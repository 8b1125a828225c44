/*
 * The parts of the command bench: cmd_bench.c reads what is wanted, bench_here.c measures it on this machine,
 * bench_replay.c shows what was measured before; bench_tell.c is for both.
 */
#ifndef SP_CLI_BENCH_H
#define SP_CLI_BENCH_H

#include "cli/report.h"
#include "verify/bench/bench_run.h"
#include "verify/bench/steps.h"

struct sp_bench_wanted {
    uint64_t bytes[SP_BENCH_SIZES]; /* rising; those of the steps among them */
    size_t bytes_count, default_count;
    struct sp_step step[SP_STEPS];
    size_t step_count;
    const char *plot; /* a file, "-" for the terminal, or NULL */
    double seconds;   /* of a child; 0: by what it does */
    bool quick, unproved, sizes;
};

/* Measure, show it, and write the profile unless something less was wanted. */
int sp_bench_here(struct sp_report *report, const struct sp_args *args, const struct sp_bench_wanted *wanted);

/* Of a file that bench --json or report wrote. */
int sp_bench_replay(struct sp_report *report, const char *path, const struct sp_bench_wanted *wanted);

/* ---- for both ---- */

/* Tables and JSON. */
int sp_bench_tell(struct sp_report *report, struct sp_bench *bench, const struct sp_bench_wanted *wanted);

/* Where a plot was wanted. */
int sp_bench_plot(const struct sp_report *report, const struct sp_bench *bench, const struct sp_bench_wanted *wanted);

/* Is there a figure of stock? */
bool sp_bench_compared(const struct sp_bench *bench);

/* What a table of these measurements would be, in a sentence; for the caller to free, NULL: no memory. */
char *sp_bench_summary(const struct sp_bench *bench, bool *wins);

#endif
