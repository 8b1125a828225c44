#include "verify/page/page_parts.h"

#include <stdio.h>
#include <string.h>

enum { KINDS = 64, KIND = 64 };

/* Checks of one kind: "store" of "store.0-1". */
struct kind {
    char name[KIND];
    size_t count, passed, skipped, failed;
};

/* ---- results ---- */

static void put_gpus(struct sp_page *page, const json_t *gpus)
{
    const json_t *uuid;
    size_t i;

    json_array_foreach(gpus, i, uuid)
    {
        sp_put(page->out, "%s", i ? ", " : "");
        sp_page_put_gpu(page, json_is_string(uuid) ? json_string_value(uuid) : "");
    }
}

static void put_result(struct sp_page *page, const json_t *result)
{
    const char *is = SP_TEXT(result, "result");

    sp_put(page->out, "<tr><th scope=\"row\">");
    sp_put_html(page->out, SP_TEXT(result, "backend"));
    sp_put(page->out, "</th><td class=\"n\">%d</td><td>", (int)json_integer_value(SP_ITEM(result, "world")));
    put_gpus(page, SP_ITEM(result, "gpus"));
    sp_put(page->out, "</td><td>");
    sp_page_badge(page->out, sp_page_kind(is), is);
    sp_put(page->out, "</td><td class=\"text\">");
    sp_put_html(page->out, SP_TEXT(result, "reason"));
    sp_put(page->out, "</td></tr>\n");
}

static void put_results(struct sp_page *page, const json_t *results)
{
    const json_t *result;
    size_t i;

    sp_put(page->out,
           "<div class=\"scroll\" role=\"region\" aria-labelledby=\"results\" tabindex=\"0\">\n<table>\n"
           "<caption id=\"results\">What may serve which GPUs</caption>\n<thead><tr><th scope=\"col\">Backend"
           "</th><th scope=\"col\" class=\"n\">Ranks</th><th scope=\"col\">GPUs</th><th scope=\"col\">Result"
           "</th><th scope=\"col\">Why</th></tr></thead>\n<tbody>\n");
    json_array_foreach(results, i, result) put_result(page, result);
    sp_put(page->out, "</tbody>\n</table>\n</div>\n");
}

/* ---- checks ---- */

static bool is_well(const char *status)
{
    return strcmp(status, "PASS") == 0 || strcmp(status, "SKIP") == 0;
}

static struct kind *kind_of(struct kind *kinds, size_t *count, const char *id)
{
    char name[KIND];
    size_t at = 0;

    (void)snprintf(name, sizeof name, "%.*s", (int)strcspn(id, "."), id);
    while (at < *count && strcmp(kinds[at].name, name) != 0)
        at++;
    if (at == *count && *count == KINDS) /* more than there are: with the last */
        return &kinds[KINDS - 1];
    if (at == *count)
        (void)snprintf(kinds[(*count)++].name, KIND, "%s", name);
    return &kinds[at];
}

static void put_kinds(struct sp_page *page, const json_t *checks)
{
    struct kind kinds[KINDS] = {{.count = 0}};
    const json_t *check;
    size_t count = 0, i;

    json_array_foreach(checks, i, check)
    {
        struct kind *kind = kind_of(kinds, &count, SP_TEXT(check, "id"));

        kind->count++;
        kind->passed += strcmp(SP_TEXT(check, "status"), "PASS") == 0;
        kind->failed += strcmp(SP_TEXT(check, "status"), "FAIL") == 0;
        kind->skipped += strcmp(SP_TEXT(check, "status"), "SKIP") == 0;
    }
    sp_put(page->out, "<ul class=\"kinds\">\n");
    for (i = 0; i < count; i++) {
        const bool well = kinds[i].passed + kinds[i].skipped == kinds[i].count;

        sp_put(page->out, "<li class=\"%s\"><strong>",
               kinds[i].failed > 0   ? "bad"
               : !well               ? "warn"
               : kinds[i].passed > 0 ? "good"
                                     : "plain");
        sp_put_html(page->out, kinds[i].name);
        sp_put(page->out, "</strong> %zu of %zu passed", kinds[i].passed, kinds[i].count);
        if (kinds[i].skipped > 0)
            sp_put(page->out, ", %zu skipped", kinds[i].skipped);
        sp_put(page->out, "</li>\n");
    }
    sp_put(page->out, "</ul>\n");
}

