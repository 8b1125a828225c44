#include "cli/bench_show.h"
#include "verify/verdict/profile.h"

#include <stdlib.h>
#include <string.h>

enum { CELL = 32, COLUMNS = 20 };

/* ---- cells ---- */

struct cells {
    char text[COLUMNS][CELL];
    const char *at[COLUMNS];
    size_t count;
};

static void add(struct cells *cells, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

static void add(struct cells *cells, const char *fmt, ...)
{
    va_list args;

    if (cells->count == COLUMNS)
        return;
    va_start(args, fmt);
    (void)vsnprintf(cells->text[cells->count], CELL, fmt, args);
    va_end(args);
    cells->at[cells->count] = cells->text[cells->count];
    cells->count++;
}

static void add_number(struct cells *cells, bool known, int decimals, double value)
{
    if (known)
        add(cells, "%.*f", decimals, value);
    else
        add(cells, "-");
}

/* Three figures say all that the spread leaves true. */
static void add_us(struct cells *cells, double us)
{
    add_number(cells, us > 0, us < 100 ? 2 : 0, us);
}

/* ---- the table of a group ---- */

static const char *rival_head(const struct sp_bench_rival *rival)
{
    return strcmp(rival->name, "nccl-no-p2p") == 0 ? "no-p2p" : rival->name;
}

/* Stock first, then what is there for comparison. */
static size_t rivals_of(size_t out[SP_BENCH_RIVALS], const struct sp_bench_group *group)
{
    size_t count = 0;

    for (int stock = 1; stock >= 0; stock--)
        for (size_t i = 0; i < group->rival_count; i++)
            if (group->rival[i].stock == (stock == 1))
                out[count++] = i;
    return count;
}

static void heads_of(struct cells *out, const struct sp_report *report, const struct sp_bench_group *group)
{
    static const char *const fixed[] = {"size",  "count",  "type",      "time", "algbw",
                                        "busbw", "#wrong", "algorithm", "step", "spread"};
    size_t rival[SP_BENCH_RIVALS];
    const size_t rivals = rivals_of(rival, group);

    out->count = 0;
    for (size_t i = 0; i < sizeof fixed / sizeof *fixed; i++)
        add(out, "%s", fixed[i]);
    if (report->verbose)
        add(out, "eager");
    for (size_t i = 0; i < rivals; i++)
        if (!group->rival[rival[i]].error[0])
            add(out, "%s", rival_head(&group->rival[rival[i]]));
    add(out, "ratio");
    add(out, "x model");
    add(out, "serves");
}

/* ours: NULL where none is right. */
static void row_of(struct cells *out, const struct sp_report *report, const struct sp_bench_group *group,
                   const struct sp_bench_row *row, const struct sp_bench_ours *ours)
{
    static const struct sp_bench_ours none = {.algorithm = "-"};
    const double stock = sp_bench_stock_us(row);
    const bool serves = ours && row->chosen >= 0 && &row->ours[row->chosen] == ours;
    size_t rival[SP_BENCH_RIVALS];
    const size_t rivals = rivals_of(rival, group);
    double step;

    out->count = 0;
    ours = ours ? ours : &none;
    step = ours->us.step;
    add(out, "%llu", (unsigned long long)row->bytes);
    add(out, "%llu", (unsigned long long)(row->bytes / group->type_size));
    add(out, "%s", group->type);
    add_us(out, ours->us.out);
    add(out, "%.2f", sp_bench_algbw(row->bytes, ours->us.out));
    add(out, "%.2f", sp_bench_busbw(row->bytes, ours->us.out, group->world));
    add(out, "%llu", (unsigned long long)ours->wrong);
    add(out, "%s", ours->algorithm);
    add_us(out, ours->us.step);
    add_us(out, ours->us.spread);
    if (report->verbose)
        add_us(out, ours->us.eager);
    for (size_t i = 0; i < rivals; i++)
        if (!group->rival[rival[i]].error[0])
            add_us(out, row->rival[rival[i]].step);
    add_number(out, stock > 0 && step > 0, 2, step > 0 ? stock / step : 0);
    add_number(out, ours->model > 0 && step > 0, 1, ours->model > 0 ? step / ours->model : 0);
    add(out, "%s", serves ? "ours" : row->chosen < 0 ? "stock" : "");
}

/* The one that serves, else the fastest; with --verbose all. */
static bool is_shown(const struct sp_report *report, const struct sp_bench_row *row, size_t at)
{
    const int main_one = row->chosen >= 0 ? row->chosen : row->fastest;

    return report->verbose || row->ours[at].wrong > 0 || (int)at == main_one;
}

static int add_rows(struct sp_table *table, const struct sp_report *report, const struct sp_bench_group *group,
                    const struct sp_bench_row *row)
{
    struct cells cells;
    bool any = false;
    int rc = SP_OK;

    for (size_t i = 0; i < row->ours_count && rc == SP_OK; i++) {
        if (!is_shown(report, row, i))
            continue;
        row_of(&cells, report, group, row, &row->ours[i]);
        rc = sp_table_row(table, cells.at);
        any = true;
    }
    if (rc == SP_OK && !any) {
        row_of(&cells, report, group, row, NULL);
        rc = sp_table_row(table, cells.at);
    }
    return rc;
}

static const char *paint(size_t column, const char *cell)
{
    if (column == 6)
        return strcmp(cell, "0") == 0 || strcmp(cell, "#wrong") == 0 ? NULL : "31";
    return strcmp(cell, "ours") == 0 ? "32" : strcmp(cell, "stock") == 0 ? "2" : NULL;
}

static int show_table(const struct sp_report *report, const struct sp_bench_group *group)
{
    struct sp_table *table = NULL;
    struct cells heads;
    int rc;

    heads_of(&heads, report, group);
    rc = sp_table_new(&table, heads.count, heads.at);
    for (size_t i = 0; i < group->row_count && rc == SP_OK; i++)
        rc = add_rows(table, report, group, &group->row[i]);
    if (rc == SP_OK)
        sp_report_table(report, table, paint);
    else
        sp_table_free(table);
    return rc;
}

/* ---- what stands above it ---- */

static void show_rival(const struct sp_bench_rival *rival)
{
    (void)printf("# %s: ", rival->name);
    if (rival->error[0])
        (void)printf("not measured: %s", rival->error);
    else if (strcmp(rival->name, "v1") == 0)
        (void)printf("SGLang's own custom all-reduce");
    else
        (void)printf("NCCL %s, %d channels%s%s", rival->version[0] ? rival->version : "?", rival->channels,
                     rival->via[0] ? ", via " : "", rival->via);
    (void)printf("%s%s%s\n", rival->settings[0] ? "; " : "", rival->settings, rival->stock ? "" : " (for comparison)");
}

static void show_links(const struct sp_bench_rates *rates)
{
    if (rates->node_us <= 0)
        return;
    (void)printf("# links: host memory %.1f us one way, read %.0f write %.0f both %.0f GB/s per GPU", rates->host_us,
                 rates->host_read, rates->host_write, rates->host_both);
    if (rates->peer_us > 0)
        (void)printf("; peers %.1f us, read %.0f write %.0f GB/s", rates->peer_us, rates->peer_read, rates->peer_write);
    (void)printf("; a graph node %.1f us\n", rates->node_us);
}

static void show_head(const struct sp_bench *bench, const struct sp_bench_group *group)
{
    size_t rival[SP_BENCH_RIVALS];
    const size_t rivals = rivals_of(rival, group);

    (void)printf("# GPUs");
    for (size_t i = 0; i < group->world; i++)
        (void)printf("%s%zu", i ? "," : " ", group->number[i]);
    (void)printf(" (%s), driver %s, %s\n", bench->gpu[0] ? bench->gpu : "unknown",
                 bench->driver[0] ? bench->driver : "unknown", bench->created[0] ? bench->created : "at no known time");
    for (size_t i = 0; i < rivals; i++)
        show_rival(&group->rival[rival[i]]);
    show_links(&group->rates);
    (void)printf("# us per call, median of the slowest rank, of our fastest algorithm and of what "
                 "SGLang would use; time: back to back in a CUDA graph; step and what is right of it: inside a step\n");
}

/* Other types on the same GPUs were measured in the same run. */
static bool is_alike(const struct sp_bench_group *a, const struct sp_bench_group *b)
{
    return a->world == b->world && memcmp(a->number, b->number, a->world * sizeof *a->number) == 0;
}

int sp_show_bench(const struct sp_report *report, const struct sp_bench *bench)
{
    const json_t *item;
    size_t i;
    int rc = SP_OK;

    for (size_t k = 0; k < bench->group_count && rc == SP_OK; k++) {
        if (k == 0 || !is_alike(&bench->group[k - 1], &bench->group[k]))
            show_head(bench, &bench->group[k]);
        rc = show_table(report, &bench->group[k]);
        (void)putchar('\n');
    }
    json_array_foreach(bench->troubles, i, item)(void) printf("warn  %s\n", json_string_value(item));
    if (json_array_size(bench->troubles) > 0)
        (void)putchar('\n');
    return rc;
}

/* ---- steps ---- */

/* Where a step is looked at: a table of a group. */
struct place {
    const struct sp_bench_group *group;
    size_t table;
};

enum { PLACES = 64 };

static size_t places_of(struct place out[PLACES], const struct sp_bench *bench)
{
    size_t count = 0;

    for (size_t i = 0; i < bench->group_count; i++)
        for (size_t k = 0; sp_bench_decides(bench, i) && k < sp_step_tables(&bench->group[i]) && count < PLACES; k++)
            out[count++] = (struct place){&bench->group[i], k};
    return count;
}

static const char *remark(const struct sp_saving *is)
{
    return !is->known     ? "not measured up to there"
           : !is->served  ? "stock stays"
           : is->measured ? ""
           : is->below    ? "as the smallest size"
                          : "between sizes";
}

static int step_row(struct sp_table *table, const struct place *at, const struct sp_step *step)
{
    struct cells cells = {.count = 0};
    char backends[SP_BENCH_NAME];
    struct sp_saving is;

    sp_step_cost(&is, at->group, at->table, step);
    add(&cells, step->count == 1 ? "%.31s" : "%.27s ...", step->name);
    add(&cells, "%zu", at->group->world);
    add(&cells, "%s", sp_step_backends(backends, at->group, at->table));
    add(&cells, "%llu x %llu%s", (unsigned long long)step->times[0], (unsigned long long)step->bytes[0],
        step->count == 1 ? "" : ", ...");
    add_number(&cells, is.known, 2, is.stock_ms);
    add_number(&cells, is.known, 2, is.ours_ms);
    add_number(&cells, is.known, 2, is.stock_ms - is.ours_ms);
    add(&cells, "%s", remark(&is));
    return sp_table_row(table, cells.at);
}

static int show_sentences(const struct place *place, size_t count, const struct sp_step *step)
{
    struct sp_buf text = SP_BUF_INIT;
    int rc = SP_OK;

    for (size_t i = 0; i < count && rc == SP_OK; i++) {
        sp_buf_free(&text);
        rc = sp_step_say(&text, place[i].group, place[i].table, step);
        if (rc == SP_OK)
            (void)printf("%s.\n", text.data);
    }
    sp_buf_free(&text);
    return rc;
}

int sp_show_steps(const struct sp_report *report, const struct sp_bench *bench, const struct sp_step *steps,
                  size_t count)
{
    static const char *const heads[] = {"step",     "GPUs",    "backends", "all-reduces",
                                        "stock ms", "ours ms", "saved ms", ""};
    struct place place[PLACES];
    const size_t places = places_of(place, bench);
    struct sp_table *table = NULL;
    int rc = count * places > 0 ? sp_table_new(&table, 8, heads) : SP_OK;

    for (size_t i = 0; i < count * places && rc == SP_OK; i++)
        rc = step_row(table, &place[i % places], &steps[i / places]);
    if (rc == SP_OK && table)
        sp_report_table(report, table, NULL);
    else
        sp_table_free(table);
    if (rc == SP_OK && count == 1)
        rc = show_sentences(place, places, &steps[0]);
    if (rc == SP_OK && count * places > 0)
        (void)putchar('\n');
    return rc;
}
