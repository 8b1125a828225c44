#include "verify/verdict.h"
#include "base/err.h"
#include "verify/bound.h"
#include "verify/state.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

const char *const sp_backends[] = {"push", "pull", "host", NULL};

static const char *const needs_push[] = {"store", "store-flag", "store-all", NULL};
static const char *const needs_pull[] = {"load", "load-flag", "load-all", NULL};
static const char *const needs_host[] = {"host", "host-flag", NULL};
static const char *const *const needs[] = {needs_push, needs_pull, needs_host};

/* Checks of a backend on a set that count where they were run. */
static const char *const also[] = {"death", "soak"};

/* Outcomes in order: of all that a result needs, the worst decides. */
enum outcome { PASSED, UNPROVED, FAILED };

struct finding {
    enum outcome outcome;
    char reason[256]; /* of the first check with this outcome */
};

void sp_subjects_of(struct sp_subjects *out, const struct sp_topology *topology)
{
    memset(out, 0, sizeof *out);
    for (size_t i = 0; i < topology->gpu_count; i++) {
        out->number[i] = topology->gpu[i].number;
        out->uuid[i] = topology->gpu[i].is->uuid ? topology->gpu[i].is->uuid : "unreadable";
    }
    out->count = topology->gpu_count;
}

const char *const *sp_backend_needs(const char *backend)
{
    for (size_t i = 0; sp_backends[i]; i++)
        if (strcmp(sp_backends[i], backend) == 0)
            return needs[i];
    return NULL;
}

/* ---- what a check says ---- */

static const struct sp_check *find(const struct sp_checks *checks, const char *id)
{
    const struct sp_check *found = NULL;

    for (size_t i = 0; i < checks->count && !found; i++)
        if (strcmp(checks->item[i]->id, id) == 0)
            found = checks->item[i];
    return found;
}

static enum outcome outcome_of(const struct sp_check *check)
{
    if (!check)
        return UNPROVED;
    return check->status == SP_CHECK_PASS ? PASSED : check->status == SP_CHECK_FAIL ? FAILED : UNPROVED;
}

static void weigh(struct finding *finding, const struct sp_checks *checks, const char *id)
{
    const struct sp_check *check = find(checks, id);
    const enum outcome is = outcome_of(check);
    const char *actual = check ? json_string_value(check->actual) : NULL;

    if (is <= finding->outcome)
        return;
    finding->outcome = is;
    (void)snprintf(finding->reason, sizeof finding->reason, "%s: %s%s%s", id,
                   !check                           ? "not run"
                   : is == FAILED                   ? "failed"
                   : check->status == SP_CHECK_SKIP ? "skipped"
                                                    : "inconclusive",
                   actual && actual[0] ? ": " : "", actual ? actual : "");
}

/* ---- sets of GPUs ---- */

struct set {
    size_t count;
    size_t at[SP_WORLD_MAX]; /* indices into the subjects */
};

static bool index_of(size_t *out, const struct sp_subjects *gpus, size_t number)
{
    for (size_t i = 0; i < gpus->count; i++)
        if (gpus->number[i] == number) {
            *out = i;
            return true;
        }
    return false;
}

static bool in_set(const struct set *set, size_t at)
{
    bool found = false;

    for (size_t i = 0; i < set->count; i++)
        found = found || set->at[i] == at;
    return found;
}

/* "0-2-3": different GPUs that checks speak of, two to eight. */
static bool parse_set(struct set *out, const char *text, const struct sp_subjects *gpus)
{
    size_t number, at;
    int used;

    out->count = 0;
    while (out->count < SP_WORLD_MAX && sscanf(text, "%zu%n", &number, &used) == 1) {
        if (!index_of(&at, gpus, number) || in_set(out, at))
            return false;
        out->at[out->count++] = at;
        text += used;
        if (*text != '-')
            break;
        text++;
    }
    return *text == '\0' && out->count >= 2;
}

static void weigh_pair(struct finding *finding, const struct sp_checks *checks, const char *const *kinds, size_t from,
                       size_t to)
{
    char id[SP_CHECK_ID];

    for (size_t k = 0; kinds[k]; k++) {
        (void)snprintf(id, sizeof id, "%s.%zu-%zu", kinds[k], from, to);
        weigh(finding, checks, id);
    }
}

/* ---- results ---- */

/* Does the machine work without any of this? */
static void weigh_control(struct finding *finding, const struct sp_checks *checks, const struct sp_subjects *gpus,
                          const struct set *set)
{
    char id[SP_CHECK_ID];

    weigh(finding, checks, "grant.processes");
    for (size_t i = 0; i < set->count; i++) {
        (void)snprintf(id, sizeof id, "control.%zu", gpus->number[set->at[i]]);
        weigh(finding, checks, id);
    }
}

