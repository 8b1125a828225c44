/*
 * What gnuplot is told: a script with its data inside, made of bytes that only gnuplot's own quoting can end.
 */
#ifndef SP_PAGE_PLOT_SCRIPT_H
#define SP_PAGE_PLOT_SCRIPT_H

#include "verify/page/out.h"
#include "verify/page/plot_lines.h"

enum sp_plot_format { SP_PLOT_SVG, SP_PLOT_PNG };

/* All groups, each with its time above its ratio. */
void sp_script_file(struct sp_out *out, const struct sp_bench *bench, enum sp_plot_format format);

/* One group in characters. */
void sp_script_text(struct sp_out *out, const struct sp_bench_group *group, unsigned columns, unsigned rows);

#endif
