#include "verify/page/page.h"
#include "base/err.h"
#include "verify/bench/steps.h"
#include "verify/page/page_parts.h"
#include "verify/page/plot_lines.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- what is asked for everywhere ---- */

const json_t *sp_page_item(const json_t *object, const char *const *path)
{
    for (; *path; path++)
        object = json_object_get(object, *path);
    return object;
}

const char *sp_page_text(const json_t *object, const char *const *path)
{
    const char *text = json_string_value(sp_page_item(object, path));

    return text ? text : "";
}

void sp_page_put_gpu(const struct sp_page *page, const char *uuid)
{
    for (size_t i = 0; i < page->topology.gpu_count; i++) {
        const struct sp_topo_gpu *gpu = &page->topology.gpu[i];

        if (gpu->is->uuid && strcmp(gpu->is->uuid, uuid) == 0) {
            sp_put(page->out, "%zu", gpu->number);
            return;
        }
    }
    sp_put_html(page->out, uuid);
}

const char *sp_page_kind(const char *word)
{
    static const struct {
        const char *kind, *word;
    } known[] = {
        {"good", "PASS"},   {"good", "clean"},        {"good", "applied"},     {"bad", "FAIL"},    {"bad", "fail"},
        {"bad", "NO"},      {"warn", "INCONCLUSIVE"}, {"warn", "WARN"},        {"warn", "warn"},   {"warn", "found"},
        {"bad", "drifted"}, {"bad", "missing"},       {"warn", "applied-old"}, {"bad", "unknown"},
    };

    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strcmp(known[i].word, word) == 0)
            return known[i].kind;
    return "plain";
}

void sp_page_badge(struct sp_out *out, const char *kind, const char *text)
{
    sp_put(out, "<span class=\"badge %s\">", kind);
    sp_put_html(out, text);
    sp_put(out, "</span>");
}

void sp_page_sentences(struct sp_out *out, const json_t *list)
{
    const json_t *text;
    size_t i;

    if (json_array_size(list) == 0)
        return;
    sp_put(out, "<ul class=\"troubles\">\n");
    json_array_foreach(list, i, text)
    {
        sp_put(out, "<li>");
        sp_put_html(out, json_string_value(text));
        sp_put(out, "</li>\n");
    }
    sp_put(out, "</ul>\n");
}

/* ---- the head ---- */

static void put_style(struct sp_out *out)
{
    sp_put(out, "<style>\n");
    for (size_t i = 0; sp_page_style[i]; i++)
        sp_put(out, "%s\n", sp_page_style[i]);
    sp_put(out, "</style>\n");
}

static void put_head(struct sp_page *page, const struct sp_page_state *state)
{
    struct sp_out *out = page->out;

    sp_put(out,
           "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
           "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
           "<meta name=\"color-scheme\" content=\"light dark\">\n"
           "<meta name=\"robots\" content=\"noindex\">\n"
           "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n"
           "<title>sgl-pcie: ");
    sp_put_html(out, state->headline);
    sp_put(out, "</title>\n");
    put_style(out);
    sp_put(out, "</head>\n<body>\n");
}

/* ---- the banner ---- */

/* "2 × NVIDIA H200", or each kind with its number. */
static void put_gpus(struct sp_page *page)
{
    const struct sp_topology *topology = &page->topology;
    bool first = true;

    for (size_t i = 0; i < topology->gpu_count; i++) {
        const char *name = topology->gpu[i].is->name ? topology->gpu[i].is->name : "GPU";
        size_t same = 0, before = 0;

        for (size_t k = 0; k < topology->gpu_count; k++) {
            const char *other = topology->gpu[k].is->name ? topology->gpu[k].is->name : "GPU";

            same += strcmp(name, other) == 0;
            before += k < i && strcmp(name, other) == 0;
        }
        if (before > 0)
            continue;
        sp_put(page->out, "%s%zu × ", first ? "" : ", ", same);
        sp_put_html(page->out, name);
        first = false;
    }
    if (topology->gpu_count == 0)
        sp_put(page->out, "no GPU");
}

static void put_fact(struct sp_out *out, const char *before, const char *text)
{
    if (text && text[0]) {
        sp_put(out, "<li>%s", before);
        sp_put_html(out, text);
        sp_put(out, "</li>\n");
    }
}

/* "2026-11-30T04:30" and what follows. */
static bool is_moment(const char *text)
{
    static const char form[] = "0000-00-00T00:00";

    for (size_t i = 0; form[i]; i++)
        if (form[i] == '0' ? !isdigit((unsigned char)text[i]) : text[i] != form[i])
            return false;
    return strlen(text) <= sizeof "2026-11-30T04:30:00Z";
}

static void put_day(struct sp_out *out, const char *created)
{
    if (!is_moment(created))
        return;
    sp_put(out, "<li><time datetime=\"");
    sp_put_html(out, created);
    sp_put(out, "\">");
    for (int i = 0; i < 16; i++) {
        const char one[] = {created[i] == 'T' ? ' ' : created[i], '\0'};

        sp_put_html(out, one);
    }
    sp_put(out, " UTC</time></li>\n");
}

static void put_facts(struct sp_page *page)
{
    struct sp_out *out = page->out;

    sp_put(out, "<ul class=\"facts\">\n<li>");
    put_gpus(page);
    sp_put(out, "</li>\n");
    put_fact(out, "driver ", page->recording.driver.version);
    put_fact(out, "SGLang ", SP_TEXT(page->bundle, "status", "install", "sglang"));
    put_fact(out, "", page->recording.machine.cpu);
    put_fact(out, "sgl-pcie ", SP_TEXT(page->bundle, "version"));
    put_day(out, SP_TEXT(page->bundle, "created"));
    sp_put(out, "</ul>\n");
}

