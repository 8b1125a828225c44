#include "verify/page/plot_script.h"
#include "base/err.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Pixels. */
enum {
    WIDTH = 960,
    HEAD = 78,
    TIMES = 380,
    RATIOS = 190,
    LEFT = 78,
    RIGHT = 24,
    FOOT = 58,
    GAP = 18,
    AXIS = 22,
    LABEL = 11 /* characters of a size and the gap behind it */
};
enum { GROUP = HEAD + TIMES + RATIOS };

/* Colours that stay apart for colour-blind eyes and on paper, where the dashes do. */
static const struct {
    const char *colour, *dash;
    double width;
    int point; /* gnuplot's number in files; 0: none */
    int letter;
} looks[SP_LINES] = {
    [SP_LINE_MODEL] = {"#8a8f98", "1", 1.2, 0, 0},       [SP_LINE_V1] = {"#8b4fbf", "4", 1.6, 9, 22},
    [SP_LINE_NCCL_NO_P2P] = {"#c77700", "2", 1.6, 4, 0}, [SP_LINE_NCCL] = {"#c2410c", "1", 1.8, 5, 14},
    [SP_LINE_HOST] = {"#0b8a74", "2", 1.8, 6, 0},        [SP_LINE_OURS] = {"#1257c9", "1", 2.6, 7, 15},
};

/* ---- data ---- */

static void put_number(struct sp_out *out, double value)
{
    if (value > 0)
        sp_put(out, " %.6g", value);
    else
        sp_put(out, " -");
}

/* Bytes, the lines, then the ratio where ours serves and where it does not. */
static void put_data(struct sp_out *out, const struct sp_lines *lines, size_t number)
{
    sp_put(out, "$d%zu << EOD\n", number);
    for (size_t i = 0; i < lines->count; i++) {
        const struct sp_lines_point *point = &lines->point[i];
        const double ours = point->us[SP_LINE_OURS], ratio = ours > 0 ? point->stock / ours : 0;

        sp_put(out, "%.0f", point->bytes);
        for (int line = 0; line < SP_LINES; line++)
            put_number(out, point->us[line]);
        put_number(out, ratio);
        put_number(out, point->served ? ratio : 0);
        put_number(out, point->served ? 0 : ratio);
        sp_put(out, "\n");
    }
    sp_put(out, "EOD\n");
}

/* ---- axes ---- */

static void put_size_axis(struct sp_out *out, const struct sp_lines *lines, bool names, int about)
{
    const double first = lines->point[0].bytes, last = lines->point[lines->count - 1].bytes;
    double tick[SP_TICKS];
    const size_t count = sp_ticks_sizes(tick, first, last, about);
    char text[SP_SIZE_LABEL];

    sp_put(out, "set logscale x\nset xrange [%.6g:%.6g]\nset xtics (", first / 1.3, last * 1.3);
    for (size_t i = 0; i < count; i++)
        sp_put(out, "%s'%s' %.0f", i ? ", " : "", names ? sp_size_label(text, tick[i]) : "", tick[i]);
    sp_put(out, ")\n");
}

static void put_time_axis(struct sp_out *out, const struct sp_lines *lines)
{
    double tick[SP_TICKS];
    const double least = lines->least / 1.25, most = lines->most * 1.4;
    const size_t count = sp_ticks_times(tick, least, most);

    sp_put(out, "set logscale y\nset yrange [%.6g:%.6g]\nset ytics (", least, most);
    for (size_t i = 0; i < count; i++)
        sp_put(out, "%s'%g' %g", i ? ", " : "", tick[i], tick[i]);
    sp_put(out, ")\n");
}

/* ---- panels ---- */

/* Where a group is among those that are drawn. */
struct place {
    size_t number, count;
};

/* From pixels below the upper edge of a group to gnuplot's share of the whole height. */
static double at(struct place place, int pixels)
{
    return 1 - ((double)place.number * GROUP + pixels) / ((double)place.count * GROUP);
}

static void put_panel(struct sp_out *out, struct place place, int top, int bottom)
{
    sp_put(out,
           "set lmargin at screen %.6f\nset rmargin at screen %.6f\nset tmargin at screen %.6f\n"
           "set bmargin at screen %.6f\n",
           (double)LEFT / WIDTH, 1 - (double)RIGHT / WIDTH, at(place, top), at(place, bottom));
}

