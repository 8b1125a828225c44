#include "verify/page/page_parts.h"
#include "verify/page/plot_lines.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* The group that the banner speaks of: the most GPUs. NULL: none. */
static const struct sp_bench_group *first_group(const struct sp_bench *bench)
{
    const struct sp_bench_group *first = NULL;

    for (size_t i = 0; i < bench->group_count; i++)
        if (sp_lines_drawn(bench, i) && (!first || bench->group[i].world > first->world))
            first = &bench->group[i];
    return first;
}

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

/* What the other tables would make of the same step: a setting may leave only them. Where they leave it to stock, that
 * time is stock's. */
static void put_other_tables(struct sp_out *out, const struct sp_page *page, const struct sp_bench_group *group,
                             const json_t *first)
{
    const json_t *step;
    size_t i;

    json_array_foreach(page->steps, i, step)
    {
        if (step != first && tells(step, group) && json_is_true(SP_ITEM(step, "served")) &&
            strcmp(SP_TEXT(step, "step"), SP_TEXT(first, "step")) == 0)
            sp_put(out, "; by %s alone %.2f ms", SP_TEXT(step, "backends"),
                   json_number_value(SP_ITEM(step, "ours_ms")));
    }
}

static void put_saving(struct sp_page *page, const struct sp_bench_group *group)
{
    const json_t *first = NULL, *step;
    struct sp_out what = {.rc = page->out->rc};
    char number[32];
    bool served;
    size_t i;

    json_array_foreach(page->steps, i, step) first = !first && tells(step, group) ? step : first;
    if (!first)
        return;
    served = json_is_true(SP_ITEM(first, "served"));
    (void)snprintf(number, sizeof number, "%.2f", json_number_value(SP_ITEM(first, "saved_ms")));
    sp_put(&what, "saved per step of %s: %.2f ms with stock, ",
           page->asked ? SP_TEXT(first, "step") : "122 all-reduces of 42 KiB",
           json_number_value(SP_ITEM(first, "stock_ms")));
    if (served)
        sp_put(&what, "%.2f ms by %s", json_number_value(SP_ITEM(first, "ours_ms")), SP_TEXT(first, "backends"));
    else
        sp_put(&what, "which stays");
    put_other_tables(&what, page, group, first);
    put_figure(page->out, served ? "good" : "plain", number, " ms", what.buf.data ? what.buf.data : "");
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
    (void)snprintf(what, sizeof what, "as fast as %s at %s, its best size",
                   sp_page_rival(group->rival[best->stock].name), sp_size_label(size, (double)best->bytes));
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
