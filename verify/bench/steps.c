#include "verify/bench/steps.h"
#include "base/err.h"
#include "verify/verdict/algorithm.h"
#include "verify/verdict/profile.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- a time between those measured ---- */

/* A straight line through logarithms: times rise with sizes as a power. */
static double between(double bytes, double low, double low_us, double high, double high_us)
{
    if (low_us <= 0)
        return high_us;
    return exp(log(low_us) + (log(high_us) - log(low_us)) * (log(bytes) - log(low)) / (log(high) - log(low)));
}

/* The row that serves a size: the first that is not smaller; row_count: none. */
static size_t row_for(const struct sp_bench_group *group, uint64_t bytes)
{
    size_t at = 0;

    while (at < group->row_count && group->row[at].bytes < bytes)
        at++;
    return at;
}

static double step_of(const struct sp_bench_row *row, const char *algorithm)
{
    const int at = sp_bench_find(row, algorithm);

    return at < 0 ? 0 : row->ours[at].us.step;
}

static double stock_at(const struct sp_bench_group *group, size_t at, uint64_t bytes)
{
    const struct sp_bench_row *row = &group->row[at];
    const double us = sp_bench_stock_us(row);

    if (us <= 0 || row->bytes == bytes || at == 0)
        return us;
    return between((double)bytes, (double)row[-1].bytes, sp_bench_stock_us(&row[-1]), (double)row->bytes, us);
}

/* ---- a table ---- */

size_t sp_step_tables(const struct sp_bench_group *group)
{
    const size_t count = json_array_size(group->tables);

    return count > 0 ? count : 1;
}

static const json_t *entries_of(const struct sp_bench_group *group, size_t table)
{
    return json_object_get(json_array_get(group->tables, table), "entries");
}

/* The algorithm that serves a row by a table, which has an entry for each; NULL: stock. Where there are no tables,
 * since an algorithm was wrong, what would have been chosen. */
static const char *server_of(const struct sp_bench_group *group, size_t table, size_t at)
{
    const struct sp_bench_row *row = &group->row[at];
    const json_t *entry = json_array_get(entries_of(group, table), at);
    const char *name = json_string_value(json_object_get(entry, "algorithm"));

    if (!entry)
        return row->chosen < 0 ? NULL : row->ours[row->chosen].algorithm;
    return name && sp_algorithm_known(name) ? name : NULL;
}

static double ours_at(const struct sp_bench_group *group, size_t at, const char *algorithm, uint64_t bytes)
{
    const struct sp_bench_row *row = &group->row[at];
    const double us = step_of(row, algorithm);

    if (row->bytes == bytes || at == 0)
        return us;
    return between((double)bytes, (double)row[-1].bytes, step_of(&row[-1], algorithm), (double)row->bytes, us);
}

static void add_part(struct sp_saving *out, const struct sp_bench_group *group, size_t table, uint64_t count,
                     uint64_t bytes)
{
    const size_t at = row_for(group, bytes);
    const bool there = at < group->row_count;
    const char *server = there ? server_of(group, table, at) : NULL;
    const double stock = there ? stock_at(group, at, bytes) : 0, times = (double)count / 1e3;

    out->known = out->known && stock > 0;
    out->measured = out->measured && there && group->row[at].bytes == bytes;
    out->below = out->below || (at == 0 && there && bytes < group->row[0].bytes);
    out->stock_ms += times * stock;
    out->ours_ms += times * (server ? ours_at(group, at, server, bytes) : stock);
    out->served = out->served || server;
    out->largest = bytes > out->largest ? bytes : out->largest;
}

void sp_step_cost(struct sp_saving *out, const struct sp_bench_group *group, size_t table, const struct sp_step *step)
{
    *out = (struct sp_saving){.known = step->count > 0, .measured = true};
    for (size_t i = 0; i < step->count; i++)
        add_part(out, group, table, step->times[i], step->bytes[i]);
}

const char *sp_step_backends(char out[SP_BENCH_NAME], const struct sp_bench_group *group, size_t table)
{
    static const char *const all[] = {"push", "pull", "host"};
    size_t used = 0;

    out[0] = '\0';
    for (size_t k = 0; k < sizeof all / sizeof *all; k++) {
        bool any = false;

        for (size_t i = 0; i < group->row_count; i++) {
            const char *server = server_of(group, table, i);

            any = any || (server && strcmp(sp_algorithm_transport(server), all[k]) == 0);
        }
        if (any)
            used += (size_t)snprintf(out + used, SP_BENCH_NAME - used, "%s%s", used ? "+" : "", all[k]);
    }
    if (used == 0)
        (void)snprintf(out, SP_BENCH_NAME, "stock");
    return out;
}

/* ---- in words ---- */

