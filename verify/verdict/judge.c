#include "base/err.h"
#include "verify/verdict/verdict.h"

#include <stdio.h>
#include <string.h>

const char *const sp_backends[] = {"push", "pull", "host", NULL};

static const char *const needs_push[] = {"store", "store-flag", "store-all", NULL};
static const char *const needs_pull[] = {"load", "load-flag", "load-all", NULL};
static const char *const needs_host[] = {"host", "host-flag", NULL};
static const char *const *const needs[] = {needs_push, needs_pull, needs_host};

/* Checks of a backend that count where they were run, whatever set they were run on: they are run on the largest only.
 */
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

static enum outcome outcome_of(const struct sp_check *check)
{
    if (!check)
        return UNPROVED;
    return check->status == SP_CHECK_PASS ? PASSED : check->status == SP_CHECK_FAIL ? FAILED : UNPROVED;
}

static void weigh(struct finding *finding, const struct sp_checks *checks, const char *id)
{
    const struct sp_check *check = sp_check_find(checks, id);
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

/* One that could not be run says nothing. */
static bool rival_errs(const struct sp_checks *checks)
{
    const struct sp_check *rival = sp_check_find(checks, SP_RIVAL_HOST);

    return rival && (rival->status == SP_CHECK_FAIL || rival->status == SP_CHECK_INCONCLUSIVE);
}

static void weigh_gpu(struct finding *finding, const struct sp_checks *checks, size_t number)
{
    char id[SP_CHECK_ID];

    (void)snprintf(id, sizeof id, "control.%zu", number);
    weigh(finding, checks, id);
}

/* Does the machine work without any of this? */
static void weigh_control(struct finding *finding, const struct sp_checks *checks, const struct sp_subjects *gpus,
                          const struct set *set)
{
    weigh(finding, checks, "grant.processes");
    for (size_t i = 0; i < set->count; i++)
        weigh_gpu(finding, checks, gpus->number[set->at[i]]);
    if (rival_errs(checks))
        weigh(finding, checks, SP_RIVAL_HOST);
    if (sp_check_find(checks, SP_TRANSFERS_END))
        weigh(finding, checks, SP_TRANSFERS_END);
}

bool sp_verdict_doubts(const struct sp_checks *checks)
{
    bool doubts = rival_errs(checks);

    for (size_t i = 0; i < checks->count; i++)
        doubts = doubts || (strncmp(checks->item[i]->id, "control.", 8) == 0 && outcome_of(checks->item[i]) != PASSED);
    return doubts;
}

static void weigh_set(struct finding *finding, const struct sp_checks *checks, const struct sp_subjects *gpus,
                      const char *const *kinds, const struct set *set)
{
    for (size_t a = 0; a < set->count; a++)
        for (size_t b = 0; b < set->count; b++)
            if (a != b)
                weigh_pair(finding, checks, kinds, gpus->number[set->at[a]], gpus->number[set->at[b]]);
}

static void weigh_also(struct finding *finding, const struct sp_checks *checks, const char *backend)
{
    char prefix[SP_CHECK_ID];

    for (size_t k = 0; k < sizeof also / sizeof *also; k++) {
        const int len = snprintf(prefix, sizeof prefix, "%s.%s.", also[k], backend);

        for (size_t i = 0; i < checks->count; i++)
            if (strncmp(checks->item[i]->id, prefix, (size_t)len) == 0)
                weigh(finding, checks, checks->item[i]->id);
    }
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
    weigh_also(out, checks, backend);
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
        weigh_gpu(&finding, checks, gpus->number[a]);
        weigh_gpu(&finding, checks, gpus->number[b]);
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
