/*
 * Pictures of what bench measured, drawn by gnuplot: time against size, and how much faster than stock.
 *
 * gnuplot is looked for when it is needed and only then. It runs as a child with a time limit, without the user's
 * settings, gets script and data on its standard input, and leaves no file behind: what it draws comes back through a
 * pipe. The page of `report` draws its own (page_chart.c), so that a server needs no gnuplot.
 *
 *     rc = sp_plot_check(path);              // before the measuring: a wrong ending should not cost a minute
 *     ...
 *     rc = sp_plot_file(path, &bench);       // after sp_bench_tune()
 */
#ifndef SP_PAGE_PLOT_H
#define SP_PAGE_PLOT_H

#include "verify/bench/bench.h"

/* Can a plot be written to this file, or shown, for "-"? SP_EUSAGE: it ends neither in .svg nor in .png; SP_ECANNOT: no
 * gnuplot, or no place. */
int sp_plot_check(const char *path);

/* All groups, one below the other. SP_EFAIL where nothing was measured. */
int sp_plot_file(const char *path, const struct sp_bench *bench);

/* One group as characters, `columns` wide; what is too small or too large for that is as near as it can be. SP_ECANNOT
 * without gnuplot. */
int sp_plot_text(struct sp_buf *out, const struct sp_bench_group *group, unsigned columns);

/* As wide as standard output, if that is a terminal; else 80. */
unsigned sp_plot_columns(void);

#endif
