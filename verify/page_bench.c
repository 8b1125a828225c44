#include "verify/page_parts.h"
#include "verify/plot_lines.h"
#include "verify/profile.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* In the order in which they are shown. */
static const struct {
    const char *name, *shown, *whole;
} rivals[] = {
    {"nccl", "NCCL", "NCCL"},
    {"v1", "SGLang’s own", "SGLang’s own custom all-reduce (V1)"},
    {"nccl-no-p2p", "NCCL without P2P", "NCCL without P2P"},
};

enum { RIVALS = sizeof rivals / sizeof *rivals };

static const char *rival_name(const char *name)
{
    size_t at = 0;

    while (at + 1 < RIVALS && strcmp(rivals[at].name, name) != 0)
        at++;
    return rivals[at].shown;
}

/* The index of a rival that was measured, or -1. */
static int find_rival(const struct sp_bench_group *group, const char *name)
{
    for (size_t i = 0; i < group->rival_count; i++)
        if (strcmp(group->rival[i].name, name) == 0 && !group->rival[i].error[0])
            return (int)i;
    return -1;
}

/* ---- which groups ---- */

/* The group that the banner speaks of: the most GPUs. NULL: none. */
static const struct sp_bench_group *first_group(const struct sp_bench *bench)
{
    const struct sp_bench_group *first = NULL;

    for (size_t i = 0; i < bench->group_count; i++)
        if (sp_lines_drawn(bench, i) && (!first || bench->group[i].world > first->world))
            first = &bench->group[i];
    return first;
}

/* ---- what is saved ---- */

static void put_figure(struct sp_out *out, const char *kind, const char *number, const char *unit, const char *what)
{
    sp_put(out, "<li class=\"%s\"><strong>%s<small>%s</small></strong> <span>", kind, number, unit);
    sp_put_html(out, what);
    sp_put(out, "</span></li>\n");
}

/* Is it about these GPUs, and known? */
static bool tells(const json_t *step, const struct sp_bench_group *group)
{
    const double stock = json_number_value(SP_ITEM(step, "stock_ms")),
                 ours = json_number_value(SP_ITEM(step, "ours_ms"));

    return json_integer_value(SP_ITEM(step, "world")) == (json_int_t)group->world &&
           strcmp(SP_TEXT(step, "type"), group->type) == 0 && json_is_number(SP_ITEM(step, "saved_ms")) &&
           fabs(stock) < 1e6 && fabs(ours) < 1e6;
}

/* What the other tables would make of the same step: a setting may leave only them. */
static void put_other_tables(struct sp_out *out, const struct sp_page *page, const struct sp_bench_group *group,
                             const json_t *first)
{
    const json_t *step;
    size_t i;

    json_array_foreach(page->steps, i, step)
    {
        if (step != first && tells(step, group) && strcmp(SP_TEXT(step, "step"), SP_TEXT(first, "step")) == 0)
            sp_put(out, "; by %s alone %.2f ms", SP_TEXT(step, "backends"),
                   json_number_value(SP_ITEM(step, "ours_ms")));
    }
}

static void put_saving(struct sp_page *page, const struct sp_bench_group *group)
{
    const json_t *first = NULL, *step;
    struct sp_out what = {.rc = page->out->rc};
    char number[32];
    size_t i;

    json_array_foreach(page->steps, i, step) first = !first && tells(step, group) ? step : first;
    if (!first)
        return;
    (void)snprintf(number, sizeof number, "%.2f", json_number_value(SP_ITEM(first, "saved_ms")));
    sp_put(&what, "saved per step of %s: %.2f ms with stock, %.2f ms by %s",
           page->asked ? SP_TEXT(first, "step") : "122 all-reduces of 42 KiB",
           json_number_value(SP_ITEM(first, "stock_ms")), json_number_value(SP_ITEM(first, "ours_ms")),
           SP_TEXT(first, "backends"));
    put_other_tables(&what, page, group, first);
    put_figure(page->out, json_is_true(SP_ITEM(first, "served")) ? "good" : "plain", number, " ms",
               what.buf.data ? what.buf.data : "");
    sp_buf_free(&what.buf);
}