/* A number with its unit, or a text. */
static void put_value(struct sp_page *page, const json_t *value, const char *unit)
{
    if (json_is_number(value))
        sp_put(page->out, "%.4g ", json_number_value(value));
    if (json_is_number(value))
        sp_put_html(page->out, unit);
    else
        sp_put_html(page->out, json_string_value(value));
}

static void put_check(struct sp_page *page, const json_t *check)
{
    const char *status = SP_TEXT(check, "status"), *remedy = SP_TEXT(check, "remedy");

    sp_put(page->out, "<tr><th scope=\"row\"><code>");
    sp_put_html(page->out, SP_TEXT(check, "id"));
    sp_put(page->out, "</code></th><td>");
    sp_page_badge(page->out, sp_page_kind(status), status);
    sp_put(page->out, "</td><td class=\"text\">");
    put_value(page, SP_ITEM(check, "expected"), SP_TEXT(check, "unit"));
    sp_put(page->out, "</td><td class=\"text\">");
    put_value(page, SP_ITEM(check, "actual"), SP_TEXT(check, "unit"));
    if (remedy[0]) {
        sp_put(page->out, "<br><code>");
        sp_put_html(page->out, remedy);
        sp_put(page->out, "</code>");
    }
    sp_put(page->out, "</td></tr>\n");
}

static void put_list(struct sp_page *page, const json_t *checks, bool all)
{
    const char *name = all ? "checks-all" : "checks-amiss";
    const json_t *check;
    size_t i;

    sp_put(page->out,
           "<div class=\"scroll\" role=\"region\" aria-labelledby=\"%s\" tabindex=\"0\">\n<table>\n<caption "
           "id=\"%s\">%s</caption>\n<thead><tr><th scope=\"col\">Check</th><th scope=\"col\">Status</th>"
           "<th scope=\"col\">Expected</th><th scope=\"col\">Found</th></tr></thead>\n<tbody>\n",
           name, name, all ? "Every check of the last run" : "What did not pass");
    json_array_foreach(checks, i, check) if (all || !is_well(SP_TEXT(check, "status"))) put_check(page, check);
    sp_put(page->out, "</tbody>\n</table>\n</div>\n");
}

static void put_checks(struct sp_page *page, const json_t *checks)
{
    const json_t *check;
    size_t amiss = 0, i;

    json_array_foreach(checks, i, check) amiss += !is_well(SP_TEXT(check, "status"));
    put_kinds(page, checks);
    if (amiss > 0)
        put_list(page, checks, false);
    sp_put(page->out, "<details>\n<summary>All %zu checks</summary>\n", json_array_size(checks));
    put_list(page, checks, true);
    sp_put(page->out, "</details>\n");
}

/* ---- the part ---- */

void sp_page_checks(struct sp_page *page)
{
    const json_t *verdict = SP_ITEM(page->bundle, "verdict"), *checks = SP_ITEM(verdict, "checks");

    if (!json_is_object(verdict) && !json_is_object(SP_ITEM(page->bundle, "status")))
        return; /* a machine without an install */
    sp_put(page->out, "<section aria-labelledby=\"proved\">\n<h2 id=\"proved\">Proved</h2>\n");
    if (!json_is_object(verdict))
        sp_put(page->out, "<p class=\"empty\">Nothing was proved yet; <code>sgl-pcie verify</code> does that.</p>\n");
    if (json_is_object(verdict))
        sp_page_sentences(page->out, SP_ITEM(page->bundle, "status", "verdict", "reasons"));
    if (json_is_object(verdict))
        put_results(page, SP_ITEM(verdict, "results"));
    if (json_array_size(checks) > 0)
        put_checks(page, checks);
    sp_put(page->out, "</section>\n");
}