static void put_times(struct sp_out *out, const struct sp_lines *lines, size_t number)
{
    bool first = true;

    sp_put(out, "set key left top vertical maxcols 1 maxrows 9 width 0 reverse Left samplen 3\nplot ");
    for (int line = SP_LINES - 1; line >= 0; line--) {
        if (!lines->has[line])
            continue;
        sp_put(out, "%s$d%zu using 1:%d title ", first ? "" : ", ", number, line + 2);
        sp_put_quoted(out, sp_lines_name(lines, (enum sp_line)line));
        sp_put(out, " with %s lc rgb '%s' lw %g dt %s", looks[line].point ? "linespoints" : "lines", looks[line].colour,
               looks[line].width, looks[line].dash);
        if (looks[line].point)
            sp_put(out, " pt %d ps 0.7", looks[line].point);
        first = false;
    }
    sp_put(out, "\n");
}

/* Filled where the profile takes ours. */
static void put_ratios(struct sp_out *out, const struct sp_lines *lines, size_t number)
{
    const char *colour = looks[SP_LINE_OURS].colour;
    const double most = fmax(lines->ratio, 1);
    const int column = SP_LINES + 2;

    sp_put(out,
           "unset logscale y\nset yrange [0:%.6g]\nset ytics %g\n"
           "set key right top horizontal maxcols 2 maxrows 1 width -3 reverse Left samplen 1\n",
           most * 1.3, exp2(ceil(log2(most / 4))));
    sp_put(out, "plot 1 notitle with lines lc rgb '#8a8f98' lw 1.2, ");
    sp_put(out, "$d%zu using 1:%d notitle with lines lc rgb '%s' lw 2, ", number, column, colour);
    sp_put(out, "$d%zu using 1:%d title 'served by sgl-pcie' with points pt 7 ps 0.9 lc rgb '%s', ", number, column + 1,
           colour);
    sp_put(out, "$d%zu using 1:%d title 'left to stock' with points pt 6 ps 0.9 lc rgb '%s'\n", number, column + 2,
           colour);
}

/* ---- titles ---- */

/* A title is put together first and quoted as a whole. */
static void put_label(struct sp_out *out, struct sp_out *text, const char *how, int x, double y)
{
    if (out->rc == SP_OK)
        out->rc = text->rc;
    sp_put(out, "set label ");
    sp_put_quoted(out, text->buf.data);
    sp_put(out, " at screen %.6f,%.6f %s\n", (double)x / WIDTH, y, how);
    sp_buf_free(&text->buf);
}

static void put_day(struct sp_out *out, const char *created)
{
    if (strlen(created) >= 16) /* 2026-11-30T01:40:00Z */
        sp_put(out, ", %.10s %.5s UTC", created, created + 11);
}

static void put_circumstances(struct sp_out *out, const struct sp_bench *bench, const struct sp_bench_group *group)
{
    sp_put(out, "%zu x %s", group->world, bench->gpu[0] ? bench->gpu : "unknown GPU");
    for (size_t i = 0; i < group->rival_count; i++) {
        const struct sp_bench_rival *rival = &group->rival[i];

        if (!rival->error[0] && rival->stock && strcmp(rival->name, "nccl") == 0)
            sp_put(out, ", NCCL %s%s%s%s", rival->version, rival->via[0] ? " (" : "", rival->via,
                   rival->via[0] ? ")" : "");
    }
    sp_put(out, ", CUDA graphs");
    put_day(out, bench->created);
}

static void put_titles(struct sp_out *out, const struct sp_bench *bench, const struct sp_bench_group *group,
                       struct place place)
{
    struct sp_out title = {.rc = SP_OK}, below = {.rc = SP_OK}, times = {.rc = SP_OK}, ratios = {.rc = SP_OK};

