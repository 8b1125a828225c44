#include "base/json.h"
#include "cli/progress.h"
#include "cli/report.h"
#include "cli/subject.h"
#include "patcher/runtime.h"
#include "verify/ladder/gpu.h"
#include "verify/machine/claim.h"
#include "verify/machine/picture.h"
#include "verify/machine/survey.h"
#include "verify/verdict/bound.h"
#include "verify/verdict/merge.h"
#include "verify/verdict/proof.h"
#include "verify/verdict/state.h"
#include "verify/verdict/verdict.h"

#include <stdlib.h>
#include <string.h>

static const char *const description[] = {
    "Climbs a ladder of checks, up to --level, and writes a verdict about this machine and an install, which enable "
    "and SGLang go by. Level 1, grant: what the driver and the platform promise; nothing is run on a GPU. Level 2, "
    "transfers: stores, loads and copies between all pairs of GPUs, alone and all at once, and through host memory, "
    "and NCCL as a witness. Level 3, kernels: every algorithm of the all-reduce against a reference, on the library "
    "that SGLang will load. Level 4, soak: the same for --minutes, and its time against NCCL.",
    "A promise proves nothing, and a refusal of peer access is a warning, because the host backend needs none. The "
    "verdict holds for each backend (push, pull, host) and world size by itself; one that fails does not touch "
    "another, and a run on some of the GPUs keeps what was proved on others. What could not be decided, because "
    "another process computes on these GPUs or because a GPU, or NCCL, errs without any peer, is inconclusive and "
    "never enables anything.",
    "Of level 1, backends are judged as cand (worth a try), susp (expect it to fail), no (refused) or unknown.",
    NULL,
};

static const struct sp_option options[] = {
    {.name = "level", .value = "N", .help = "climb up to this level, 1 to 4 (default: 3; 1 with --from)"},
    {.name = "gpus",
     .value = "LIST",
     .help = "numbers, ranges, UUIDs or bus addresses, separated by commas, or all (default: $CUDA_VISIBLE_DEVICES, "
             "else all)"},
    {.name = "timeout",
     .value = "SECONDS",
     .help = "time limit of one child process, 1 at least (default: by level); from level 2 on"},
    {.name = "minutes",
     .value = "N",
     .help = "how long level 4 soaks, 0.01 at least (default: 1); with --level 4 only"},
    {.name = "from",
     .value = "PATH",
     .complete = SP_COMPLETE_FILE,
     .help = "judge a recording, a bundle of report, or the folder that holds one, instead of this machine"},
    {.name = NULL},
};

static const struct sp_exit exits[] = {
    {0, "every check passed, perhaps with warnings"},
    {1, "a check failed; with --from: that file is no recording"},
    {2, "wrong arguments, or no such GPU"},
    {5, "fewer than two GPUs, no driver, nothing built, no such recording, or no verdict could be written"},
    {7, "a GPU gave wrong data"},
    {8, "something hung, or did not end in time"},
    {9,
     "inconclusive: another process computes on these GPUs, a GPU, or NCCL, errs without any peer, or no backend had "
     "every check that it needs"},
    {-1, NULL},
};

static const struct sp_example examples[] = {
    {"sudo sgl-pcie verify --python /opt/venv/bin/python", "with root, for every user, and ACS can be read too"},
    {"sgl-pcie verify --level 4 --minutes 30 --gpus 0-3", "before a long run, on four of the GPUs"},
    {"sgl-pcie verify --level 1 --from report.json", "a machine that somebody else reported"},
    {NULL, NULL},
};

static const char *const fields[] = {"level", "gpus", "checks", "findings", "backends", "verdict", NULL};

/* ---- arguments ---- */

enum { DEFAULT_LEVEL = 3, SOAK_LEVEL = 4 };

#define LEAST_MINUTES 0.01 /* some calls at least: a soak of none would pass */
#define MOST_MINUTES  1400 /* a day is what a child is given at most */

/* What would be ignored is refused. */
static int check_excluded(const struct sp_args *args, int level)
{
    static const char *const excluded[] = {"timeout", "minutes", "python", "site", "source"};

    for (size_t i = 0; sp_args_has(args, "from") && i < sizeof excluded / sizeof *excluded; i++)
        if (sp_args_has(args, excluded[i]))
            return sp_err(SP_EUSAGE, "--from runs nothing and looks at no install, --%s is about that", excluded[i]);
    if (sp_args_has(args, "timeout") && level == 1)
        return sp_err(SP_EUSAGE, "--timeout is of a child process, level 1 has none");
    if (sp_args_has(args, "minutes") && level < SOAK_LEVEL)
        return sp_err(SP_EUSAGE, "--minutes is how long level %d soaks, this is up to level %d", SOAK_LEVEL, level);
    return SP_OK;
}

