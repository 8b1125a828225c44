#include "verify/verdict/merge.h"
#include "base/err.h"
#include "base/json.h"
#include "base/shell.h"
#include "verify/machine/uuids.h"
#include "verify/verdict/bound.h"
#include "verify/verdict/state.h"
#include "verify/verdict/verdict.h"
#include "verify/verdict/withdraw.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { REASON = 512 };

/* ---- members ---- */

static const char *text_of(const json_t *item, const char *key)
{
    const char *text = json_string_value(json_object_get(item, key));

    return text ? text : "";
}

static json_t *gpus_of(const json_t *item)
{
    return json_object_get(item, "gpus");
}

/* ---- is it a verdict, and of the same things? ---- */

static bool texts_only(const json_t *list)
{
    const json_t *item;
    bool good = json_is_array(list);
    size_t i;

    json_array_foreach(list, i, item) good = good && json_is_string(item);
    return good;
}

static bool all_texts(const json_t *list, bool pairs)
{
    const json_t *item, *failed;
    bool good = json_is_array(list);
    size_t i, k;

    json_array_foreach(list, i, item)
    {
        good = good && json_is_string(json_object_get(item, "backend")) && texts_only(gpus_of(item));
        good = good && (!pairs || json_is_array(json_object_get(item, "failed")));
        json_array_foreach(json_object_get(item, "failed"), k, failed) good =
            good && texts_only(failed) && json_array_size(failed) == 2;
    }
    return good;
}

static bool counts(const json_t *verdict)
{
    return json_integer_value(json_object_get(verdict, "level")) >= SP_VERDICT_LEVEL;
}

static int comparable(bool *out, const json_t *before, const json_t *run)
{
    json_t *changes = NULL;
    int rc = SP_OK;

    *out = before && counts(before) && all_texts(json_object_get(before, "results"), false) &&
           all_texts(json_object_get(before, "pairs"), true);
    if (*out)
        rc = sp_bound_changes(&changes, json_object_get(before, "bound"), json_object_get(run, "bound"));
    *out = *out && rc == SP_OK && json_array_size(changes) == 0;
    json_decref(changes);
    return rc;
}

/* What root could read, a user's run does not forget. */
static void keep_readable(json_t *bound, const json_t *before)
{
    const char *key;
    json_t *value;

    json_object_foreach((json_t *)(uintptr_t)before, key, value)
    {
        const char *now = json_string_value(json_object_get(bound, key));

        if (!now || strcmp(now, "unreadable") == 0)
            (void)json_object_set(bound, key, value);
    }
}

/* ---- what a run found wrong ---- */

struct fault {
    const char *result; /* NULL: nothing */
    char reason[REASON];
};

/* Does this backend suffer from what the other suffers from? */
static bool leans_on(const char *backend, const char *other)
{
    return strcmp(backend, other) == 0 ||
           (strcmp(backend, SP_UPSTREAM) == 0 && (strcmp(other, "push") == 0 || strcmp(other, "pull") == 0));
}

static void weigh_results(struct fault *out, const json_t *run, const char *backend, const json_t *gpus)
{
    const json_t *item;
    size_t i;

    json_array_foreach(json_object_get(run, "results"), i, item)
    {
        if (out->result || !leans_on(backend, text_of(item, "backend")) || !sp_json_is(item, "result", "FAIL") ||
            !sp_uuids_within(gpus_of(item), gpus))
            continue;
        out->result = "FAIL";
        (void)snprintf(out->reason, sizeof out->reason, "a later run on %zu of these GPUs: %s: %s",
                       json_array_size(gpus_of(item)), text_of(item, "backend"), text_of(item, "reason"));
    }
}

static void weigh_pairs(struct fault *out, const json_t *run, const char *backend, const json_t *gpus)
{
    const json_t *item, *pair;
    size_t i, k;

    json_array_foreach(json_object_get(run, "pairs"), i, item)
        json_array_foreach(json_object_get(item, "failed"), k, pair)
    {
        if (out->result || !leans_on(backend, text_of(item, "backend")) || !sp_uuids_within(pair, gpus))
            continue;
        out->result = "INCONCLUSIVE";
        (void)snprintf(out->reason, sizeof out->reason, "a later run: transfers of %s from %s to %s did not pass",
                       text_of(item, "backend"), json_string_value(json_array_get(pair, 0)),
                       json_string_value(json_array_get(pair, 1)));
    }
}

/* ---- what stays of before ---- */

/* Did the run judge this backend on all of these GPUs? */
static bool replaced(const json_t *item, const json_t *run)
{
    const json_t *judged;
    bool found = false;
    size_t i;

    json_array_foreach(json_object_get(run, "pairs"), i, judged) found =
        found ||
        (sp_json_is(judged, "backend", text_of(item, "backend")) && sp_uuids_within(gpus_of(item), gpus_of(judged)));
    return found && counts(run);
}