static void weigh_set(struct finding *finding, const struct sp_checks *checks, const struct sp_subjects *gpus,
                      const char *const *kinds, const struct set *set)
{
    for (size_t a = 0; a < set->count; a++)
        for (size_t b = 0; b < set->count; b++)
            if (a != b)
                weigh_pair(finding, checks, kinds, gpus->number[set->at[a]], gpus->number[set->at[b]]);
}

static void judge_set(struct finding *out, const struct sp_checks *checks, const struct sp_subjects *gpus,
                      const char *backend, const char *name, const struct set *set)
{
    struct finding control = {.outcome = PASSED};
    char id[SP_CHECK_ID];

    *out = (struct finding){.outcome = PASSED};
    weigh_control(&control, checks, gpus, set);
    weigh_set(out, checks, gpus, sp_backend_needs(backend), set);
    (void)snprintf(id, sizeof id, "kernels.%s.%s", backend, name);
    weigh(out, checks, id);
    for (size_t i = 0; i < sizeof also / sizeof *also; i++) {
        (void)snprintf(id, sizeof id, "%s.%s.%s", also[i], backend, name);
        if (find(checks, id))
            weigh(out, checks, id);
    }
    if (control.outcome != PASSED) {
        *out = control;
        out->outcome = UNPROVED;
    }
}

static json_t *uuids_json(const struct sp_subjects *gpus, const struct set *set)
{
    json_t *list = json_array();

    for (size_t i = 0; i < (set ? set->count : gpus->count); i++)
        (void)json_array_append_new(list, json_string(gpus->uuid[set ? set->at[i] : i]));
    return list;
}

static json_t *result_json(const char *backend, const struct sp_subjects *gpus, const struct set *set,
                           const struct finding *finding)
{
    static const char *const names[] = {"PASS", "INCONCLUSIVE", "FAIL"};

    return json_pack("{s:s, s:i, s:o, s:s, s:s*}", "backend", backend, "world", (int)set->count, "gpus",
                     uuids_json(gpus, set), "result", names[finding->outcome], "reason",
                     finding->outcome == PASSED ? NULL : finding->reason);
}

/* kernels.BACKEND.SET starts a result. */
static void add_result(json_t *results, const struct sp_check *check, const struct sp_checks *checks,
                       const struct sp_subjects *gpus)
{
    char prefix[SP_CHECK_ID];
    struct finding finding;
    struct set set;

    for (size_t i = 0; sp_backends[i]; i++) {
        const int len = snprintf(prefix, sizeof prefix, "kernels.%s.", sp_backends[i]);

        if (strncmp(check->id, prefix, (size_t)len) != 0 || !parse_set(&set, check->id + len, gpus))
            continue;
        judge_set(&finding, checks, gpus, sp_backends[i], check->id + len, &set);
        (void)json_array_append_new(results, result_json(sp_backends[i], gpus, &set, &finding));
    }
}

/* ---- pairs ---- */

static json_t *failed_pairs(const struct sp_checks *checks, const struct sp_subjects *gpus, const char *const *kinds)
{
    json_t *list = json_array();

    for (size_t i = 0; i < gpus->count * gpus->count; i++) {
        const size_t a = i / gpus->count, b = i % gpus->count;
        struct finding finding = {.outcome = PASSED};

        if (a == b)
            continue;
        weigh_pair(&finding, checks, kinds, gpus->number[a], gpus->number[b]);
        if (finding.outcome != PASSED)
            (void)json_array_append_new(list, json_pack("[s, s]", gpus->uuid[a], gpus->uuid[b]));
    }
    return list;
}

int sp_verdict_judge(json_t **results, json_t **pairs, const struct sp_checks *checks, const struct sp_subjects *gpus)
{
    int rc = SP_OK;

    *results = json_array();
    *pairs = json_array();
    for (size_t i = 0; i < checks->count; i++)
        add_result(*results, checks->item[i], checks, gpus);
    for (size_t i = 0; sp_backends[i] && gpus->count > 0; i++)
        (void)json_array_append_new(*pairs,
                                    json_pack("{s:s, s:o, s:o}", "backend", sp_backends[i], "gpus",
                                              uuids_json(gpus, NULL), "failed", failed_pairs(checks, gpus, needs[i])));
    if (!*results || !*pairs)
        rc = sp_err(SP_ECANNOT, "out of memory");
    return rc;
}

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
        rc = sp_err_hint(sp_err(SP_ECANNOT, "no verdict: something changed while it was tested: %s",
                                json_string_value(json_array_get(changes, 0))),
                         "sgl-pcie verify");
    json_decref(changes);
    return rc;
}

