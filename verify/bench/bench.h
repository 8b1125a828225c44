/*
 * What bench measured: ours and what SGLang would use without us, size by size, and what follows from it.
 *
 * A group is one world size on one set of GPUs. Times are microseconds per call in a CUDA graph: of each replay the
 * slowest rank, of the replays the median; 0 is "not measured". Back to back (nccl-tests' way), and in a step: a small
 * kernel between the calls, the same graph without them taken off. The one in a step decides, since the gap that a
 * kernel needs before it starts is part of its cost. What is clearly slower has no figure in a step.
 *
 *     bench_rows.c    from the JSON of sgl-pcie-gpu to this
 *     bench_json.c    to JSON, and from a result that was saved (bench.json, bench --json)
 *     tune.c          which algorithm serves which size
 *     bench_profile.c as the table that SGLang reads
 *     steps.c         what a decode or verify step saves
 *     troubles.c      what is slower than the links allow, in words
 *
 * Everything declared here is a pure function of what it is given.
 */
#ifndef SP_BENCH_BENCH_H
#define SP_BENCH_BENCH_H

#include "base/file.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    SP_BENCH_NAME = 32,   /* of an algorithm, a rival, a type */
    SP_BENCH_TEXT = 256,  /* settings, a path */
    SP_BENCH_SIZES = 64,  /* rows of a group */
    SP_BENCH_OURS = 16,   /* algorithms of a row */
    SP_BENCH_RIVALS = 4,  /* of a group */
    SP_BENCH_WORLD = 8,   /* GPUs of a group */
    SP_BENCH_GROUPS = 32, /* of a run */
    SP_BENCH_STOCK = -1   /* chosen: SGLang serves this size by itself */
};

/* Microseconds per call; 0: not measured. out and in: out of place and in place, back to back in a graph. spread: half
 * of what lies between the fast and the slow tenth of the replays, of the figure in a step. */
struct sp_bench_time {
    double out, in, step, eager, spread;
};

/* An algorithm of ours at a size. */
struct sp_bench_ours {
    char algorithm[SP_BENCH_NAME]; /* "host-one-shot", as in profile.json */
    struct sp_bench_time us;
    unsigned lanes, threads; /* 0: the library's rule */
    uint64_t wrong;          /* elements; then there are no times */
    double model;            /* least time by what the links did; 0: unknown */
};

struct sp_bench_row {
    uint64_t bytes;
    struct sp_bench_ours ours[SP_BENCH_OURS];
    size_t ours_count;
    struct sp_bench_time rival[SP_BENCH_RIVALS]; /* as the group's rivals */
    uint64_t rival_wrong[SP_BENCH_RIVALS];
    int stock;   /* index of the rival that stock would have used, SP_BENCH_STOCK: none was measured */
    int fastest; /* index into ours, by the time in a step; SP_BENCH_STOCK: none is right */
    int chosen;  /* index into ours; SP_BENCH_STOCK: stock serves this size */
};

/* What SGLang would use, or what it is shown beside. */
struct sp_bench_rival {
    char name[SP_BENCH_NAME];     /* "nccl", "v1" (SGLang's own custom all-reduce), "nccl-no-p2p" */
    bool stock;                   /* SGLang would use it here; else it informs */
    char version[SP_BENCH_NAME];  /* "2.28.9" */
    char path[SP_BENCH_TEXT];     /* of its library */
    char settings[SP_BENCH_TEXT]; /* of the environment: "NCCL_P2P_DISABLE=1" */
    char via[SP_BENCH_TEXT];      /* "SHM/direct/direct" */
    int channels;
    char error[SP_BENCH_TEXT]; /* why it was not measured; "": it was */
};

/* What the links did while nothing else ran; 0: not measured. */
struct sp_bench_rates {
    double node_us;                                                 /* an empty kernel in a graph */
    double host_us, peer_us;                                        /* one way: a word written until it is seen */
    double host_read, host_write, host_both, peer_read, peer_write; /* GB/s per GPU, all at once */
    double link, link_most; /* GB/s each way of the narrowest link of these GPUs, as trained, and as it could be */
};

struct sp_bench_group {
    size_t world;
    char *uuid[SP_BENCH_WORLD];
    size_t number[SP_BENCH_WORLD]; /* NVML's */
    char type[SP_BENCH_NAME];      /* "bf16" */
    size_t type_size;              /* bytes of an element */
    struct sp_bench_rival rival[SP_BENCH_RIVALS];
    size_t rival_count;
    struct sp_bench_rates rates;
    bool nvlink;              /* it joins all of them: SGLang leaves such a group alone, unless a backend is named */
    struct sp_bench_row *row; /* sizes rise */
    size_t row_count;
    json_t *before; /* tables that served so far, or NULL: what they chose stays where nothing beats it by the noise */
    json_t *tables; /* of profile.json, the best first; NULL until sp_bench_tune() */
};

