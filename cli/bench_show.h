/*
 * What bench measured, as text.
 */
#ifndef SP_CLI_BENCH_SHOW_H
#define SP_CLI_BENCH_SHOW_H

#include "cli/report.h"
#include "verify/bench/steps.h"

/* What was measured and with which NCCL, then a table per group: a row per size for the fastest of ours (--verbose: for
 * all), in the columns of nccl-tests and then those that they do not have; then what is slower than it should be. The
 * bench must be tuned. */
int sp_show_bench(const struct sp_report *report, const struct sp_bench *bench);

/* A row per step and group, and a sentence where there is one step. */
int sp_show_steps(const struct sp_report *report, const struct sp_bench *bench, const struct sp_step *steps,
                  size_t count);

#endif