int sp_verdict_make(json_t **out, const struct sp_ladder *ladder, const char *site, const json_t *before)
{
    json_t *results = NULL, *pairs = NULL, *bound = NULL;
    struct sp_subjects gpus;
    char created[32];
    int rc = sp_bound_read(&bound, site, "");

    *out = NULL;
    utc_now(created);
    sp_subjects_of(&gpus, ladder->topology);
    if (rc == SP_OK)
        rc = check_unchanged(before, bound);
    if (rc == SP_OK)
        rc = sp_verdict_judge(&results, &pairs, &ladder->checks, &gpus);
    if (rc == SP_OK) {
        *out =
            json_pack("{s:s, s:s, s:s, s:i, s:O, s:O, s:O}", "schema", SP_VERDICT_SCHEMA, "tool", SP_VERSION, "created",
                      created, "level", ladder->level, "bound", bound, "results", results, "pairs", pairs);
        rc = *out ? SP_OK : sp_err(SP_ECANNOT, "out of memory");
    }
    json_decref(results);
    json_decref(pairs);
    json_decref(bound);
    return rc;
}

bool sp_verdict_counts(const struct sp_ladder *ladder)
{
    const struct sp_check *alone = find(&ladder->checks, "grant.processes");

    if (ladder->replay || (alone && alone->status == SP_CHECK_INCONCLUSIVE))
        return false;
    return ladder->level >= SP_VERDICT_LEVEL || sp_checks_with(&ladder->checks, SP_CHECK_FAIL) > 0;
}

/* ---- as it stands now ---- */

static void say(struct sp_verdict_now *now, const char *fmt, const char *text)
{
    (void)json_array_append_new(now->reasons, json_sprintf(fmt, text));
}

static const char *best_result(const json_t *results)
{
    const char *best = "INCONCLUSIVE";
    const json_t *item;
    size_t i;

    json_array_foreach((json_t *)(uintptr_t)results, i, item)
    {
        const char *is = json_string_value(json_object_get(item, "result"));

        if (is && strcmp(is, "PASS") == 0)
            return "PASS";
        best = is && strcmp(is, "FAIL") == 0 ? "FAIL" : best;
    }
    return best;
}

static bool is_verdict(const json_t *content)
{
    const json_t *bound = json_object_get(content, "bound");

    return json_is_integer(json_object_get(content, "level")) && json_is_array(json_object_get(content, "results")) &&
           json_is_array(json_object_get(content, "pairs")) && json_is_string(json_object_get(bound, "driver")) &&
           json_is_string(json_object_get(bound, "gpu 0")) && json_is_string(json_object_get(bound, "libpar.so"));
}

static int compare(struct sp_verdict_now *now, const char *site)
{
    json_t *is = NULL, *changes = NULL;
    int rc = sp_bound_read(&is, site, "");

    if (rc == SP_OK)
        rc = sp_bound_changes(&changes, json_object_get(now->content, "bound"), is);
    if (rc == SP_OK)
        (void)json_array_extend(now->reasons, changes);
    json_decref(is);
    json_decref(changes);
    return rc;
}

static int look(struct sp_verdict_now *now, const char *site)
{
    char text[16];
    int rc;

    if (!is_verdict(now->content)) {
        say(now, "the verdict %s is damaged", now->found);
        return SP_OK;
    }
    now->present = true;
    now->level = (int)json_integer_value(json_object_get(now->content, "level"));
    now->result = best_result(json_object_get(now->content, "results"));
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

void sp_verdict_free(struct sp_verdict_now *now)
{
    json_decref(now->reasons);
    json_decref(now->content);
    free(now->found);
    memset(now, 0, sizeof *now);
}

/* "host 2,3,4": worlds in which a backend passed. */
static int add_backend(struct sp_buf *out, const json_t *results, const char *backend)
{
    bool world[SP_WORLD_MAX + 1] = {false}, any = false;
    const json_t *item;
    size_t i;
    int rc = SP_OK;

    json_array_foreach((json_t *)(uintptr_t)results, i, item)
    {
        const char *is = json_string_value(json_object_get(item, "result"));
        const char *of = json_string_value(json_object_get(item, "backend"));
        const json_int_t size = json_integer_value(json_object_get(item, "world"));

        if (is && of && strcmp(is, "PASS") == 0 && strcmp(of, backend) == 0 && size >= 2 && size <= SP_WORLD_MAX)
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

char *sp_verdict_summary(const struct sp_verdict_now *now)
{
    const json_t *results = json_object_get(now->content, "results");
    struct sp_buf passed = SP_BUF_INIT;
    char *text = NULL;
    int len, rc = SP_OK;

    for (size_t i = 0; sp_backends[i] && rc == SP_OK; i++)
        rc = add_backend(&passed, results, sp_backends[i]);
    if (rc == SP_OK)
        rc = add_backend(&passed, results, "upstream");
    len = rc == SP_OK ? asprintf(&text, "%s of level %d%s%s", now->result ? now->result : "none", now->level,
                                 passed.len ? ": " : "", passed.len ? passed.data : "")
                      : -1;
    sp_buf_free(&passed);
    return len < 0 ? NULL : text;
}