static int read_level(int *out, const struct sp_args *args)
{
    const char *text = sp_args_value(args, "level");
    const bool recorded = sp_args_has(args, "from");
    int rc = SP_OK;

    *out = recorded ? 1 : DEFAULT_LEVEL;
    if (text)
        rc = sp_ladder_level(out, text);
    if (rc == SP_OK && recorded && *out > 1)
        rc = sp_err(SP_EUSAGE, "a recording answers level 1: the levels above run on GPUs");
    return rc;
}

/* ---- text ---- */

static const char *paint(size_t column, const char *cell)
{
    static const char *const colours[][2] = {
        {"PASS", "32"}, {"WARN", "33"}, {"FAIL", "31"}, {"INCONCLUSIVE", "33"}, {"SKIP", "2"},
    };

    for (size_t i = 0; column == 1 && i < sizeof colours / sizeof *colours; i++)
        if (strcmp(cell, colours[i][0]) == 0)
            return colours[i][1];
    return NULL;
}

static char *value_text(const json_t *value, const char *unit)
{
    char *text = NULL;
    int len = -1;

    if (json_is_string(value))
        len = asprintf(&text, "%s", json_string_value(value));
    else if (json_is_number(value))
        len = asprintf(&text, "%g%s%s", json_number_value(value), unit ? " " : "", unit ? unit : "");
    return len < 0 ? NULL : text;
}

static int check_row(struct sp_table *table, const struct sp_check *check)
{
    char *expected = value_text(check->expected, check->unit), *actual = value_text(check->actual, check->unit);
    const char *const cells[] = {check->id, sp_check_status_name(check->status), actual ? actual : "-",
                                 expected && check->status != SP_CHECK_PASS ? expected : ""};
    int rc = sp_table_row(table, cells);

    free(expected);
    free(actual);
    return rc;
}

/* "store.0-1" and "store.2-3" are of one kind. */
static size_t kind_len(const struct sp_check *check)
{
    return strcspn(check->id, ".");
}

/* Checks of a kind that all passed are one row of a table that people read to its end. */
static size_t passed_alike(const struct sp_checks *checks, size_t first)
{
    const struct sp_check *check = checks->item[first];
    size_t end = first;

    while (check->level == 2 && end < checks->count && kind_len(checks->item[end]) == kind_len(check) &&
           strncmp(checks->item[end]->id, check->id, kind_len(check) + 1) == 0 &&
           checks->item[end]->status == SP_CHECK_PASS)
        end++;
    if (end < checks->count && strncmp(checks->item[end]->id, check->id, kind_len(check) + 1) == 0)
        return 1; /* one did not: all are shown */
    return end > first ? end - first : 1;
}

/* "12 of 12", or the range of what was measured. */
static int kind_row(struct sp_table *table, const struct sp_checks *checks, size_t first, size_t count)
{
    double least = 0, most = 0;
    char kind[SP_CHECK_ID], found[128];
    const char *unit = checks->item[first]->unit;
    const char *const cells[] = {kind, "PASS", found, ""};

    for (size_t i = 0; i < count; i++) {
        const double is = json_number_value(checks->item[first + i]->actual);

        least = i == 0 || is < least ? is : least;
        most = is > most ? is : most;
    }
    (void)snprintf(kind, sizeof kind, "%.*s", (int)kind_len(checks->item[first]), checks->item[first]->id);
    if (unit)
        (void)snprintf(found, sizeof found, "%zu of %zu, %.3g to %.3g %s", count, count, least, most, unit);
    else
        (void)snprintf(found, sizeof found, "%zu of %zu", count, count);
    return sp_table_row(table, cells);
}

static int print_checks(const struct sp_report *report, const struct sp_checks *checks)
{
    static const char *const heads[] = {"check", "status", "found", "expected"};
    struct sp_table *table;
    int rc = sp_table_new(&table, 4, heads);

    for (size_t i = 0, count; i < checks->count && rc == SP_OK; i += count) {
        count = report->verbose ? 1 : passed_alike(checks, i);
        rc = count > 1 ? kind_row(table, checks, i, count) : check_row(table, checks->item[i]);
    }
    if (rc == SP_OK)
        sp_report_table(report, table, paint);
    else
        sp_table_free(table);
    return rc;
}

