#include "verify/verdict/verdict.h"
#include "base/err.h"
#include "verify/verdict/bound.h"
#include "verify/verdict/merge.h"
#include "verify/verdict/state.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* ---- the file ---- */

static void utc_now(char out[32])
{
    const time_t now = time(NULL);
    struct tm parts;

    (void)strftime(out, 32, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&now, &parts));
}

static int check_unchanged(const json_t *before, const json_t *now)
{
    json_t *changes = NULL;
    int rc = sp_bound_changes(&changes, before, now);

    if (rc == SP_OK && json_array_size(changes) > 0)
        rc = sp_err(SP_ECANNOT, "no verdict: something changed while it was tested: %s",
                    json_string_value(json_array_get(changes, 0)));
    json_decref(changes);
    return rc;
}

int sp_verdict_make(json_t **out, const struct sp_checks *checks, const struct sp_topology *topology, int level,
                    const char *site, const json_t *before)
{
    json_t *results = NULL, *pairs = NULL, *bound = NULL;
    struct sp_subjects gpus;
    char created[32];
    int rc = sp_bound_read(&bound, site, "");

    *out = NULL;
    utc_now(created);
    sp_subjects_of(&gpus, topology);
    if (rc == SP_OK)
        rc = check_unchanged(before, bound);
    if (rc == SP_OK)
        rc = sp_verdict_judge(&results, &pairs, checks, &gpus);
    if (rc == SP_OK) {
        *out = json_pack("{s:s, s:s, s:s, s:i, s:O, s:O, s:O, s:o}", "schema", SP_VERDICT_SCHEMA, "tool", SP_VERSION,
                         "created", created, "level", level, "bound", bound, "results", results, "pairs", pairs,
                         "checks", sp_checks_json(checks));
        rc = *out ? SP_OK : sp_err(SP_ECANNOT, "out of memory");
    }
    json_decref(results);
    json_decref(pairs);
    json_decref(bound);
    return rc;
}

/* What was cut short found nothing. */
static bool found_wrong(const struct sp_checks *checks)
{
    bool found = false;

    for (size_t i = 0; i < checks->count; i++)
        found = found || (checks->item[i]->status == SP_CHECK_FAIL && !checks->item[i]->cut);
    return found;
}

bool sp_verdict_counts(const struct sp_checks *checks, int level)
{
    const struct sp_check *alone = sp_check_find(checks, "grant.processes");

    if (alone && alone->status == SP_CHECK_INCONCLUSIVE)
        return false;
    return level >= SP_VERDICT_LEVEL || found_wrong(checks) || sp_verdict_doubts(checks);
}

/* ---- as it stands now ---- */

static void say(struct sp_verdict_now *now, const char *fmt, const char *text)
{
    (void)json_array_append_new(now->reasons, json_sprintf(fmt, text));
}

/* A rebuilt kernel of SGLang's is another one: what was proved of the former does not hold for it. */
static bool holds(const struct sp_verdict_now *now, const json_t *result)
{
    const char *backend = json_string_value(json_object_get(result, "backend"));
    const char *library = json_string_value(json_object_get(result, "library"));

    return !backend || strcmp(backend, SP_UPSTREAM) != 0 || strcmp(library ? library : "", now->upstream) == 0;
}

static const char *best_result(const struct sp_verdict_now *now)
{
    const char *best = "INCONCLUSIVE";
    const json_t *item;
    size_t i;

    json_array_foreach(json_object_get(now->content, "results"), i, item)
    {
        const char *is = json_string_value(json_object_get(item, "result"));

        if (is && strcmp(is, "PASS") == 0 && holds(now, item))
            return "PASS";
        best = is && strcmp(is, "FAIL") == 0 ? "FAIL" : best;
    }
    return best;
}

static int compare(struct sp_verdict_now *now, const char *site)
{
    json_t *changes = NULL;
    int rc = sp_bound_since(&changes, json_object_get(now->content, "bound"), site);

    if (rc == SP_OK)
        (void)json_array_extend(now->reasons, changes);
    json_decref(changes);
    return rc;
}