/* Results of before that stay, weighed. */
static void keep_results(json_t *out, const json_t *before, const json_t *run)
{
    const json_t *item;
    size_t i;

    json_array_foreach(json_object_get(before, "results"), i, item)
    {
        struct fault fault = {.result = NULL};
        json_t *kept;

        if (replaced(item, run))
            continue;
        kept = json_deep_copy(item);
        weigh_results(&fault, run, text_of(item, "backend"), gpus_of(item));
        weigh_pairs(&fault, run, text_of(item, "backend"), gpus_of(item));
        if (fault.result && sp_json_is(item, "result", "PASS")) {
            (void)json_object_set_new(kept, "result", json_string(fault.result));
            (void)json_object_set_new(kept, "reason", json_string(fault.reason));
        }
        (void)json_array_append_new(out, kept);
    }
}

static bool has_pair(const json_t *list, const char *a, const char *b)
{
    const json_t *pair;
    bool found = false;
    size_t i;

    json_array_foreach(list, i, pair) found = found || (strcmp(json_string_value(json_array_get(pair, 0)), a) == 0 &&
                                                        strcmp(json_string_value(json_array_get(pair, 1)), b) == 0);
    return found;
}

static void add_pair(json_t *failed, const char *a, const char *b)
{
    if (!has_pair(failed, a, b))
        (void)json_array_append_new(failed, json_pack("[s, s]", a, b));
}

/* Every ordered pair of a set whose transfers passed and whose kernels did not. */
static void add_set(json_t *failed, const json_t *gpus)
{
    const json_t *a, *b;
    size_t i, k;

    json_array_foreach(gpus, i, a) json_array_foreach(gpus, k, b) if (i != k)
        add_pair(failed, json_string_value(a), json_string_value(b));
}

static void add_failures(json_t *kept, const json_t *run)
{
    const char *backend = text_of(kept, "backend");
    json_t *failed = json_object_get(kept, "failed");
    const json_t *item, *pair;
    size_t i, k;

    json_array_foreach(json_object_get(run, "pairs"), i, item)
        json_array_foreach(json_object_get(item, "failed"), k, pair) if (leans_on(backend, text_of(item, "backend")) &&
                                                                         sp_uuids_within(pair, gpus_of(kept)))
            add_pair(failed, json_string_value(json_array_get(pair, 0)), json_string_value(json_array_get(pair, 1)));
    json_array_foreach(json_object_get(run, "results"), i,
                       item) if (leans_on(backend, text_of(item, "backend")) && sp_json_is(item, "result", "FAIL") &&
                                 sp_uuids_within(gpus_of(item), gpus_of(kept))) add_set(failed, gpus_of(item));
}

static void keep_pairs(json_t *out, const json_t *before, const json_t *run)
{
    const json_t *item;
    size_t i;

    json_array_foreach(json_object_get(before, "pairs"), i, item)
    {
        json_t *kept;

        if (replaced(item, run))
            continue;
        kept = json_deep_copy(item);
        add_failures(kept, run);
        (void)json_array_append_new(out, kept);
    }
}

/* A run below the level that counts adds nothing but its doubts. */
static int merge_into(json_t *out, const json_t *before, const json_t *run)
{
    const json_int_t was = json_integer_value(json_object_get(before, "level"));
    const json_int_t now = json_integer_value(json_object_get(run, "level"));
    json_t *results = json_array(), *pairs = json_array();
    int rc = results && pairs ? SP_OK : sp_err(SP_ECANNOT, "out of memory");

    if (rc == SP_OK && counts(run)) {
        (void)json_array_extend(results, json_object_get(run, "results"));
        (void)json_array_extend(pairs, json_object_get(run, "pairs"));
    }
    if (rc == SP_OK) {
        const size_t own = json_array_size(results);

        keep_results(results, before, run);
        keep_pairs(pairs, before, run);
        if (!counts(run) || (json_array_size(results) > own && was < now))
            (void)json_object_set_new(out, "level", json_integer(was));
        keep_readable(json_object_get(out, "bound"), json_object_get(before, "bound"));
        (void)json_object_set(out, "results", results);
        (void)json_object_set(out, "pairs", pairs);
    }
    json_decref(results);
    json_decref(pairs);
    return rc;
}

int sp_verdict_merge(json_t **out, const json_t *before, const json_t *run)
{
    bool same;
    int rc = comparable(&same, before, run);

    *out = rc == SP_OK ? json_deep_copy(run) : NULL;
    if (rc == SP_OK && !*out)
        rc = sp_err(SP_ECANNOT, "out of memory");
    if (rc == SP_OK && same)
        rc = merge_into(*out, before, run);
    return rc;
}

/* ---- results of others ---- */

/* Some entry of this backend has all of these GPUs, and no failed pair among them. */
static bool cleared(const json_t *verdict, const char *backend, const json_t *gpus)
{
    const json_t *item, *pair;
    bool found = false;
    size_t i, k;

    json_array_foreach(json_object_get(verdict, "pairs"), i, item)
    {
        bool good = sp_json_is(item, "backend", backend) && sp_uuids_within(gpus, gpus_of(item));

        json_array_foreach(json_object_get(item, "failed"), k, pair) good = good && !sp_uuids_within(pair, gpus);
        found = found || good;
    }
    return found;
}

