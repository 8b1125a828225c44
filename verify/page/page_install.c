#include "verify/page/page_parts.h"

#include <stdbool.h>
#include <string.h>

/* ---- findings ---- */

static void put_finding(struct sp_page *page, const json_t *finding)
{
    const char *level = SP_TEXT(finding, "level"), *remedy = SP_TEXT(finding, "remedy");

    sp_put(page->out, "<li>");
    sp_page_badge(page->out, sp_page_kind(level), level);
    sp_put(page->out, " ");
    sp_put_html(page->out, SP_TEXT(finding, "text"));
    sp_put(page->out, " <small>");
    sp_put_html(page->out, SP_TEXT(finding, "id"));
    sp_put(page->out, "</small>");
    if (remedy[0]) {
        sp_put(page->out, "<br><code>");
        sp_put_html(page->out, remedy);
        sp_put(page->out, "</code>");
    }
    sp_put(page->out, "</li>\n");
}

static size_t with_status(const json_t *checks, const char *status)
{
    const json_t *check;
    size_t count = 0, i;

    json_array_foreach(checks, i, check) count += strcmp(SP_TEXT(check, "status"), status) == 0;
    return count;
}

/* The worst first; each level in the order in which it was found. */
void sp_page_findings(struct sp_page *page)
{
    static const char *const levels[] = {"fail", "warn", "info"};
    const json_t *findings = SP_ITEM(page->bundle, "findings"), *checks = SP_ITEM(page->bundle, "checks"), *finding;
    size_t i;

    sp_put(page->out, "<section aria-labelledby=\"findings\">\n<h2 id=\"findings\">Found</h2>\n");
    if (json_array_size(checks) > 0)
        sp_put(page->out, "<p>Of %zu examinations %zu found something; %zu skipped.</p>\n", json_array_size(checks),
               with_status(checks, "found"), with_status(checks, "skipped"));
    if (json_array_size(findings) == 0)
        sp_put(page->out, "<p>Nothing stands in the way.</p>\n");
    else
        sp_put(page->out, "<ul class=\"findings\">\n");
    for (size_t level = 0; level < sizeof levels / sizeof *levels; level++)
        json_array_foreach(findings, i, finding)
        {
            if (strcmp(SP_TEXT(finding, "level"), levels[level]) == 0)
                put_finding(page, finding);
        }
    if (json_array_size(findings) > 0)
        sp_put(page->out, "</ul>\n");
    sp_put(page->out, "</section>\n");
}

/* ---- the install ---- */

static void put_file(struct sp_page *page, const json_t *file)
{
    const char *state = SP_TEXT(file, "state");

    sp_put(page->out, "<tr><th scope=\"row\"><code>");
    sp_put_html(page->out, SP_TEXT(file, "path"));
    sp_put(page->out, "</code></th><td>");
    sp_put_html(page->out, SP_TEXT(file, "set"));
    sp_put(page->out, "</td><td>");
    sp_page_badge(page->out, sp_page_kind(state), state);
    sp_put(page->out, "</td><td><code>");
    sp_put_html(page->out, SP_TEXT(file, "oid"));
    sp_put(page->out, "</code></td></tr>\n");
}

static void put_pair(struct sp_out *out, const char *name, const char *value)
{
    sp_put(out, "<div><dt>%s</dt><dd>", name);
    sp_put_html(out, value[0] ? value : "none");
    sp_put(out, "</dd></div>\n");
}

static void put_status(struct sp_page *page, const json_t *status)
{
    const json_t *files = SP_ITEM(status, "install", "files"), *file;
    const char *sha = SP_TEXT(status, "extension", "sha256"), *source = SP_TEXT(status, "flag", "source");
    const char *value = SP_TEXT(status, "flag", "value");
    const bool set = source[0] && strcmp(source, "unset") != 0;
    size_t i;

    sp_put(page->out, "<dl>\n");
    put_pair(page->out, "SGLang", SP_TEXT(status, "install", "sglang"));
    put_pair(page->out, "Kernel package", SP_TEXT(status, "install", "kernel"));
    put_pair(page->out, "Layout", SP_TEXT(status, "install", "layout"));
    put_pair(page->out, "Runtime", SP_TEXT(status, "install", "runtime"));
    put_pair(page->out, "libpar.so", sha);
    put_pair(page->out, "Flag", value[0] ? value : set ? "set to nothing" : "unset");
    if (set)
        put_pair(page->out, "set by", source);
    sp_put(page->out,
           "</dl>\n<div class=\"scroll\" role=\"region\" aria-labelledby=\"files\" tabindex=\"0\">\n<table>\n"
           "<caption id=\"files\">Files that the patch knows</caption>\n<thead><tr><th scope=\"col\">File</th>"
           "<th scope=\"col\">Set</th><th scope=\"col\">State</th><th scope=\"col\">Blob id</th></tr></thead>\n"
           "<tbody>\n");
    json_array_foreach(files, i, file) put_file(page, file);
    sp_put(page->out, "</tbody>\n</table>\n</div>\n");
}

void sp_page_install(struct sp_page *page)
{
    const json_t *status = SP_ITEM(page->bundle, "status");
    const char *why = SP_TEXT(page->bundle, "status_error");

    sp_put(page->out, "<section aria-labelledby=\"install\">\n<h2 id=\"install\">Install</h2>\n");
    if (json_is_object(status)) {
        put_status(page, status);
    } else {
        sp_put(page->out, "<p class=\"empty\">");
        sp_put_html(page->out, why[0] ? why : "This was made from a recording of a machine, which has no install");
        sp_put(page->out, "</p>\n");
    }
    sp_put(page->out, "</section>\n");
}