    sp_put(&title, "All-reduce of %zu GPUs, %s", group->world, group->type);
    put_circumstances(&below, bench, group);
    sp_put(&times, "microseconds in a step");
    sp_put(&ratios, "times as fast");
    put_label(out, &title, "left font ',17'", LEFT, at(place, 26));
    put_label(out, &below, "left font ',12' textcolor rgb '#5b616b'", LEFT, at(place, 52));
    put_label(out, &times, "center rotate by 90 textcolor rgb '#3a3f47'", AXIS, at(place, HEAD + (TIMES - GAP) / 2));
    put_label(out, &ratios, "center rotate by 90 textcolor rgb '#3a3f47'", AXIS,
              at(place, (HEAD + TIMES + GROUP - FOOT) / 2));
}

/* ---- whole scripts ---- */

static void put_group(struct sp_out *out, const struct sp_bench *bench, size_t number, struct place place)
{
    struct sp_lines lines;

    sp_lines_of(&lines, &bench->group[number]);
    if (lines.most <= 0)
        return;
    put_data(out, &lines, number);
    put_titles(out, bench, &bench->group[number], place);
    put_panel(out, place, HEAD, HEAD + TIMES - GAP);
    put_size_axis(out, &lines, false, 8);
    put_time_axis(out, &lines);
    put_times(out, &lines, number);
    sp_put(out, "unset label\n");
    put_panel(out, place, HEAD + TIMES, GROUP - FOOT);
    put_size_axis(out, &lines, true, 8);
    put_ratios(out, &lines, number);
}

static void put_terminal(struct sp_out *out, enum sp_plot_format format, size_t groups)
{
    const int height = (int)groups * GROUP;

    if (format == SP_PLOT_SVG)
        sp_put(out,
               "set terminal svg size %d,%d dynamic noenhanced name 'sgl_pcie' background rgb 'white' "
               "font 'Helvetica,Arial,sans-serif,13' linewidth 1\n",
               WIDTH, height);
    else
        sp_put(out,
               "set terminal pngcairo size %d,%d noenhanced background rgb 'white' font 'sans,13' "
               "fontscale 1.5 linewidth 1.5 pointscale 1.5\n",
               WIDTH * 3 / 2, height * 3 / 2);
}

void sp_script_file(struct sp_out *out, const struct sp_bench *bench, enum sp_plot_format format)
{
    struct place place = {0, 0};

    for (size_t i = 0; i < bench->group_count; i++)
        place.count += sp_lines_drawn(bench, i);
    sp_put(out, "set encoding utf8\nset datafile missing '-'\n");
    put_terminal(out, format, place.count);
    sp_put(out, "set border 3 lc rgb '#5b616b'\nset tics nomirror textcolor rgb '#3a3f47'\n"
                "set grid lc rgb '#e3e6ea' lt 1 lw 1\nset multiplot\n");
    for (size_t i = 0; i < bench->group_count; i++)
        if (sp_lines_drawn(bench, i)) {
            put_group(out, bench, i, place);
            place.number++;
        }
    sp_put(out, "unset multiplot\n");
}

void sp_script_text(struct sp_out *out, const struct sp_bench_group *group, unsigned columns, unsigned rows)
{
    static const enum sp_line shown[] = {SP_LINE_NCCL, SP_LINE_V1, SP_LINE_OURS};
    struct sp_lines lines;
    bool first = true;

    sp_lines_of(&lines, group);
    sp_put(out, "set terminal dumb nofeed mono noenhanced size %u,%u\nset datafile missing '-'\n", columns, rows);
    put_data(out, &lines, 0);
    put_size_axis(out, &lines, true, columns < 8 * LABEL ? (int)columns / LABEL : 8);
    put_time_axis(out, &lines);
    sp_put(out, "set key left top reverse Left\nset title 'all-reduce of %zu GPUs, microseconds in a step'\nplot ",
           group->world);
    for (size_t i = 0; i < sizeof shown / sizeof *shown; i++) {
        const enum sp_line line = shown[i];

        if (!lines.has[line])
            continue;
        sp_put(out, "%s$d0 using 1:%d title ", first ? "" : ", ", line + 2);
        sp_put_quoted(out, sp_lines_name(&lines, line));
        sp_put(out, " with linespoints pt %d", looks[line].letter);
        first = false;
    }
    sp_put(out, "\n");
}