static void put_best(struct sp_page *page, const struct sp_bench_group *group)
{
    const struct sp_bench_row *best = NULL;
    double most = 0;
    char number[32], what[SP_PAGE_SENTENCE], size[SP_SIZE_LABEL];

    for (size_t i = 0; i < group->row_count; i++) {
        const double ours = sp_bench_chosen_us(&group->row[i]);
        const double ratio = ours > 0 ? sp_bench_stock_us(&group->row[i]) / ours : 0;

        if (ratio > most) {
            most = ratio;
            best = &group->row[i];
        }
    }
    if (!best)
        return;
    (void)snprintf(number, sizeof number, "%.1f", most);
    (void)snprintf(what, sizeof what, "as fast as %s at %s, its best size", rival_name(group->rival[best->stock].name),
                   sp_size_label(size, (double)best->bytes));
    put_figure(page->out, most > 1 ? "good" : "plain", number, " ×", what);
}

static void put_served(struct sp_page *page, const struct sp_bench_group *group)
{
    size_t served = 0;
    char number[32], unit[32], what[SP_PAGE_SENTENCE];

    for (size_t i = 0; i < group->row_count; i++)
        served += group->row[i].chosen >= 0;
    (void)snprintf(number, sizeof number, "%zu", served);
    (void)snprintf(unit, sizeof unit, " of %zu", group->row_count);
    (void)snprintf(what, sizeof what, "sizes that were measured on %zu GPUs are ours%s", group->world,
                   served < group->row_count ? "; stock serves the others" : "");
    put_figure(page->out, served ? "good" : "plain", number, unit, what);
}

void sp_page_savings(struct sp_page *page)
{
    const struct sp_bench_group *group = first_group(&page->bench);
    const json_t *steps = page->asked ? page->steps : NULL, *step;
    size_t i;

    if (!group)
        return;
    sp_put(page->out, "<section aria-labelledby=\"saved\">\n<h2 id=\"saved\" class=\"unseen\">What is saved</h2>\n"
                      "<ul class=\"figures\">\n");
    put_saving(page, group);
    put_best(page, group);
    put_served(page, group);
    sp_put(page->out, "</ul>\n");
    if (json_array_size(steps) > 0)
        sp_put(page->out, "<ul class=\"sentences\">\n");
    json_array_foreach(steps, i, step)
    {
        sp_put(page->out, "<li>");
        sp_put_html(page->out, SP_TEXT(step, "sentence"));
        sp_put(page->out, "</li>\n");
    }
    if (json_array_size(steps) > 0)
        sp_put(page->out, "</ul>\n");
    sp_put(page->out, "</section>\n");
}

/* ---- the table of a group ---- */

static void put_heads(struct sp_out *out, const struct sp_bench_group *group)
{
    sp_put(out, "<thead><tr><th scope=\"col\">Size</th><th scope=\"col\" class=\"n\">sgl‑pcie</th>");
    for (size_t i = 0; i < RIVALS; i++)
        if (find_rival(group, rivals[i].name) >= 0)
            sp_put(out, "<th scope=\"col\" class=\"n\">%s</th>", rivals[i].shown);
    sp_put(out, "<th scope=\"col\">Times as fast</th><th scope=\"col\">Served by</th>"
                "<th scope=\"col\" class=\"n\">Bus GB/s</th><th scope=\"col\" class=\"n\">× model</th></tr></thead>\n");
}

/* class: of the cell, with a blank before it, or "". */
static void put_us(struct sp_out *out, double us, const char *class)
{
    us = sp_sane_us(us);
    if (us <= 0)
        sp_put(out, "<td class=\"n none\">–</td>");
    else
        sp_put(out, "<td class=\"n%s\">%.*f</td>", class, us < 100 ? 2 : us < 1000 ? 1 : 0, us);
}

/* The bar is decoration: the figure stands beside it. */
static void put_ratio(struct sp_out *out, double ratio, double most, bool served)
{
    if (ratio <= 0)
        sp_put(out, "<td class=\"none\">–</td>");
    else
        sp_put(
            out,
            "<td class=\"ratio %s\"><svg class=\"bar\" viewBox=\"0 0 44 8\" aria-hidden=\"true\" focusable=\"false\">"
            "<rect width=\"%.1f\" height=\"8\" rx=\"2\"/></svg>%s%.2f</td>",
            served ? "won" : "lost", 44 * (ratio > most ? 1 : ratio / most),
            most >= 10 && ratio < 10 ? "\u2007" : "" /* as wide as a figure */, ratio);
}