static int say_parts(struct sp_buf *out, const struct sp_step *step)
{
    int rc = SP_OK;

    for (size_t i = 0; i < step->count && rc == SP_OK; i++)
        rc = sp_buf_printf(out, "%s%llu all-reduce%s of %llu bytes", i ? " and " : "",
                           (unsigned long long)step->times[i], step->times[i] == 1 ? "" : "s",
                           (unsigned long long)step->bytes[i]);
    return rc;
}

/* Which sizes are ours, and where stock takes over: after the last of them. */
static int say_break_even(struct sp_buf *out, const struct sp_bench_group *group, size_t table)
{
    size_t end = group->row_count;
    char next[32];
    int rc;

    while (end > 0 && !server_of(group, table, end - 1))
        end--;
    if (json_array_size(group->tables) == 0)
        return sp_buf_printf(out, "and no profile, since an algorithm was wrong");
    if (end == 0)
        return sp_buf_printf(out, "stock is as fast at every size that was measured");
    rc = sp_buf_printf(out, "ours pays ");
    if (rc == SP_OK)
        rc = sp_profile_windows(out, json_array_get(group->tables, table));
    if (rc == SP_OK && end == group->row_count)
        return sp_buf_printf(out, ", the largest size that was measured");
    (void)sp_size_text(next, sizeof next, group->row[end < group->row_count ? end : 0].bytes);
    return rc == SP_OK ? sp_buf_printf(out, ", the break-even lies below %s", next) : rc;
}

int sp_step_say(struct sp_buf *out, const struct sp_bench_group *group, size_t table, const struct sp_step *step)
{
    char backends[SP_BENCH_NAME];
    struct sp_saving is;
    int rc = say_parts(out, step);

    sp_step_cost(&is, group, table, step);
    if (rc == SP_OK)
        rc = sp_buf_printf(out, " on %zu GPUs: ", group->world);
    if (rc == SP_OK && !is.known)
        return sp_buf_printf(out, "not known, stock was not measured up to there");
    if (rc == SP_OK)
        rc = sp_buf_printf(out, "%.2f ms with stock, ", is.stock_ms);
    (void)sp_step_backends(backends, group, table);
    if (rc == SP_OK && !is.served && strcmp(backends, "stock") != 0)
        rc = sp_buf_printf(out, "and stock stays where ours is %s: nothing is saved; ", backends);
    else if (rc == SP_OK && !is.served)
        rc = sp_buf_printf(out, "and stock stays: nothing is saved; ");
    else if (rc == SP_OK)
        rc = sp_buf_printf(out, "%.2f ms with ours (%s)%s, %.2f ms saved per step; ", is.ours_ms, backends,
                           is.measured ? ""
                           : is.below  ? ", as at the smallest size that was measured"
                                       : " between sizes that were measured",
                           is.stock_ms - is.ours_ms);
    return rc == SP_OK ? say_break_even(out, group, table) : rc;
}

static json_t *step_json(const struct sp_bench_group *group, size_t table, const struct sp_step *step)
{
    json_t *parts = json_array(), *out;
    char backends[SP_BENCH_NAME];
    struct sp_buf text = SP_BUF_INIT;
    struct sp_saving is;

    for (size_t i = 0; i < step->count; i++)
        (void)json_array_append_new(
            parts, json_pack("{s:I, s:I}", "times", (json_int_t)step->times[i], "bytes", (json_int_t)step->bytes[i]));
    sp_step_cost(&is, group, table, step);
    (void)sp_step_say(&text, group, table, step);
    out = json_pack("{s:s, s:I, s:s, s:s, s:o, s:b, s:b, s:s*}", "step", step->name, "world", (json_int_t)group->world,
                    "type", group->type, "backends", sp_step_backends(backends, group, table), "parts", parts,
                    "measured", is.measured, "served", is.served, "sentence", text.data);
    (void)json_object_set_new(out, "stock_ms", is.known ? json_real(is.stock_ms) : json_null());
    (void)json_object_set_new(out, "ours_ms", is.known ? json_real(is.ours_ms) : json_null());
    (void)json_object_set_new(out, "saved_ms", is.known ? json_real(is.stock_ms - is.ours_ms) : json_null());
    sp_buf_free(&text);
    return out;
}

static void add_group(json_t *list, const struct sp_bench_group *group, const struct sp_step *step)
{
    for (size_t table = 0; table < sp_step_tables(group); table++)
        (void)json_array_append_new(list, step_json(group, table, step));
}

json_t *sp_steps_json(const struct sp_bench *bench, const struct sp_step *steps, size_t count)
{
    json_t *list = json_array();

    for (size_t i = 0; i < count; i++)
        for (size_t k = 0; k < bench->group_count; k++)
            if (sp_bench_decides(bench, k))
                add_group(list, &bench->group[k], &steps[i]);
    return list;
}
