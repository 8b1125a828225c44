#include "verify/page/page_parts.h"
#include "verify/page/plot_lines.h"
#include "verify/verdict/algorithm.h"

#include <string.h>

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
            used = used || strcmp(sp_algorithm_transport(SP_TEXT(entry, "algorithm")), transports[k]) == 0;
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
        sp_page_us(out, json_number_value(SP_ITEM(entry, "us")), "");
        sp_page_us(out, json_number_value(SP_ITEM(entry, "stock_us")), "");
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