static void put_row(struct sp_out *out, const struct sp_bench_group *group, const struct sp_bench_row *row, double most)
{
    const struct sp_bench_ours *ours = sp_lines_ours(row);
    const double us = ours ? ours->us.step : 0, stock = sp_bench_stock_us(row);
    char size[SP_SIZE_LABEL];

    sp_put(out, "<tr><th scope=\"row\">%s</th>", sp_size_label(size, (double)row->bytes));
    put_us(out, us, " best");
    for (size_t i = 0; i < RIVALS; i++) {
        const int at = find_rival(group, rivals[i].name);

        if (at >= 0)
            put_us(out, row->rival[at].step, at == row->stock ? "" : " none");
    }
    put_ratio(out, us > 0 ? stock / us : 0, most, row->chosen >= 0);
    sp_put(out, "<td>");
    sp_put_html(out, row->chosen < 0 ? "stock" : row->ours[row->chosen].algorithm);
    sp_put(out, "</td><td class=\"n\">%.1f</td>", sp_bench_busbw(row->bytes, us, group->world));
    if (us > 0 && ours->model > 0)
        sp_put(out, "<td class=\"n\">%.1f</td></tr>\n", us / ours->model);
    else
        sp_put(out, "<td class=\"n none\">–</td></tr>\n");
}

static void put_table(struct sp_page *page, const struct sp_bench_group *group, size_t number)
{
    struct sp_lines lines;

    sp_lines_of(&lines, group);
    sp_put(page->out,
           "<div class=\"scroll\" role=\"region\" aria-labelledby=\"table-%zu\" tabindex=\"0\">\n<table>\n"
           "<caption id=\"table-%zu\">Microseconds per call in a step, ",
           number, number);
    sp_put_html(page->out, group->type);
    sp_put(page->out, "</caption>\n");
    put_heads(page->out, group);
    sp_put(page->out, "<tbody>\n");
    for (size_t i = 0; i < group->row_count; i++)
        put_row(page->out, group, &group->row[i], lines.ratio > 1 ? lines.ratio : 1);
    sp_put(page->out, "</tbody>\n</table>\n</div>\n");
}

/* ---- every algorithm ---- */

/* Names of all that occur, in the order of the first row that has them; their number. */
static size_t all_ours(const char *out[SP_BENCH_OURS], const struct sp_bench_group *group)
{
    size_t count = 0;

    for (size_t i = 0; i < group->row_count; i++)
        for (size_t k = 0; k < group->row[i].ours_count; k++) {
            const char *name = group->row[i].ours[k].algorithm;
            size_t at = 0;

            while (at < count && strcmp(out[at], name) != 0)
                at++;
            if (at == count && count < SP_BENCH_OURS)
                out[count++] = name;
        }
    return count;
}

static void put_cell(struct sp_out *out, const struct sp_bench_row *row, const char *algorithm)
{
    const int at = sp_bench_find(row, algorithm);
    const struct sp_bench_ours *ours = at < 0 ? NULL : &row->ours[at];

    if (ours && ours->wrong > 0)
        sp_put(out, "<td class=\"n wrong\">%llu wrong</td>", (unsigned long long)ours->wrong);
    else if (ours && ours->us.step <= 0 && ours->us.out > 0)
        sp_put(out, "<td class=\"n none\">(%.2f)</td>", ours->us.out);
    else
        put_us(out, ours ? ours->us.step : 0, at >= 0 && at == row->chosen ? " best" : "");
}

static void put_algorithms(struct sp_page *page, const struct sp_bench_group *group, size_t number)
{
    const char *name[SP_BENCH_OURS];
    const size_t count = all_ours(name, group);
    struct sp_out *out = page->out;
    char size[SP_SIZE_LABEL];

    if (count == 0)
        return;
    sp_put(out,
           "<details>\n<summary>Every algorithm</summary>\n<div class=\"scroll\" role=\"region\" "
           "aria-labelledby=\"all-%zu\" tabindex=\"0\">\n<table>\n<caption id=\"all-%zu\">Microseconds in a step; in "
           "parentheses back to back, where that was clearly slower already</caption>\n"
           "<thead><tr><th scope=\"col\">Size</th>",
           number, number);
    for (size_t i = 0; i < count; i++) {
        sp_put(out, "<th scope=\"col\" class=\"n\">");
        sp_put_html(out, name[i]);
        sp_put(out, "</th>");
    }
    sp_put(out, "</tr></thead>\n<tbody>\n");
    for (size_t i = 0; i < group->row_count; i++) {
        sp_put(out, "<tr><th scope=\"row\">%s</th>", sp_size_label(size, (double)group->row[i].bytes));
        for (size_t k = 0; k < count; k++)
            put_cell(out, &group->row[i], name[k]);
        sp_put(out, "</tr>\n");
    }
    sp_put(out, "</tbody>\n</table>\n</div>\n</details>\n");
}

