#include "verify/page/page_parts.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { PATCHED, BUILT, PROVED, MEASURED, ENABLED };

static const char *const commands[SP_PAGE_STAGES] = {"sgl-pcie apply", "sgl-pcie build", "sgl-pcie verify",
                                                     "sgl-pcie bench", "sgl-pcie enable"};

static void set(struct sp_page_stage *stage, enum sp_page_mark mark, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

static void set(struct sp_page_stage *stage, enum sp_page_mark mark, const char *fmt, ...)
{
    va_list args;

    stage->mark = mark;
    va_start(args, fmt);
    (void)vsnprintf(stage->text, sizeof stage->text, fmt, args);
    va_end(args);
}

/* ---- the stages ---- */

/* The set sgl-kernel is patched when it is named, and nothing of ours waits for it: as status counts. */
static void see_patch(struct sp_page_stage *out, const json_t *status)
{
    const json_t *files = SP_ITEM(status, "install", "files"), *file;
    size_t count = 0, patched = 0, wrong = 0, i;

    json_array_foreach(files, i, file)
    {
        const char *state = SP_TEXT(file, "state");

        if (strcmp(SP_TEXT(file, "set"), "sgl-kernel") == 0)
            continue;
        count++;
        patched += strcmp(state, "applied") == 0;
        wrong += strcmp(state, "drifted") == 0 || strcmp(state, "unknown") == 0 || strcmp(state, "missing") == 0;
    }
    if (json_is_true(SP_ITEM(status, "pending")))
        set(out, SP_MARK_BAD, "an earlier write was interrupted");
    else if (wrong > 0)
        set(out, SP_MARK_BAD, "%zu of %zu files are not as any release has them", wrong, count);
    else if (patched == 0 || patched < count)
        set(out, SP_MARK_NEXT, patched ? "%zu of %zu files" : "not yet", patched, count);
    else
        set(out, SP_MARK_DONE, "SGLang %s", SP_TEXT(status, "install", "sglang"));
}

static void see_build(struct sp_page_stage *out, const json_t *status)
{
    if (json_is_true(SP_ITEM(status, "extension", "present")))
        set(out, SP_MARK_DONE, "libpar.so %.12s", SP_TEXT(status, "extension", "sha256"));
    else
        set(out, SP_MARK_NEXT, "not yet");
}

/* "push, host": what passed. */
static void say_passed(struct sp_page_stage *out, const json_t *results)
{
    const json_t *result;
    size_t i, len = 0;

    json_array_foreach(results, i, result)
    {
        const char *backend = SP_TEXT(result, "backend");

        if (strcmp(SP_TEXT(result, "result"), "PASS") != 0 || strstr(out->text, backend) || len >= sizeof out->text)
            continue;
        len += (size_t)snprintf(out->text + len, sizeof out->text - len, "%s%s", len ? ", " : "", backend);
    }
}

static void see_verdict(struct sp_page_stage *out, const json_t *bundle)
{
    const json_t *status = SP_ITEM(bundle, "status");
    const json_t *reasons = SP_ITEM(status, "verdict", "reasons");
    const char *result = SP_TEXT(status, "verdict", "result"), *why = json_string_value(json_array_get(reasons, 0));

    if (!json_is_true(SP_ITEM(status, "verdict", "present")))
        set(out, SP_MARK_NEXT, "not yet");
    else if (strcmp(result, "FAIL") == 0)
        set(out, SP_MARK_BAD, "FAIL%s%s", why ? ": " : "", why ? why : "");
    else if (!json_is_true(SP_ITEM(status, "verdict", "fresh")))
        set(out, SP_MARK_NEXT, "stale: %s", why ? why : "something changed");
    else if (strcmp(result, "PASS") != 0 || why)
        set(out, SP_MARK_NEXT, "%s%s%s", result, why ? ": " : "", why ? why : "");
    else {
        set(out, SP_MARK_DONE, "%s", "");
        say_passed(out, SP_ITEM(bundle, "verdict", "results"));
    }
}

static void see_profile(struct sp_page_stage *out, const json_t *bundle)
{
    const json_t *profile = SP_ITEM(bundle, "profile");

    if (!json_is_object(profile))
        set(out, SP_MARK_NEXT, "not yet");
    else if (!json_is_true(SP_ITEM(profile, "fresh")))
        set(out, SP_MARK_NEXT, "stale: %s", SP_TEXT(profile, "reason"));
    else if (!json_is_true(SP_ITEM(profile, "wins")))
        set(out, SP_MARK_BAD, "nothing is faster here than stock");
    else
        set(out, SP_MARK_DONE, "%s", SP_TEXT(profile, "summary"));
}

static void see_flag(struct sp_page_stage *out, const json_t *status)
{
    const char *value = SP_TEXT(status, "flag", "value");

    if (strcmp(value, "1") == 0)
        set(out, SP_MARK_DONE, "%s",
            strcmp(SP_TEXT(status, "flag", "source"), "install") == 0 ? "for this environment" : "by the variable");
    else if (strcmp(value, "unsafe") == 0)
        set(out, SP_MARK_BAD, "unsafe: without a proof");
    else
        set(out, SP_MARK_NEXT, value[0] ? "the flag is %s" : "not yet", value);
}

/* ---- the whole ---- */

static void summarize(struct sp_page_state *out, bool nvlink)
{
    static const char *const missing[SP_PAGE_STAGES] = {
        "SGLang is not patched: it behaves as stock",
        "Patched, not built: SGLang behaves as stock",
        "Built, not proved: SGLang behaves as stock",
        "Proved, not measured: what pays here is not known",
        "Proved and measured, not enabled: SGLang behaves as stock",
    };
    static const char *const wrong[SP_PAGE_STAGES] = {
        "The install cannot be used as it is",
        "The build cannot be used",
        "Not to be trusted on this machine",
        "Right on this machine, and not faster than stock",
        "Enabled without a proof",
    };
    size_t first = 0;

    while (first < SP_PAGE_STAGES && out->stage[first].mark == SP_MARK_DONE)
        first++;
    for (size_t i = first + 1; i < SP_PAGE_STAGES; i++)
        if (out->stage[i].mark == SP_MARK_NEXT)
            out->stage[i].mark = SP_MARK_LATER;
    out->mark = first < SP_PAGE_STAGES ? out->stage[first].mark : SP_MARK_DONE;
    out->next = first < SP_PAGE_STAGES && out->mark == SP_MARK_NEXT ? commands[first] : NULL;
    if (first == SP_PAGE_STAGES)
        (void)snprintf(out->headline, sizeof out->headline, "%s",
                       nvlink ? "Enabled, but NVLink joins all GPUs: auto leaves them to SGLang’s own"
                              : "Enabled: SGLang uses the PCIe all-reduce");
    else
        (void)snprintf(out->headline, sizeof out->headline, "%s",
                       out->mark == SP_MARK_BAD ? wrong[first] : missing[first]);
}

/* A recording tells of a machine and of nothing else. */
static void say_no_install(struct sp_page_state *out, const json_t *bundle)
{
    const char *why = SP_TEXT(bundle, "status_error");

    out->mark = SP_MARK_LATER;
    out->next = why[0] ? "sgl-pcie status" : NULL;
    (void)snprintf(out->headline, sizeof out->headline, "%s",
                   why[0] ? "No SGLang was found here" : "A machine, without an install");
}

void sp_page_state_of(struct sp_page_state *out, const json_t *bundle, bool nvlink)
{
    static const char *const names[SP_PAGE_STAGES] = {"Patched", "Built", "Proved", "Measured", "Enabled"};
    const json_t *status = SP_ITEM(bundle, "status");

    memset(out, 0, sizeof *out);
    for (size_t i = 0; i < SP_PAGE_STAGES; i++)
        out->stage[i].name = names[i];
    if (!json_is_object(status)) {
        say_no_install(out, bundle);
        return;
    }
    see_patch(&out->stage[PATCHED], status);
    see_build(&out->stage[BUILT], status);
    see_verdict(&out->stage[PROVED], bundle);
    see_profile(&out->stage[MEASURED], bundle);
    see_flag(&out->stage[ENABLED], status);
    summarize(out, nvlink);
    if (json_is_true(SP_ITEM(status, "pending")))
        out->next = "sgl-pcie recover";
}
