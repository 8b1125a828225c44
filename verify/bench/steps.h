/*
 * What a decode or verify step saves: so many all-reduces of so many bytes, with stock and with ours.
 *
 * Sizes that were measured are taken as they are, others by a straight line between their neighbours' logarithms; what
 * is below the smallest costs what that one costs, what is above the largest is not known. Pure.
 */
#ifndef SP_BENCH_STEPS_H
#define SP_BENCH_STEPS_H

#include "verify/bench/bench.h"

enum { SP_STEP_PARTS = 16, SP_STEPS = 32 };

struct sp_step {
    char name[320]; /* "122x43008", "batch 4" */
    uint64_t times[SP_STEP_PARTS], bytes[SP_STEP_PARTS];
    size_t count;
};

/* "122x43008,2x1M": K, M and G for KiB, MiB and GiB; sizes are multiples of 4. SP_EUSAGE. */
int sp_step_parse(struct sp_step *out, const char *text);

/* A dense transformer under tensor parallelism: two all-reduces a layer and one for the embedding, each of batch x
 * draft tokens. Text: "hidden=5120,layers=64,batch=1-32,draft=5"; a range of batches doubles; draft (1) is how many
 * tokens of each sequence a step verifies. SP_EUSAGE. */
int sp_steps_of_model(struct sp_step out[SP_STEPS], size_t *count, const char *text);

struct sp_saving {
    bool known;               /* everything was measured that it needs */
    bool measured;            /* exactly, not by neighbours */
    bool below;               /* a size is smaller than any that was measured: it costs what the smallest costs */
    double stock_ms, ours_ms; /* per step; ours where ours was chosen, else stock */
    uint64_t largest;         /* of the sizes */
    bool served;              /* ours serves some of it */
};

/* The group must be tuned. table: of its tables, 0 is what all backends together serve; then those of fewer. */
size_t sp_step_tables(const struct sp_bench_group *group);
void sp_step_cost(struct sp_saving *out, const struct sp_bench_group *group, size_t table, const struct sp_step *step);

/* "push", "push+host", "stock": what a table uses. Returns out. */
const char *sp_step_backends(char out[SP_BENCH_NAME], const struct sp_bench_group *group, size_t table);

/* One sentence: both times, what is saved, and which sizes ours pays for. */
int sp_step_say(struct sp_buf *out, const struct sp_bench_group *group, size_t table, const struct sp_step *step);

/* An array: each step by each table of each group that decides, as "steps" of --json. */
json_t *sp_steps_json(const struct sp_bench *bench, const struct sp_step *steps, size_t count);

#endif