static int look(struct sp_verdict_now *now, const char *site)
{
    char text[16];
    int rc;

    now->present = true;
    now->level = (int)json_integer_value(json_object_get(now->content, "level"));
    rc = sp_built_sum(now->upstream, site, SP_UPSTREAM_LIBRARY);
    now->result = best_result(now);
    if (rc == SP_OK)
        rc = compare(now, site);
    now->fresh = rc == SP_OK && json_array_size(now->reasons) == 0;
    (void)snprintf(text, sizeof text, "%d", now->level);
    if (now->level < SP_VERDICT_LEVEL)
        say(now, "it is of level %s, 3 is needed", text);
    else if (strcmp(now->result, "PASS") != 0)
        say(now, "nothing passed%s", "");
    return rc;
}

int sp_verdict_read(struct sp_verdict_now *out, const char *site)
{
    int rc;

    memset(out, 0, sizeof *out);
    out->reasons = json_array();
    rc = sp_state_read(&out->content, &out->found, SP_VERDICT_FILE, SP_VERDICT_SCHEMA, site);
    if (rc == SP_OK && out->content)
        rc = look(out, site);
    else if (rc == SP_OK && strcmp(out->found, "there is none for this machine") == 0)
        say(out, "no verdict for this machine%s", "");
    else if (rc == SP_OK)
        say(out, "no verdict that counts: %s", out->found);
    return rc;
}

bool sp_verdict_holds(const struct sp_verdict_now *now)
{
    return now->fresh && json_array_size(now->reasons) == 0;
}

void sp_verdict_free(struct sp_verdict_now *now)
{
    json_decref(now->reasons);
    json_decref(now->content);
    free(now->found);
    memset(now, 0, sizeof *now);
}

/* "host 2,3,4": worlds in which a backend passed. */
static int add_backend(struct sp_buf *out, const struct sp_verdict_now *now, const char *backend)
{
    bool world[SP_WORLD_MAX + 1] = {false}, any = false;
    const json_t *item;
    size_t i;
    int rc = SP_OK;

    json_array_foreach(json_object_get(now->content, "results"), i, item)
    {
        const char *is = json_string_value(json_object_get(item, "result"));
        const char *of = json_string_value(json_object_get(item, "backend"));
        const json_int_t size = json_integer_value(json_object_get(item, "world"));

        if (is && of && strcmp(is, "PASS") == 0 && strcmp(of, backend) == 0 && size >= 2 && size <= SP_WORLD_MAX &&
            holds(now, item))
            world[size] = true;
    }
    for (size_t size = 2; size <= SP_WORLD_MAX && rc == SP_OK; size++)
        if (world[size]) {
            rc = any ? sp_buf_printf(out, ",%zu", size)
                     : sp_buf_printf(out, "%s%s %zu", out->len ? "; " : "", backend, size);
            any = true;
        }
    return rc;
}

static bool upstream_is_stale(const struct sp_verdict_now *now)
{
    const json_t *item;
    bool stale = false;
    size_t i;

    json_array_foreach(json_object_get(now->content, "results"), i, item) stale = stale || !holds(now, item);
    return stale;
}

char *sp_verdict_summary(const struct sp_verdict_now *now)
{
    struct sp_buf passed = SP_BUF_INIT;
    char *text = NULL;
    int len, rc = SP_OK;

    for (size_t i = 0; sp_backends[i] && rc == SP_OK; i++)
        rc = add_backend(&passed, now, sp_backends[i]);
    if (rc == SP_OK)
        rc = add_backend(&passed, now, SP_UPSTREAM);
    if (rc == SP_OK && upstream_is_stale(now))
        rc = sp_buf_printf(&passed, "%s" SP_UPSTREAM " stale, " SP_UPSTREAM_LIBRARY " is another",
                           passed.len ? "; " : "");
    len = rc == SP_OK ? asprintf(&text, "%s of level %d%s%s", now->result ? now->result : "none", now->level,
                                 passed.len ? ": " : "", passed.len ? passed.data : "")
                      : -1;
    sp_buf_free(&passed);
    return len < 0 ? NULL : text;
}
