#include "verify/page/page_parts.h"
#include "verify/page/plot_lines.h"

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

const char *sp_page_rival(const char *name)
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

void sp_page_us(struct sp_out *out, double us, const char *class)
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
    sp_page_us(out, us, " best");
    for (size_t i = 0; i < RIVALS; i++) {
        const int at = find_rival(group, rivals[i].name);

        if (at >= 0)
            sp_page_us(out, row->rival[at].step, at == row->stock ? "" : " none");
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
        sp_page_us(out, ours ? ours->us.step : 0, at >= 0 && at == row->chosen ? " best" : "");
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
    sp_page_sentences(page->out, SP_ITEM(page->bundle, "bench", "troubles"));
    for (size_t world = SP_BENCH_WORLD; world >= 2; world--) /* the most GPUs first */
        for (size_t i = 0; i < page->bench.group_count; i++)
            if (page->bench.group[i].world == world && sp_lines_drawn(&page->bench, i))
                put_group(page, i);
    put_others(page);
    sp_put(page->out, "</section>\n");
}