static json_t *outcome_json(const json_t *before, const struct sp_outcome *item, const json_t *gpus)
{
    static const char *const needed[] = {"push", "pull"};
    const char *result = item->result, *reason = item->reason;
    char text[REASON];

    for (size_t i = 0; i < sizeof needed / sizeof *needed && strcmp(result, "PASS") == 0; i++)
        if (!cleared(before, needed[i], gpus)) {
            result = "INCONCLUSIVE";
            (void)snprintf(text, sizeof text, "transfers of %s between these GPUs did not pass: sgl-pcie verify",
                           needed[i]);
            reason = text;
        }
    return json_pack("{s:s, s:i, s:O, s:s, s:s*, s:s*}", "backend", item->backend, "world", (int)item->count, "gpus",
                     gpus, "result", result, "reason", reason, "library", item->library);
}

static json_t *uuids(const struct sp_outcome *item)
{
    json_t *gpus = json_array();

    for (size_t i = 0; gpus && i < item->count; i++)
        (void)json_array_append_new(gpus, json_string(item->uuid[i]));
    return gpus;
}

/* One entry of pairs for each, and no failed pair of its own: what is needed of them was looked up. */
static int add_outcome(json_t *run, const json_t *before, const struct sp_outcome *item)
{
    json_t *gpus = uuids(item), *result = gpus ? outcome_json(before, item, gpus) : NULL;
    json_t *pairs = gpus ? json_pack("{s:s, s:O, s:[]}", "backend", item->backend, "gpus", gpus, "failed") : NULL;
    int rc = SP_OK;

    if (pairs && result && !sp_json_is(result, "result", "PASS"))
        add_set(json_object_get(pairs, "failed"), gpus);
    if (json_array_append_new(json_object_get(run, "results"), result) < 0 ||
        json_array_append_new(json_object_get(run, "pairs"), pairs) < 0)
        rc = sp_err(SP_ECANNOT, "out of memory");
    json_decref(gpus);
    return rc;
}

int sp_verdict_outcomes(json_t **out, const json_t *before, const struct sp_outcome *item, size_t count)
{
    int rc = before ? SP_OK : sp_err(SP_EFAIL, "no verdict that this could be added to");

    *out = json_deep_copy(before);
    if (rc == SP_OK && (!*out || json_object_set_new(*out, "results", json_array()) < 0 ||
                        json_object_set_new(*out, "pairs", json_array()) < 0))
        rc = sp_err(SP_ECANNOT, "out of memory");
    for (size_t i = 0; i < count && rc == SP_OK; i++)
        rc = add_outcome(*out, before, &item[i]);
    if (rc < 0) {
        json_decref(*out);
        *out = NULL;
    }
    return rc;
}

/* ---- the file ---- */

static int merge_run(json_t **out, const json_t *before, const void *context)
{
    return sp_verdict_merge(out, before, context);
}

static int take_run(json_t **out, const json_t *before, const void *context)
{
    (void)before;
    return sp_verdict_merge(out, NULL, context);
}

static int update(char **path, json_t **verdict, const char *site, sp_state_change *change, const void *context)
{
    const int rc = sp_state_update(path, verdict, SP_VERDICT_FILE, SP_VERDICT_SCHEMA, site, change, context);

    return rc < 0 ? sp_verdict_withdraw(rc, site, change, context) : rc;
}

int sp_verdict_save(char **path, json_t **verdict, const char *site, const json_t *run, int alone)
{
    return update(path, verdict, site, alone ? take_run : merge_run, run);
}

struct others {
    const struct sp_outcome *item;
    size_t count;
};

static int merge_outcomes(json_t **out, const json_t *before, const void *context)
{
    const struct others *others = context;
    json_t *run = NULL;
    int rc = sp_verdict_outcomes(&run, before, others->item, others->count);

    *out = NULL;
    if (rc == SP_OK)
        rc = sp_verdict_merge(out, before, run);
    json_decref(run);
    return rc;
}

static int check_fresh(const char *site)
{
    char quoted[SP_QUOTED_MAX];
    struct sp_verdict_now now;
    int rc = sp_verdict_read(&now, site);

    if (rc == SP_OK && (!now.fresh || now.level < SP_VERDICT_LEVEL))
        rc = sp_err_hint(sp_err(SP_EFAIL, "no fresh verdict of level %d or more that this could be added to: %s",
                                SP_VERDICT_LEVEL, json_string_value(json_array_get(now.reasons, 0))),
                         "sgl-pcie verify --site %s", sp_shell_quote(quoted, site));
    sp_verdict_free(&now);
    return rc;
}

int sp_verdict_add(char **path, const char *site, const struct sp_outcome *item, size_t count)
{
    const struct others others = {item, count};
    json_t *verdict = NULL;
    int rc = check_fresh(site);

    *path = NULL;
    if (rc == SP_OK)
        rc = update(path, &verdict, site, merge_outcomes, &others);
    json_decref(verdict);
    return rc;
}