static int print_machine(const struct sp_report *report, const struct sp_survey *survey)
{
    struct sp_buf tree = SP_BUF_INIT;
    struct sp_table *table = NULL;
    int rc = sp_picture_tree(&tree, &survey->topology, report->utf8);

    if (rc == SP_OK)
        (void)printf("%s\n", tree.data ? tree.data : "");
    sp_buf_free(&tree);
    if (rc == SP_OK)
        rc = sp_picture_pairs(&table, &survey->topology);
    if (rc == SP_OK) {
        sp_report_table(report, table, NULL);
        (void)putchar('\n');
    }
    return rc;
}

/* Infos are for --verbose: a table that people read to its end has what matters in it. */
static void print_findings(const struct sp_report *report, const struct sp_findings *findings)
{
    bool any = false;

    for (size_t i = 0; i < findings->count; i++) {
        const struct sp_finding *finding = &findings->item[i];

        if (finding->level == SP_INFO && !report->verbose)
            continue;
        (void)printf("%s%s  %s: %s\n", any ? "" : "\n", sp_level_name(finding->level), finding->id, finding->text);
        if (finding->remedy)
            (void)printf("      %s\n", finding->remedy);
        any = true;
    }
}

static void print_backends(const struct sp_candidates *candidates)
{
    (void)printf("\npeer-push %s, peer-pull %s, host %s\n\n", sp_candidate_name(candidates->push),
                 sp_candidate_name(candidates->pull), sp_candidate_name(candidates->host));
}

static int print_all(const struct sp_report *report, const struct sp_survey *survey, const struct sp_ladder *ladder)
{
    int rc = print_machine(report, survey);

    if (rc == SP_OK)
        rc = print_checks(report, &ladder->checks);
    if (rc == SP_OK)
        print_findings(report, &survey->findings);
    if (rc == SP_OK)
        print_backends(&survey->candidates);
    return rc;
}

/* ---- the command ---- */

static void set_fields(struct sp_report *report, const struct sp_survey *survey, const struct sp_ladder *ladder)
{
    sp_report_set(report, "level", json_integer(ladder->level));
    sp_report_set(report, "gpus", sp_survey_gpus_json(survey));
    sp_report_set(report, "checks", sp_checks_json(&ladder->checks));
    sp_report_set(report, "findings", sp_findings_json(&survey->findings));
    sp_report_set(report, "backends", sp_candidates_json(&survey->candidates));
}

/* ---- the verdict ---- */

/* The results of this run; what an earlier one proved on other GPUs is told by its number only. */
static void print_results(const json_t *run, const json_t *verdict, const char *path)
{
    const size_t all = json_array_size(json_object_get(verdict, "results"));
    const size_t own = json_array_size(json_object_get(run, "results"));
    const json_t *item;
    size_t i;

    json_array_foreach(json_object_get(run, "results"), i, item)
    {
        const char *reason = json_string_value(json_object_get(item, "reason"));

        (void)printf("verdict  %s, %d GPUs: %s%s%s\n", json_string_value(json_object_get(item, "backend")),
                     (int)json_integer_value(json_object_get(item, "world")),
                     json_string_value(json_object_get(item, "result")), reason ? ": " : "", reason ? reason : "");
    }
    (void)printf("written to %s", path);
    if (all > own)
        (void)printf(", beside %zu of earlier runs", all - own);
    (void)printf("\n\n");
}

/* What this run proved goes into the verdict that there is; where the machine is in doubt, it takes its place.
 * *run: for the caller to release; NULL where nothing is to be written. */
static int write_verdict(json_t **run, struct sp_report *report, const struct sp_ladder *ladder,
                         struct sp_subject *subject, const json_t *before)
{
    json_t *verdict = NULL;
    char *path = NULL;
    int rc;

