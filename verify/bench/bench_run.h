/*
 * Measure: for each world size the program for GPUs on the backends that the verdict proved, and SGLang's own kernel
 * where an interpreter can run it; each a child with a time limit and a process group of its own.
 */
#ifndef SP_BENCH_BENCH_RUN_H
#define SP_BENCH_BENCH_RUN_H

#include "verify/bench/bench.h"
#include "verify/ladder/ladder.h"

struct sp_bench_plan {
    struct sp_ladder *ladder; /* the chosen GPUs, the install's site, where checks go */
    const json_t *verdict;    /* content of verdict.json; NULL: nothing is proved, all backends are tried */
    const char *python;       /* the install's interpreter; NULL: there is none to ask for SGLang's own kernel */
    const uint64_t *bytes;    /* sizes, rising */
    size_t bytes_count;
    bool own_sizes; /* not those that are measured by default, which are of more than one type */
    bool quick;
    void (*progress)(const char *text, double seconds_left); /* may be NULL */
};

/* Add what was measured to *out, and a check for each child: "bench.0-1", "bench.v1.0-1". SP_OK although a check
 * failed; SP_EFAIL: the verdict proves nothing on these GPUs; SP_ECANNOT: a child said what cannot be understood. */
int sp_bench_run(struct sp_bench *out, const struct sp_bench_plan *plan);

/* The sizes that are measured by default, rising. */
size_t sp_bench_sizes(uint64_t out[SP_BENCH_SIZES], bool quick);

/* The power of two that a letter behind a size stands for: K, M, G; else 0. */
unsigned sp_bench_unit(char letter);

/* A list like "2K,42K,1M". SP_EUSAGE. */
int sp_bench_parse_sizes(uint64_t out[SP_BENCH_SIZES], size_t *count, const char *text);

/* Put a size in its place unless it is there; false: no more room. */
bool sp_bench_add_size(uint64_t list[SP_BENCH_SIZES], size_t *count, uint64_t bytes);

#endif
