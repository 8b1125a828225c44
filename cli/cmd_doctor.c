#include "cli/examine.h"
#include "cli/report.h"

#include <string.h>

static const char *const description[] = {
    "Looks for what stands in the way: driver and toolchain, permissions and limits, the platform between the GPUs, "
    "settings that send SGLang's all-reduces elsewhere, and an install that does not run what is in its files. Each "
    "finding says what was seen and the command that mends it; nothing is written.",
    "Arguments name the checks to run; --list lists them. Without an install, or where several are found and none is "
    "named, the checks of an install are skipped. Levels: info, warn, fail.",
    NULL,
};

static const struct sp_option options[] = {
    {.name = "list", .help = "list the checks and run none"},
    {.name = NULL},
};

static const struct sp_exit exits[] = {
    {0, "nothing was found that must be mended first; there may be warnings"},
    {1, "something was found that must be mended first"},
    {2, "wrong arguments, no such check, or no SGLang where one was named"},
    {5, "the machine cannot be looked at"},
    {-1, NULL},
};

static const struct sp_example examples[] = {
    {"sgl-pcie doctor", "everything"},
    {"sudo sgl-pcie doctor acs iommu", "the platform between the GPUs; ACS needs root"},
    {"sgl-pcie doctor servers", "command lines of the servers that run now"},
    {NULL, NULL},
};

static const char *const fields[] = {"checks", "findings", NULL};

static const char *paint(size_t column, const char *cell)
{
    static const char *const colours[][2] = {{"clean", "32"}, {"warn", "33"}, {"fail", "31"}, {"skipped", "2"}};

    for (size_t i = 0; column == 1 && i < sizeof colours / sizeof *colours; i++)
        if (strcmp(cell, colours[i][0]) == 0)
            return colours[i][1];
    return NULL;
}

/* ---- text ---- */

static int list_row(struct sp_table *table, const struct sp_examination *is, size_t i)
{
    const char *const cells[] = {is->exam[i]->id, sp_level_name(is->exam[i]->level), is->exam[i]->what};

    return sp_table_row(table, cells);
}

/* first: the first finding of this check. */
static int result_row(struct sp_table *table, const struct sp_examination *is, size_t i, size_t first)
{
    const struct sp_findings own = {is->findings.item + first, is->found[i]};
    const char *const status = is->skipped[i] ? "skipped"
                               : own.count    ? sp_level_name(sp_findings_worst(&own, 0))
                                              : "clean";
    const char *const cells[] = {is->exam[i]->id, status, is->skipped[i] ? is->skipped[i] : is->exam[i]->what};

    return sp_table_row(table, cells);
}

static int print_table(const struct sp_report *report, const struct sp_examination *is, bool ran)
{
    const char *const heads[] = {"check", ran ? "found" : "at worst", "what"};
    struct sp_table *table;
    size_t first = 0;
    int rc = sp_table_new(&table, 3, heads);

    for (size_t i = 0; i < is->count && rc == SP_OK; i++) {
        rc = ran ? result_row(table, is, i, first) : list_row(table, is, i);
        first += is->found[i];
    }
    if (rc == SP_OK)
        sp_report_table(report, table, paint);
    else
        sp_table_free(table);
    return rc;
}

static void print_findings(const struct sp_findings *findings)
{
    (void)putchar('\n');
    for (size_t i = 0; i < findings->count; i++) {
        const struct sp_finding *is = &findings->item[i];

        (void)printf("%s  %s: %s\n", sp_level_name(is->level), is->id, is->text);
        if (is->remedy)
            (void)printf("      %s\n", is->remedy);
    }
    if (findings->count > 0)
        (void)putchar('\n');
}

/* ---- the verdict ---- */

static size_t count_level(const struct sp_findings *findings, enum sp_level_of level)
{
    size_t count = 0;

    for (size_t i = 0; i < findings->count; i++)
        count += findings->item[i].level == level;
    return count;
}

static int judge_bad(struct sp_report *report, const struct sp_findings *findings)
{
    for (size_t i = 0; i < findings->count; i++) {
        const struct sp_finding *is = &findings->item[i];

        if (is->level != SP_BAD)
            continue;
        sp_err(SP_EFAIL, "%zu to mend first: %s: %s", count_level(findings, SP_BAD), is->id, is->text);
        if (is->remedy)
            sp_err_hint(SP_EFAIL, "%s", is->remedy);
        return sp_report_judge(report, SP_EFAIL);
    }
    return SP_OK;
}

static int judge(struct sp_report *report, const struct sp_examination *is)
{
    const size_t warnings = count_level(&is->findings, SP_WARN);
    size_t skipped = 0;

    for (size_t i = 0; i < is->count; i++)
        skipped += is->skipped[i] != NULL;
    if (count_level(&is->findings, SP_BAD) > 0)
        return judge_bad(report, &is->findings);
    report->attention = warnings > 0 || skipped == is->count;
    return sp_report_say(report, NULL, "%zu of %zu checks were made: %zu warning%s", is->count - skipped, is->count,
                         warnings, warnings == 1 ? "" : "s");
}

/* ---- the command ---- */

static int list(struct sp_report *report, const struct sp_examination *is)
{
    int rc = report->text ? print_table(report, is, false) : SP_OK;

    sp_report_set(report, "checks", sp_examination_json(is, false));
    return rc < 0 ? rc : sp_report_say(report, NULL, "%zu checks", is->count);
}

static int examine(const struct sp_args *args, struct sp_report *report, struct sp_examination *is)
{
    int rc = sp_examination_run(is, args);

    if (rc < 0)
        return rc;
    sp_report_set(report, "checks", sp_examination_json(is, true));
    sp_report_set(report, "findings", sp_findings_json(&is->findings));
    if (report->text) {
        rc = print_table(report, is, true);
        print_findings(&is->findings);
    }
    return rc < 0 ? rc : judge(report, is);
}

static int run(const struct sp_args *args, struct sp_report *report)
{
    struct sp_examination examination = {.count = 0};
    int rc = sp_examination_choose(&examination, args->words);

    if (rc == SP_OK)
        rc = sp_args_has(args, "list") ? list(report, &examination) : examine(args, report, &examination);
    sp_examination_free(&examination);
    return rc;
}

const struct sp_command sp_cmd_doctor = {
    .name = "doctor",
    .summary = "look for what stands in the way, and say what mends it",
    .description = description,
    .words = "check",
    .target = true,
    .options = options,
    .exits = exits,
    .examples = examples,
    .fields = fields,
    .run = run,
};
