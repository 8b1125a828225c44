/*
 * Which algorithm serves which size. It must beat what stock needs by more than the noise of both; of those that are
 * as fast as the fastest but for the noise, the one that served this size so far, else the one that stays so for the
 * most sizes that follow, then the simpler one. So a table has few changes, and a new run changes it only where a
 * difference is larger than the noise.
 */
#include "base/err.h"
#include "verify/bench/bench.h"
#include "verify/verdict/algorithm.h"

#include <string.h>

/* Of the slower of the two: medians of two runs differ by so much where nothing is wrong. */
static const double noise_least = 0.03;

double sp_bench_noise(const struct sp_bench_time *a, const struct sp_bench_time *b)
{
    const double spread = a->spread + b->spread, least = noise_least * (a->step > b->step ? a->step : b->step);

    return spread > least ? spread : least;
}

/* ---- one size ---- */

struct wanted {
    const char *const *transports; /* NULL-terminated */
};

static bool takes(const struct wanted *wanted, const char *algorithm)
{
    const char *is = sp_algorithm_transport(algorithm);
    bool found = false;

    for (size_t i = 0; wanted->transports[i]; i++)
        found = found || strcmp(wanted->transports[i], is) == 0;
    return found;
}

static bool counts(const struct wanted *wanted, const struct sp_bench_ours *ours)
{
    return ours->wrong == 0 && ours->us.step > 0 && takes(wanted, ours->algorithm);
}

static int find_fastest(const struct wanted *wanted, const struct sp_bench_row *row)
{
    int best = SP_BENCH_STOCK;

    for (size_t i = 0; i < row->ours_count; i++)
        if (counts(wanted, &row->ours[i]) && (best < 0 || row->ours[i].us.step < row->ours[best].us.step))
            best = (int)i;
    return best;
}

static bool beats_stock(const struct sp_bench_row *row, const struct sp_bench_time *us)
{
    const struct sp_bench_time *stock = row->stock < 0 ? NULL : &row->rival[row->stock];

    return stock && stock->step > 0 && us->step + sp_bench_noise(us, stock) < stock->step;
}

/* As fast as the fastest but for the noise, and faster than stock by more than that. */
static bool fits(const struct wanted *wanted, const struct sp_bench_row *row, const struct sp_bench_ours *ours)
{
    const int fastest = find_fastest(wanted, row);
    const struct sp_bench_time *best = fastest < 0 ? NULL : &row->ours[fastest].us;

    return best && counts(wanted, ours) && beats_stock(row, &ours->us) &&
           ours->us.step <= best->step + sp_bench_noise(&ours->us, best);
}

/* ---- all sizes ---- */

/* For how many sizes from this one on it fits. */
static size_t reach(const struct wanted *wanted, const struct sp_bench_group *group, size_t from, const char *algorithm)
{
    size_t end = from;

    for (; end < group->row_count; end++) {
        const int at = sp_bench_find(&group->row[end], algorithm);

        if (at < 0 || !fits(wanted, &group->row[end], &group->row[end].ours[at]))
            break;
    }
    return end - from;
}

static int choose(const struct wanted *wanted, const struct sp_bench_group *group, size_t at)
{
    const struct sp_bench_row *row = &group->row[at];
    int best = SP_BENCH_STOCK;
    size_t best_reach = 0;

    for (size_t i = 0; i < row->ours_count; i++) {
        const char *name = row->ours[i].algorithm;
        const size_t is = reach(wanted, group, at, name);

        if (is > best_reach ||
            (is == best_reach && is > 0 && sp_algorithm_rank(name) < sp_algorithm_rank(row->ours[best].algorithm))) {
            best = (int)i;
            best_reach = is;
        }
    }
    return best;
}

/* ---- what served so far ---- */

static bool takes_table(const struct wanted *wanted, const json_t *table)
{
    const json_t *entries = json_object_get(table, "entries");
    bool all = true;

    for (size_t i = 0; i < json_array_size(entries) && all; i++) {
        const char *algorithm = json_string_value(json_object_get(json_array_get(entries, i), "algorithm"));

        all = algorithm && (strcmp(algorithm, "stock") == 0 || takes(wanted, algorithm));
    }
    return all;
}

/* The algorithm of the first table that may be used, at exactly this size; NULL: there is none, or stock. */
static const char *served_by(const struct wanted *wanted, const struct sp_bench_group *group, uint64_t bytes)
{
    const json_t *entries = NULL;

    for (size_t i = 0; i < json_array_size(group->before) && !entries; i++)
        if (takes_table(wanted, json_array_get(group->before, i)))
            entries = json_object_get(json_array_get(group->before, i), "entries");
    for (size_t i = 0; i < json_array_size(entries); i++) {
        const json_t *entry = json_array_get(entries, i);

        if ((uint64_t)json_integer_value(json_object_get(entry, "max_bytes")) == bytes)
            return json_string_value(json_object_get(entry, "algorithm"));
    }
    return NULL;
}

