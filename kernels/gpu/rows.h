/*
 * rows.h: what perf found, as lines: the columns of nccl-tests for people, JSON objects for programs.
 */
#ifndef GPU_ROWS_H
#define GPU_ROWS_H

#include "model.h"
#include "report.h"
#include "timing.h"

/* Whose all-reduce. NCCL as the environment has it, which is what SGLang would use, and kept from P2P. */
typedef enum { BY_OURS, BY_NCCL, BY_NCCL_NO_P2P } maker;

typedef struct {
    int group, world, dtype;
    maker by;
    findings found;
    double model; /* us; 0: none */
} row;

/* What a group of processes is, beside its rows. */
typedef struct {
    int group, world;
    unsigned transports; /* bits of those that were set up */
    int has_nccl, no_p2p;
    nccl rival;
    char environment[512]; /* its settings */
    int has_links;
    link_rates links;
} group_head;

const char *row_name(const row *r);

/* {"kind":"row",...} and {"kind":"group",...}, without a newline. */
void row_json(text *t, const row *r);
void group_json(text *t, const group_head *h);

/* The table; rival: the row to compare with, or null. */
void row_table_head(const group_head *h, const options *o);
void row_table(const row *r, const row *rival);

#endif
