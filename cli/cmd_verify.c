#include "cli/report.h"
#include "verify/ladder.h"
#include "verify/picture.h"
#include "verify/survey.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

static const char *const description[] = {
    "Climbs a ladder of checks, up to --level. Level 1, grant: what the driver and the platform promise; it reads "
    "sysfs "
    "and asks NVML and CUDA, and runs nothing on a GPU. A promise proves nothing: a check that passes here says that "
    "nothing is known to stand in the way.",
    "Backends are judged as cand (worth a try), susp (expect it to fail), no (refused) or unknown. A refusal of peer "
    "access is a warning, because the host transport needs none. Another process that computes on the chosen GPUs "
    "makes "
    "the result inconclusive.",
    NULL,
};

static const struct sp_option options[] = {
    {.name = "level", .value = "N", .help = "climb up to this level (default: the highest there is)"},
    {.name = "gpus",
     .value = "LIST",
     .help = "numbers, ranges, UUIDs or bus addresses, separated by commas, or all (default: $CUDA_VISIBLE_DEVICES, "
             "else all)"},
    {.name = "from",
     .value = "DIR",
     .complete = SP_COMPLETE_DIR,
     .help = "judge a recording, or the folder that holds one, instead of this machine"},
    {.name = NULL},
};

static const struct sp_exit exits[] = {
    {0, "every check passed, perhaps with warnings"},
    {1, "a check failed"},
    {2, "wrong arguments, or no such GPU"},
    {5, "fewer than two GPUs, no driver, or no such recording"},
    {9, "inconclusive: another process computes on these GPUs"},
    {-1, NULL},
};

static const struct sp_example examples[] = {
    {"sudo sgl-pcie verify --level 1", "with root, ACS can be read too"},
    {"sgl-pcie verify --level 1 --gpus 0-3 --json", "for a script"},
    {"sgl-pcie verify --level 1 --from report.json", "a machine that somebody else reported"},
    {NULL, NULL},
};

static const char *const fields[] = {"level", "gpus", "checks", "findings", "backends", NULL};

/* ---- arguments ---- */

static int read_level(int *out, const struct sp_args *args)
{
    const char *text = sp_args_value(args, "level");
    const int top = sp_ladder_top();

    *out = top;
    if (!text)
        return SP_OK;
    if (!isdigit((unsigned char)text[0]) || text[1] != '\0' || text[0] < '1' || text[0] - '0' > top)
        return sp_err_hint(sp_err(SP_EUSAGE, "there is no level '%s': 1 to %d", text, top), "sgl-pcie verify --help");
    *out = text[0] - '0';
    return SP_OK;
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

static int print_checks(const struct sp_report *report, const struct sp_checks *checks)
{
    static const char *const heads[] = {"check", "status", "found", "expected"};
    struct sp_table *table;
    int rc = sp_table_new(&table, 4, heads);

    for (size_t i = 0; i < checks->count && rc == SP_OK; i++)
        rc = check_row(table, checks->item[i]);
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

static int judge(struct sp_report *report, const struct sp_ladder *ladder)
{
    const size_t warned = sp_checks_with(&ladder->checks, SP_CHECK_WARN);
    int code = sp_checks_code(&ladder->checks);

    if (code < 0)
        return sp_report_judge(report, code);
    report->attention = warned > 0;
    return sp_report_say(report, NULL, "level %d: %zu of %zu checks passed, %zu warned, %zu skipped", ladder->level,
                         sp_checks_with(&ladder->checks, SP_CHECK_PASS), ladder->checks.count, warned,
                         sp_checks_with(&ladder->checks, SP_CHECK_SKIP));
}

static int climb(const struct sp_args *args, struct sp_report *report, const struct sp_survey *survey, int level)
{
    struct sp_ladder ladder = {
        .topology = &survey->topology,
        .findings = &survey->findings,
        .candidates = survey->candidates,
        .replay = sp_args_has(args, "from"),
        .level = level,
    };
    int rc = sp_ladder_run(&ladder);

    if (rc == SP_OK)
        set_fields(report, survey, &ladder);
    if (rc == SP_OK && report->text)
        rc = print_all(report, survey, &ladder);
    if (rc == SP_OK)
        rc = judge(report, &ladder);
    sp_checks_free(&ladder.checks);
    return rc;
}

static int run(const struct sp_args *args, struct sp_report *report)
{
    struct sp_survey survey = {.choice = {.count = 0}};
    int level, rc = read_level(&level, args);

    if (rc == SP_OK)
        rc = sp_survey_make(&survey, sp_args_value(args, "from"), sp_args_value(args, "gpus"));
    if (rc == SP_OK)
        rc = sp_choice_check(&survey.choice, &survey.recording);
    if (rc == SP_OK)
        rc = climb(args, report, &survey, level);
    sp_survey_free(&survey);
    return rc;
}

const struct sp_command sp_cmd_verify = {
    .name = "verify",
    .summary = "judge what this machine's GPUs and their links can be trusted with",
    .description = description,
    .options = options,
    .exits = exits,
    .examples = examples,
    .fields = fields,
    .run = run,
};