struct sp_bench {
    char created[32]; /* UTC, "2026-11-30T01:40:00Z" */
    char gpu[SP_BENCH_TEXT];
    char driver[SP_BENCH_NAME];
    bool quick;
    struct sp_bench_group *group;
    size_t group_count;
    json_t *troubles; /* array of sentences, NULL until sp_bench_look() */
    json_t *steps;    /* as sp_steps_json() has them; NULL: none were asked for */
};

void sp_bench_free(struct sp_bench *bench);

/* Of several types that were measured on the same GPUs the one with the most sizes decides, then the first: a profile
 * knows bytes only. */
bool sp_bench_decides(const struct sp_bench *bench, size_t group);

/* nccl-tests' figures: GB/s of the message, and of the bus. */
double sp_bench_algbw(uint64_t bytes, double us);
double sp_bench_busbw(uint64_t bytes, double us, size_t world);

/* What stock takes at a row, and ours where it was chosen: in a step; 0: not measured. */
double sp_bench_stock_us(const struct sp_bench_row *row);
double sp_bench_chosen_us(const struct sp_bench_row *row);

/* The group of these GPUs and this type, added if there is none. SP_EFAIL: a type that is not known, too many groups;
 * SP_ECANNOT without memory. Valid until the next is added. */
int sp_bench_group_of(struct sp_bench_group **out, struct sp_bench *bench, const char *const *uuid,
                      const size_t *number, size_t world, const char *type);

/* The rival of a name, added if there is none. SP_EFAIL: unknown. */
int sp_bench_rival_of(size_t *out, struct sp_bench_group *group, const char *name);

/* The row of a size, made in its place if there is none. SP_EFAIL: there are too many. */
int sp_bench_row_of(struct sp_bench_row **out, struct sp_bench_group *group, uint64_t bytes);

/* The index of an algorithm in a row; -1: it is not there. */
int sp_bench_find(const struct sp_bench_row *row, const char *algorithm);

/* ---- bench_rows.c ---- */

/* How a run ended, by its own word. */
struct sp_bench_end {
    bool seen;
    size_t unmeasured; /* points that its budget left out */
};

/* Add what `sgl-pcie-gpu perf --stream` or `python -m sgl_pcie.stock --stream` printed: an object a line
 * (docs/json-schema/perf.schema.json). uuid and number: of the GPUs that it saw, `world` of them, whose groups it goes
 * to, one per type. SP_EFAIL with the line and the field that is wrong. */
int sp_bench_read_run(struct sp_bench *bench, struct sp_bench_end *end, const char *text, const char *const *uuid,
                      const size_t *number, size_t world);

/* Which rival is stock at each size: SGLang's own kernel where it was measured, else NCCL. */
void sp_bench_find_stock(struct sp_bench_group *group);

/* ---- bench_json.c ---- */

#define SP_BENCH_FILE   "bench.json"
#define SP_BENCH_SCHEMA "sgl-pcie-bench/1"

/* The result as bench --json has it under "bench"; a new reference, or NULL without memory. */
json_t *sp_bench_json(const struct sp_bench *bench);
/* And back: a whole object of bench --json, or what is in its "bench". Its tables become `before`: tune. SP_EFAIL with
 * the place and the field that is wrong. To be freed in any case. */
int sp_bench_read(struct sp_bench *out, const json_t *content);

/* ---- tune.c ---- */

/* Choose for every row of every group, and make the tables. SP_EDATA, and no tables, where an algorithm was wrong; what
 * is right is chosen all the same, to be shown. */
int sp_bench_tune(struct sp_bench *bench);

/* Two times that differ by less are equal: their spreads together, and at least 3 % of the slower. */
double sp_bench_noise(const struct sp_bench_time *a, const struct sp_bench_time *b);

/* ---- bench_profile.c ---- */

/* *out: a new profile (profile.h), bound as `bound` says (bound.h). It must be tuned. SP_ECANNOT without memory. */
int sp_bench_profile(json_t **out, const struct sp_bench *bench, const json_t *bound);

/* What served the bench's GPUs so far becomes `before` of its groups: of a profile that is bound to the same. */
void sp_bench_remember(struct sp_bench *bench, const json_t *profile, const json_t *bound);

/* ---- troubles.c ---- */

/* What is slower than the links allow, and what it looks like: a narrow link, memory far away, posted writes that
 * collapse; and stock that is wrong. SP_ECANNOT without memory. */
int sp_bench_look(struct sp_bench *bench);

#endif