    *run = NULL;
    if (!ladder->site || !sp_verdict_counts(&ladder->checks, ladder->level))
        return SP_OK;
    rc = sp_verdict_make(run, &ladder->checks, ladder->topology, ladder->level, ladder->site, before);
    if (rc == SP_OK)
        rc = sp_verdict_save(&path, &verdict, ladder->site, *run, sp_verdict_doubts(&ladder->checks));
    if (rc == SP_OK)
        sp_report_set(report, "verdict",
                      json_pack("{s:s, s:O, s:O}", "path", path, "results", json_object_get(verdict, "results"),
                                "pairs", json_object_get(verdict, "pairs")));
    if (rc == SP_OK && report->text)
        print_results(*run, verdict, path);
    if (rc < 0 && *sp_err_hint_text() == '\0')
        (void)sp_err_hint(rc, "%s", sp_subject_next(subject, "verify"));
    free(path);
    json_decref(verdict);
    return rc;
}

/* A program that is older or newer than this one may leave out checks, and find nothing wrong in the others. */
static int check_proved(const json_t *run, struct sp_subject *subject)
{
    const json_t *results = json_object_get(run, "results"), *item;
    bool proved = false;
    size_t i;

    json_array_foreach(results, i, item) proved = proved || sp_json_is(item, "result", "PASS");
    if (proved)
        return SP_OK;
    item = json_array_get(results, 0);
    return sp_err_hint(sp_err(SP_EINCONCLUSIVE, "no backend was proved: %s: %s",
                              json_string_value(json_object_get(item, "backend")),
                              json_string_value(json_object_get(item, "reason"))),
                       "%s", sp_subject_next(subject, "build"));
}

/* enable, or what it would still ask for. */
static const char *next_command(const char *site)
{
    const char *command = NULL;

    if (sp_proof_check(&command, site) == SP_OK)
        return "enable";
    sp_err_clear();
    return command ? command : "bench";
}

static int judge(struct sp_report *report, const struct sp_ladder *ladder, struct sp_subject *subject,
                 const json_t *run)
{
    const size_t warned = sp_checks_with(&ladder->checks, SP_CHECK_WARN);
    const bool proves = ladder->site && ladder->level >= SP_VERDICT_LEVEL;
    int code = sp_checks_code(&ladder->checks);

    if (code == SP_OK && proves)
        code = check_proved(run, subject);
    if (code < 0)
        return sp_report_judge(report, code);
    report->attention = warned > 0;
    return sp_report_say(report, proves ? sp_subject_next(subject, next_command(ladder->site)) : NULL,
                         "level %d: %zu of %zu checks passed, %zu warned, %zu skipped", ladder->level,
                         sp_checks_with(&ladder->checks, SP_CHECK_PASS), ladder->checks.count, warned,
                         sp_checks_with(&ladder->checks, SP_CHECK_SKIP));
}

/* What was found decides how it ends, even where no verdict could be written: rc, and its message still set. */
static int judge_unwritten(struct sp_report *report, const struct sp_ladder *ladder, int rc)
{
    char *why = strdup(sp_err_message()), *hint = strdup(sp_err_hint_text()), *found = NULL;
    const int code = sp_checks_code(&ladder->checks);

    if (code < 0)
        found = strdup(sp_err_message());
    if (!why || !hint || (code < 0 && !found))
        rc = sp_err(SP_ECANNOT, "out of memory");
    else
        rc = sp_err_hint(sp_err(code < 0 ? code : rc, "%s%s%s", code < 0 ? found : "", code < 0 ? "; " : "", why), "%s",
                         hint);
    free(why);
    free(hint);
    free(found);
    return code < 0 ? sp_report_judge(report, rc) : rc;
}

/* ---- the command ---- */

static void show_progress(const char *text)
{
    sp_progress_line("%s ...", text);
}

static int conclude(struct sp_report *report, const struct sp_ladder *ladder, struct sp_subject *subject,
                    const json_t *before)
{
    json_t *run;
    int rc = write_verdict(&run, report, ladder, subject, before);

    rc = rc == SP_OK ? judge(report, ladder, subject, run) : judge_unwritten(report, ladder, rc);
    json_decref(run);
    return rc;
}

/* Somebody may have come meanwhile. What failed counts in any case; and where something did, who is there may be a rest
 * of our own, and a GPU may not answer any more. */
static int look_again(struct sp_ladder *ladder, const char *gpus)
{
    int rc = SP_OK;

    if (ladder->level > 1 && !ladder->replay && sp_checks_code(&ladder->checks) == SP_OK)
        rc = sp_check_others_now(&ladder->checks, gpus);
    return rc;
}