/* ---- against whom ---- */

static void put_rival(struct sp_out *out, const struct sp_bench_rival *rival, const char *name)
{
    sp_put(out, "<li><strong>%s</strong> ", name);
    if (rival->error[0]) {
        sp_put(out, "was not measured: ");
        sp_put_html(out, rival->error);
    } else {
        sp_put_html(out, rival->version);
        sp_put(out, "%s", rival->via[0] ? ", " : "");
        sp_put_html(out, rival->via);
        if (rival->channels > 0)
            sp_put(out, ", %d channels", rival->channels);
        sp_put(out, "%s", rival->settings[0] ? ", " : "");
        sp_put_html(out, rival->settings);
    }
    sp_put(out, "</li>\n");
}

static void put_rivals(struct sp_page *page, const struct sp_bench_group *group)
{
    const struct sp_bench_rates *rates = &group->rates;

    sp_put(page->out, "<ul class=\"notes\">\n");
    for (size_t k = 0; k < RIVALS; k++)
        for (size_t i = 0; i < group->rival_count; i++)
            if (strcmp(group->rival[i].name, rivals[k].name) == 0)
                put_rival(page->out, &group->rival[i], rivals[k].whole);
    if (rates->host_us > 0)
        sp_put(page->out,
               "<li><strong>Through the host</strong> %.2f µs one way, reads %.1f, writes %.1f GB/s per GPU, "
               "all at once</li>\n",
               rates->host_us, rates->host_read, rates->host_write);
    if (rates->peer_us > 0)
        sp_put(page->out,
               "<li><strong>Between peers</strong> %.2f µs one way, loads %.1f, stores %.1f GB/s per GPU</li>\n",
               rates->peer_us, rates->peer_read, rates->peer_write);
    sp_put(page->out, "</ul>\n");
}

static void put_gpus(struct sp_page *page, const struct sp_bench_group *group)
{
    sp_put(page->out, "%zu GPUs <small>", group->world);
    sp_put_html(page->out, group->type);
    for (size_t i = 0; i < group->world; i++) {
        sp_put(page->out, "%s", i ? ", " : "; number ");
        sp_page_put_gpu(page, group->uuid[i]);
    }
    sp_put(page->out, "</small>");
}

static void put_group(struct sp_page *page, size_t number)
{
    const struct sp_bench_group *group = &page->bench.group[number];

    sp_put(page->out, "<article>\n<h3>");
    put_gpus(page, group);
    sp_put(page->out, "</h3>\n<div class=\"pair\">\n<div class=\"picture\">");
    sp_page_chart(page, group, number);
    sp_put(page->out, "</div>\n<div class=\"numbers\">\n");
    put_table(page, group, number);
    sp_put(page->out, "</div>\n</div>\n");
    put_rivals(page, group);
    put_algorithms(page, group, number);
    sp_put(page->out, "</article>\n");
}

static void put_others(struct sp_page *page)
{
    for (size_t i = 0; i < page->bench.group_count; i++) {
        if (sp_lines_drawn(&page->bench, i) || page->bench.group[i].row_count == 0)
            continue;
        sp_put(page->out, "<details>\n<summary>");
        put_gpus(page, &page->bench.group[i]);
        sp_put(page->out, "</summary>\n");
        put_table(page, &page->bench.group[i], i);
        sp_put(page->out, "</details>\n");
    }
}

static void put_troubles(struct sp_page *page)
{
    const json_t *troubles = SP_ITEM(page->bundle, "bench", "troubles"), *trouble;
    size_t i;

    if (json_array_size(troubles) == 0)
        return;
    sp_put(page->out, "<ul class=\"troubles\">\n");
    json_array_foreach(troubles, i, trouble)
    {
        sp_put(page->out, "<li>");
        sp_put_html(page->out, json_string_value(trouble));
        sp_put(page->out, "</li>\n");
    }
    sp_put(page->out, "</ul>\n");
}