static const char *mark_class(enum sp_page_mark mark)
{
    static const char *const names[] = {"done", "next", "later", "bad"};

    return names[mark];
}

static void put_stages(struct sp_out *out, const struct sp_page_state *state)
{
    static const char *const said[] = {"done", "to do next", "later", "wrong"};

    sp_put(out, "<ol class=\"stages\">\n");
    for (size_t i = 0; i < SP_PAGE_STAGES; i++) {
        const struct sp_page_stage *stage = &state->stage[i];

        sp_put(out, "<li class=\"%s\"><strong>%s</strong> <span class=\"unseen\">(%s)</span> <span class=\"what\">",
               mark_class(stage->mark), stage->name, said[stage->mark]);
        sp_put_html(out, stage->text);
        sp_put(out, "</span></li>\n");
    }
    sp_put(out, "</ol>\n");
}

static void put_banner(struct sp_page *page, const struct sp_page_state *state)
{
    struct sp_out *out = page->out;

    sp_put(out, "<header class=\"%s\">\n<p class=\"name\">sgl-pcie report</p>\n<h1>", mark_class(state->mark));
    sp_put_html(out, state->headline);
    sp_put(out, "</h1>\n");
    put_facts(page);
    if (json_is_object(SP_ITEM(page->bundle, "status")))
        put_stages(out, state);
    if (state->next) {
        sp_put(out, "<p class=\"command\">Next: <code>");
        sp_put_html(out, state->next);
        sp_put(out, "</code></p>\n");
    }
    sp_put(out, "</header>\n");
}

static void put_foot(struct sp_page *page)
{
    sp_put(
        page->out,
        "<footer>\n<p>Made by <code>sgl-pcie report --out FILE.html</code>. Names of hosts and users, paths and serial "
        "numbers are replaced. This page loads nothing and runs nothing.</p>\n</footer>\n</body>\n</html>\n");
}

/* ---- the page ---- */

/* Times that no clock measures are as good as none. */
static void tame(struct sp_bench *bench)
{
    for (size_t i = 0; i < bench->group_count; i++)
        for (size_t k = 0; k < bench->group[i].row_count; k++) {
            struct sp_bench_row *row = &bench->group[i].row[k];

            for (size_t ours = 0; ours < row->ours_count; ours++) {
                row->ours[ours].us.step = sp_sane_us(row->ours[ours].us.step);
                row->ours[ours].us.out = sp_sane_us(row->ours[ours].us.out);
                row->ours[ours].model = sp_sane_us(row->ours[ours].model);
            }
            for (size_t rival = 0; rival < SP_BENCH_RIVALS; rival++)
                row->rival[rival].step = sp_sane_us(row->rival[rival].step);
        }
}

/* What was measured may be from another version: then the page says so, and shows the rest. */
static void read_bench(struct sp_page *page)
{
    const json_t *bench = SP_ITEM(page->bundle, "bench");
    int rc = json_is_object(bench) ? sp_bench_read(&page->bench, bench) : SP_OK;

    if (rc == SP_OK) {
        tame(&page->bench);
        rc = sp_bench_tune(&page->bench);
    }
    if (rc < 0 && rc != SP_EDATA) { /* that one is tuned as far as it is right */
        (void)snprintf(page->bench_error, sizeof page->bench_error, "%s", sp_err_message());
        sp_bench_free(&page->bench);
    }
    if (rc < 0)
        sp_err_clear();
}

/* A step as the project's own example: what a 61-layer model pays to verify a few drafted tokens. */
#define STEP "122x43008"

static void read_steps(struct sp_page *page)
{
    json_t *asked = json_object_get(json_object_get(page->bundle, "bench"), "steps");
    struct sp_step usual;

    page->asked = json_array_size(asked) > 0;
    if (page->asked)
        page->steps = json_incref(asked);
    else if (sp_step_parse(&usual, STEP) == SP_OK)
        page->steps = sp_steps_json(&page->bench, &usual, 1);
}

static int read_machine(struct sp_page *page)
{
    char *text = json_dumps(page->bundle, 0);
    int rc = text ? sp_recording_parse(&page->recording, text, strlen(text), "the bundle")
                  : sp_err(SP_ECANNOT, "out of memory");

    if (rc == SP_OK)
        rc = sp_topology_make(&page->topology, &page->recording, NULL, 0);
    free(text);
    return rc;
}

static void put_page(struct sp_page *page)
{
    struct sp_page_state state;

    sp_page_state_of(&state, page->bundle, page->topology.gpu_count > 1 && !sp_topology_pcie(&page->topology));
    put_head(page, &state);
    put_banner(page, &state);
    sp_put(page->out, "<main>\n");
    sp_page_savings(page);
    sp_page_bench(page);
    sp_page_profile(page);
    sp_page_checks(page);
    sp_page_topology(page);
    sp_page_findings(page);
    sp_page_install(page);
    sp_put(page->out, "</main>\n");
    put_foot(page);
}

int sp_page_make(struct sp_buf *out, const json_t *bundle)
{
    struct sp_out text = {.rc = SP_OK};
    struct sp_page page = {.out = &text, .bundle = bundle};
    int rc;

    sp_recording_init(&page.recording);
    rc = read_machine(&page);
    if (rc == SP_OK) {
        read_bench(&page);
        read_steps(&page);
        put_page(&page);
        rc = text.rc;
    }
    if (rc == SP_OK)
        rc = sp_buf_append(out, text.buf.data, text.buf.len);
    sp_buf_free(&text.buf);
    json_decref(page.steps);
    sp_bench_free(&page.bench);
    sp_topology_free(&page.topology);
    sp_recording_free(&page.recording);
    return rc;
}