static int climb(struct sp_report *report, const struct sp_survey *survey, struct sp_ladder *ladder,
                 struct sp_subject *subject)
{
    const bool progress = sp_progress_seen(report);
    json_t *before = NULL;
    int rc = ladder->site ? sp_bound_read(&before, ladder->site, "") : SP_OK;

    ladder->topology = &survey->topology;
    ladder->findings = &survey->findings;
    ladder->candidates = survey->candidates;
    ladder->progress = progress ? show_progress : NULL;
    if (rc == SP_OK)
        rc = sp_ladder_run(ladder);
    if (rc == SP_OK)
        rc = look_again(ladder, sp_args_value(report->args, "gpus"));
    if (progress)
        sp_progress_end();
    if (rc == SP_OK)
        set_fields(report, survey, ladder);
    if (rc == SP_OK && report->text)
        rc = print_all(report, survey, ladder);
    if (rc == SP_OK)
        rc = conclude(report, ladder, subject, before);
    sp_checks_free(&ladder->checks);
    json_decref(before);
    return rc;
}

static bool target_given(const struct sp_args *args)
{
    return sp_args_has(args, "python") || sp_args_has(args, "site") || sp_args_has(args, "source");
}

/* What is run above level 1 was built, and into a patched install. */
static int check_built(struct sp_subject *subject)
{
    enum sp_runtime_state runtime;
    int rc = sp_runtime_state(&runtime, subject->install);

    if (rc < 0)
        return rc;
    rc = sp_gpu_check(subject->install->site);
    return rc < 0 ? sp_err_hint(rc, "%s", sp_subject_next(subject, runtime == SP_RUNTIME_ABSENT ? "apply" : "build"))
                  : rc;
}

/* Above level 1 the install's own library is run. */
/* *target: for the caller to free. */
static int find_install(struct sp_subject *subject, char **target, struct sp_ladder *ladder, const struct sp_args *args)
{
    int rc = SP_OK;

    if (ladder->replay || (ladder->level < 2 && !target_given(args)))
        return SP_OK;
    rc = sp_subject_locate(subject, args);
    if (rc == SP_OK) {
        ladder->site = subject->install->site;
        ladder->target = *target = sp_subject_words(subject);
    }
    if (rc == SP_OK && ladder->level > 1)
        rc = check_built(subject);
    return rc == SP_OK && ladder->level >= SP_VERDICT_LEVEL ? sp_state_check(ladder->site, SP_VERDICT_FILE) : rc;
}

static int read_options(struct sp_ladder *out, const struct sp_args *args)
{
    int rc = read_level(&out->level, args);

    out->replay = sp_args_has(args, "from");
    if (rc == SP_OK)
        rc = check_excluded(args, out->level);
    if (rc == SP_OK)
        rc = sp_args_number(&out->seconds, args, "timeout", SP_LEAST_SECONDS);
    if (rc == SP_OK)
        rc = sp_args_number(&out->minutes, args, "minutes", LEAST_MINUTES);
    if (rc == SP_OK && out->minutes > MOST_MINUTES)
        rc = sp_err(SP_EUSAGE, "--minutes is up to %d", MOST_MINUTES);
    return rc;
}

static int run(const struct sp_args *args, struct sp_report *report)
{
    struct sp_survey survey = {.choice = {.count = 0}};
    struct sp_subject subject = {.install = NULL};
    struct sp_ladder ladder = {.level = 0};
    struct sp_claim claim = {.count = 0};
    char *target = NULL;
    int rc = read_options(&ladder, args);

    if (rc == SP_OK)
        rc = sp_survey_make(&survey, sp_args_value(args, "from"), sp_args_value(args, "gpus"));
    if (rc == SP_OK)
        rc = sp_choice_check(&survey.choice, &survey.recording);
    if (rc == SP_OK)
        rc = find_install(&subject, &target, &ladder, args);
    if (rc == SP_OK && ladder.level > 1)
        rc = sp_claim_make(&claim, &survey.recording, &survey.choice, "");
    if (rc == SP_OK)
        rc = climb(report, &survey, &ladder, &subject);
    free(target);
    sp_claim_free(&claim);
    sp_survey_free(&survey);
    sp_subject_close(&subject);
    return rc;
}

const struct sp_command sp_cmd_verify = {
    .name = "verify",
    .summary = "judge what this machine's GPUs and their links can be trusted with",
    .description = description,
    .target = true,
    .options = options,
    .exits = exits,
    .examples = examples,
    .fields = fields,
    .run = run,
};