static void put_nothing(struct sp_page *page)
{
    if (page->bench_error[0]) {
        sp_put(page->out, "<p>What was measured cannot be shown: ");
        sp_put_html(page->out, page->bench_error);
        sp_put(page->out, ".</p>\n");
    }
    sp_put(page->out, "<p class=\"empty\">Nothing was measured yet; <code>sgl-pcie bench</code> does that.</p>\n");
}

void sp_page_bench(struct sp_page *page)
{
    if (page->bench.group_count == 0 && !page->bench_error[0] && !json_is_object(SP_ITEM(page->bundle, "status")))
        return; /* a machine without an install */
    sp_put(page->out, "<section aria-labelledby=\"measured\">\n<h2 id=\"measured\">Measured</h2>\n");
    if (page->bench.group_count == 0)
        put_nothing(page);
    put_troubles(page);
    for (size_t world = SP_BENCH_WORLD; world >= 2; world--) /* the most GPUs first */
        for (size_t i = 0; i < page->bench.group_count; i++)
            if (page->bench.group[i].world == world && sp_lines_drawn(&page->bench, i))
                put_group(page, i);
    put_others(page);
    sp_put(page->out, "</section>\n");
}

/* ---- the profile ---- */

/* ", push, host": what a table needs. */
static void put_transports(struct sp_out *out, const json_t *entries)
{
    static const char *const transports[] = {"push", "pull", "host"};
    const json_t *entry;

    for (size_t k = 0; k < sizeof transports / sizeof *transports; k++) {
        bool used = false;
        size_t i;

        json_array_foreach(entries, i, entry)
        {
            used = used || strcmp(sp_bench_transport(SP_TEXT(entry, "algorithm")), transports[k]) == 0;
        }
        sp_put(out, "%s%s", used ? ", " : "", used ? transports[k] : "");
    }
}

static void put_entries(struct sp_page *page, const json_t *table, size_t number)
{
    const json_t *entries = SP_ITEM(table, "entries"), *entry;
    struct sp_out *out = page->out;
    double above = 0;
    char size[SP_SIZE_LABEL];
    size_t i;

    sp_put(out,
           "<div class=\"scroll\" role=\"region\" aria-labelledby=\"profile-%zu\" tabindex=\"0\">\n<table>\n"
           "<caption id=\"profile-%zu\">%d GPUs",
           number, number, (int)json_integer_value(SP_ITEM(table, "world")));
    put_transports(out, entries);
    sp_put(out, "</caption>\n<thead><tr><th scope=\"col\">Above</th><th scope=\"col\">up to</th><th "
                "scope=\"col\">Served by</th><th scope=\"col\" class=\"n\">µs</th>"
                "<th scope=\"col\" class=\"n\">Stock µs</th></tr></thead>\n<tbody>\n");
    json_array_foreach(entries, i, entry)
    {
        const double to = json_number_value(SP_ITEM(entry, "max_bytes"));

        sp_put(out, "<tr><td>%s</td>", above > 0 ? sp_size_label(size, above) : "0");
        sp_put(out, "<th scope=\"row\">%s</th><td>", sp_size_label(size, to));
        sp_put_html(out, SP_TEXT(entry, "algorithm"));
        sp_put(out, "</td>");
        put_us(out, json_number_value(SP_ITEM(entry, "us")), "");
        put_us(out, json_number_value(SP_ITEM(entry, "stock_us")), "");
        sp_put(out, "</tr>\n");
        above = to;
    }
    sp_put(out, "</tbody>\n</table>\n</div>\n");
}

void sp_page_profile(struct sp_page *page)
{
    const json_t *tables = SP_ITEM(page->bundle, "profile", "content", "tables"), *table;
    size_t i;

    if (json_array_size(tables) == 0)
        return;
    sp_put(page->out,
           "<section aria-labelledby=\"profile\">\n<h2 id=\"profile\">Profile</h2>\n"
           "<p>What SGLang reads: which size is served by what. Above the last size stock serves.</p>\n"
           "<details>\n<summary>%zu %s, the best first</summary>\n<div class=\"columns\">\n",
           json_array_size(tables), json_array_size(tables) == 1 ? "table" : "tables");
    json_array_foreach(tables, i, table) put_entries(page, table, i);
    sp_put(page->out, "</div>\n</details>\n</section>\n");
}
