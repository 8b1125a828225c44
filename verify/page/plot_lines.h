/*
 * The lines of a plot: what of a group's measurements is drawn, in which order, under which name. A pure function.
 */
#ifndef SP_PAGE_PLOT_LINES_H
#define SP_PAGE_PLOT_LINES_H

#include "verify/bench/bench.h"

enum sp_line {
    SP_LINE_MODEL,       /* the least that the links allow ours */
    SP_LINE_V1,          /* SGLang's own custom all-reduce */
    SP_LINE_NCCL_NO_P2P, /* NCCL through host memory */
    SP_LINE_NCCL,
    SP_LINE_HOST, /* the fastest of ours through host memory, where another transport is faster */
    SP_LINE_OURS, /* what serves it; the fastest of ours where stock does */
    SP_LINES
};

struct sp_lines_point {
    double bytes;
    double us[SP_LINES]; /* in a step; 0: not measured */
    double stock;        /* what stock would take; 0: unknown */
    bool served;         /* by ours, the profile says */
};

struct sp_lines {
    struct sp_lines_point point[SP_BENCH_SIZES];
    size_t count;
    bool has[SP_LINES];
    double least, most;           /* of all times; 0 without any */
    double ratio;                 /* the largest of stock's time to ours; 0 without any */
    char nccl[SP_BENCH_NAME + 8]; /* "NCCL 2.28.9" */
};

/* Is this group worth a picture? A handful of sizes of another type is none, unless there is nothing else. */
bool sp_lines_drawn(const struct sp_bench *bench, size_t number);

/* The same, or 0 for what no axis can show. */
double sp_sane_us(double us);

/* What is shown as ours at a size: what serves it, else the fastest that is right. NULL: nothing. */
const struct sp_bench_ours *sp_lines_ours(const struct sp_bench_row *row);

void sp_lines_of(struct sp_lines *out, const struct sp_bench_group *group);
const char *sp_lines_name(const struct sp_lines *lines, enum sp_line line);

enum { SP_SIZE_LABEL = 16, SP_TICKS = 16 };

/* "2 KiB", "42 KiB", "1.5 MiB", "100 B". out: SP_SIZE_LABEL bytes. */
const char *sp_size_label(char *out, double bytes);

/* Round values within an axis that rises by factors, and their number. Of sizes: powers of two, not many more than
 * `about`, which is at most SP_TICKS / 2; of times: 1, 2, 5, 10 … */
size_t sp_ticks_sizes(double out[SP_TICKS], double least, double most, int about);
size_t sp_ticks_times(double out[SP_TICKS], double least, double most);

#endif