/* It stays while nothing is faster by more than the noise, stock not at all. */
static int keep(const struct wanted *wanted, const struct sp_bench_group *group, const struct sp_bench_row *row)
{
    const char *name = served_by(wanted, group, row->bytes);
    const int at = name ? sp_bench_find(row, name) : -1, fastest = find_fastest(wanted, row);
    const struct sp_bench_time *best = fastest < 0 ? NULL : &row->ours[fastest].us;
    const struct sp_bench_time *us = at < 0 ? NULL : &row->ours[at].us;

    if (!us || !best || !counts(wanted, &row->ours[at]) || us->step >= sp_bench_stock_us(row))
        return SP_BENCH_STOCK;
    return us->step <= best->step + sp_bench_noise(us, best) ? at : SP_BENCH_STOCK;
}

/* ---- choosing ---- */

/* One that was chosen stays as long as it fits. */
static void choose_all(int *chosen, const struct wanted *wanted, const struct sp_bench_group *group)
{
    const char *before = NULL;

    for (size_t i = 0; i < group->row_count; i++) {
        const struct sp_bench_row *row = &group->row[i];

        chosen[i] = keep(wanted, group, row);
        if (chosen[i] < 0 && before && reach(wanted, group, i, before) > 0)
            chosen[i] = sp_bench_find(row, before);
        if (chosen[i] < 0)
            chosen[i] = choose(wanted, group, i);
        before = chosen[i] < 0 ? NULL : row->ours[chosen[i]].algorithm;
    }
}

/* ---- tables ---- */

/* All that passed, then what is left where only peers or only host memory may be used. A table of more transports
 * serves nobody who may not use one of them. */
static const char *const all[] = {"push", "pull", "host", NULL};
static const char *const peer[] = {"push", "pull", NULL};
static const char *const host[] = {"host", NULL};
static const struct wanted kinds[] = {{all}, {peer}, {host}};

enum { KINDS = sizeof kinds / sizeof *kinds };

static json_t *entry_json(const struct sp_bench_row *row, int chosen)
{
    const struct sp_bench_ours *ours = chosen < 0 ? NULL : &row->ours[chosen];
    const double stock = sp_bench_stock_us(row);
    json_t *entry =
        json_pack("{s:I, s:s}", "max_bytes", (json_int_t)row->bytes, "algorithm", ours ? ours->algorithm : "stock");

    if (ours)
        (void)json_object_update_new(entry, json_pack("{s:I, s:I, s:f}", "lanes", (json_int_t)ours->lanes, "threads",
                                                      (json_int_t)ours->threads, "us", ours->us.step));
    if (stock > 0)
        (void)json_object_set_new(entry, "stock_us", json_real(stock));
    return entry;
}

static json_t *table_json(const struct sp_bench_group *group, const int *chosen)
{
    json_t *gpus = json_array(), *entries = json_array();

    for (size_t i = 0; i < group->world; i++)
        (void)json_array_append_new(gpus, json_string(group->uuid[i]));
    for (size_t i = 0; i < group->row_count; i++)
        (void)json_array_append_new(entries, entry_json(&group->row[i], chosen[i]));
    return json_pack("{s:I, s:o, s:o}", "world", (json_int_t)group->world, "gpus", gpus, "entries", entries);
}

/* Was anything measured that this kind of table could name? */
static bool measured(const struct wanted *wanted, const struct sp_bench_group *group)
{
    bool any = false;

    for (size_t i = 0; i < group->row_count; i++)
        any = any || find_fastest(wanted, &group->row[i]) >= 0;
    return any;
}

static bool is_there(json_t *tables, json_t *table)
{
    bool found = false;

    for (size_t i = 0; i < json_array_size(tables); i++)
        found = found || json_equal(json_array_get(tables, i), table);
    return found;
}

static void add_table(struct sp_bench_group *group, const int *chosen)
{
    json_t *table = table_json(group, chosen);

    if (table && !is_there(group->tables, table))
        (void)json_array_append(group->tables, table);
    json_decref(table);
}

static void tune_group(struct sp_bench_group *group)
{
    int chosen[SP_BENCH_SIZES];

    json_decref(group->tables);
    group->tables = json_array();
    for (size_t k = 0; k < KINDS; k++) {
        if (k > 0 && !measured(&kinds[k], group))
            continue;
        choose_all(chosen, &kinds[k], group);
        if (group->row_count > 0)
            add_table(group, chosen);
        for (size_t i = 0; k == 0 && i < group->row_count; i++) {
            group->row[i].chosen = chosen[i];
            group->row[i].fastest = find_fastest(&kinds[0], &group->row[i]);
        }
    }
}

static int refuse_wrong(const struct sp_bench_group *group)
{
    int rc = SP_OK;

    for (size_t i = 0; i < group->row_count && rc == SP_OK; i++)
        for (size_t k = 0; k < group->row[i].ours_count && rc == SP_OK; k++)
            if (group->row[i].ours[k].wrong > 0)
                rc = sp_err(SP_EDATA, "%s gave %llu wrong elements at %llu bytes on %zu GPUs",
                            group->row[i].ours[k].algorithm, (unsigned long long)group->row[i].ours[k].wrong,
                            (unsigned long long)group->row[i].bytes, group->world);
    return rc;
}

int sp_bench_tune(struct sp_bench *bench)
{
    int rc = SP_OK;

    for (size_t i = 0; i < bench->group_count && rc == SP_OK; i++)
        rc = refuse_wrong(&bench->group[i]);
    for (size_t i = 0; i < bench->group_count; i++) {
        tune_group(&bench->group[i]);
        if (rc < 0)
            (void)json_array_clear(bench->group[i].tables);
    }
    return rc;
}
