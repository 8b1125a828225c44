#include "verify/page/plot_lines.h"
#include "verify/verdict/algorithm.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { SIZES_LEAST = 4 };

/* ---- which groups ---- */

bool sp_lines_drawn(const struct sp_bench *bench, size_t number)
{
    const size_t count = bench->group[number].row_count;
    size_t most = 0;

    for (size_t i = 0; i < bench->group_count; i++)
        most = bench->group[i].row_count > most ? bench->group[i].row_count : most;
    return count > 0 && (count >= SIZES_LEAST || count == most);
}

/* ---- the lines ---- */

static double fastest_through(const struct sp_bench_row *row, const char *transport)
{
    double least = 0;

    for (size_t i = 0; i < row->ours_count; i++) {
        const struct sp_bench_ours *ours = &row->ours[i];

        if (ours->wrong == 0 && ours->us.step > 0 && strcmp(sp_algorithm_transport(ours->algorithm), transport) == 0 &&
            (least <= 0 || ours->us.step < least))
            least = ours->us.step;
    }
    return least;
}

static void read_rivals(struct sp_lines_point *out, const struct sp_bench_group *group, const struct sp_bench_row *row)
{
    static const struct {
        const char *name;
        enum sp_line line;
    } known[] = {{"nccl", SP_LINE_NCCL}, {"nccl-no-p2p", SP_LINE_NCCL_NO_P2P}, {"v1", SP_LINE_V1}};

    for (size_t i = 0; i < group->rival_count; i++)
        for (size_t k = 0; k < sizeof known / sizeof *known; k++)
            if (strcmp(group->rival[i].name, known[k].name) == 0)
                out->us[known[k].line] = row->rival[i].step;
    out->stock = sp_bench_stock_us(row);
}

const struct sp_bench_ours *sp_lines_ours(const struct sp_bench_row *row)
{
    const int at = row->chosen >= 0 ? row->chosen : row->fastest;

    return at < 0 ? NULL : &row->ours[at];
}

static void read_row(struct sp_lines_point *out, const struct sp_bench_group *group, const struct sp_bench_row *row)
{
    const struct sp_bench_ours *ours = sp_lines_ours(row);

    memset(out, 0, sizeof *out);
    out->bytes = (double)row->bytes;
    out->served = row->chosen >= 0;
    if (ours) {
        out->us[SP_LINE_OURS] = ours->us.step;
        out->us[SP_LINE_MODEL] = ours->model;
        out->us[SP_LINE_HOST] = fastest_through(row, "host");
    }
    read_rivals(out, group, row);
}

/* What was saved may have been written by anybody: nothing that an axis cannot show. */
double sp_sane_us(double us)
{
    return us >= 1e-3 && us <= 1e9 ? us : 0;
}

static void measure(struct sp_lines *out)
{
    bool apart = false;

    for (size_t i = 0; i < out->count; i++) {
        struct sp_lines_point *point = &out->point[i];

        point->stock = sp_sane_us(point->stock);
        for (int line = 0; line < SP_LINES; line++)
            point->us[line] = sp_sane_us(point->us[line]);
        apart = apart || point->us[SP_LINE_HOST] > point->us[SP_LINE_OURS];
        for (int line = 0; line < SP_LINES; line++) {
            const double us = point->us[line];

            out->has[line] = out->has[line] || us > 0;
            out->least = us > 0 && (out->least <= 0 || us < out->least) ? us : out->least;
            out->most = us > out->most ? us : out->most;
        }
        if (point->us[SP_LINE_OURS] > 0)
            out->ratio = fmax(out->ratio, point->stock / point->us[SP_LINE_OURS]);
    }
    out->has[SP_LINE_HOST] = out->has[SP_LINE_HOST] && apart;
}

void sp_lines_of(struct sp_lines *out, const struct sp_bench_group *group)
{
    memset(out, 0, sizeof *out);
    for (size_t i = 0; i < group->row_count && out->count < SP_BENCH_SIZES; i++)
        if (group->row[i].bytes > 0)
            read_row(&out->point[out->count++], group, &group->row[i]);
    for (size_t i = 0; i < group->rival_count; i++)
        if (strcmp(group->rival[i].name, "nccl") == 0)
            (void)snprintf(out->nccl, sizeof out->nccl, "NCCL %s", group->rival[i].version);
    measure(out);
}

const char *sp_lines_name(const struct sp_lines *lines, enum sp_line line)
{
    static const char *const names[SP_LINES] = {
        [SP_LINE_MODEL] = "model, by the links' rates", [SP_LINE_V1] = "SGLang's own (V1)",
        [SP_LINE_NCCL_NO_P2P] = "NCCL without P2P",     [SP_LINE_NCCL] = "NCCL",
        [SP_LINE_HOST] = "sgl-pcie through the host",   [SP_LINE_OURS] = "sgl-pcie",
    };

    return line == SP_LINE_NCCL && lines->nccl[0] ? lines->nccl : names[line];
}

/* ---- numbers ---- */

const char *sp_size_label(char *out, double bytes)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB"};
    size_t unit = 0;

    while (bytes >= 1024 && unit + 1 < sizeof units / sizeof *units) {
        bytes /= 1024;
        unit++;
    }
    (void)snprintf(out, SP_SIZE_LABEL, "%.4g %s", bytes, units[unit]);
    return out;
}

size_t sp_ticks_sizes(double out[SP_TICKS], double least, double most, int about)
{
    const int from = (int)ceil(log2(least)), to = (int)floor(log2(most));
    const int step = (to - from) / about + 1;
    size_t count = 0;

    for (int power = from; power <= to && count < SP_TICKS; power++)
        if ((power - from) % step == 0)
            out[count++] = exp2(power);
    return count;
}

size_t sp_ticks_times(double out[SP_TICKS], double least, double most)
{
    static const double steps[] = {1, 2, 5};
    size_t count = 0;

    for (double decade = pow(10, floor(log10(least))); decade <= most; decade *= 10)
        for (size_t i = 0; i < sizeof steps / sizeof *steps && count < SP_TICKS; i++)
            if (decade * steps[i] >= least * 0.999 && decade * steps[i] <= most * 1.001)
                out[count++] = decade * steps[i];
    return count;
}
