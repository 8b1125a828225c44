#include "cli/report.h"
#include "cli/subject.h"
#include "patcher/apply.h"

static const char *const description[] = {
    "A write that was killed, or that lost its power, leaves a journal in the install; until it is dealt with, every "
    "command that would write refuses. recover rolls the write back when it had not been decided yet, and finishes it "
    "when it had, so that the files are all old or all new. It can itself be killed and run again.",
    NULL,
};

static const struct sp_option options[] = {{.name = NULL}};

static const struct sp_exit exits[] = {
    {0, "recovered, or nothing to recover"},
    {2, NULL},
    {4, "a file is neither the old nor the new one: nothing was written"},
    {5, "no permission, no space, or another sgl-pcie at work"},
    {10, "it could not be finished; the journal stays"},
    {-1, NULL},
};

static const struct sp_example examples[] = {
    {"sgl-pcie recover", "of this shell's SGLang"},
    {NULL, NULL},
};

static const char *const fields[] = {"outcome", NULL};

static int run(const struct sp_args *args, struct sp_report *report)
{
    struct sp_subject subject;
    const char *outcome = NULL;
    int rc = sp_subject_locate(&subject, args);

    if (rc == SP_OK)
        rc = sp_recover(&outcome, subject.install);
    if (rc == SP_OK) {
        sp_report_set(report, "outcome", sp_json_text(outcome));
        (void)sp_report_say(report, sp_subject_next(&subject, "status"), "recover: %s", outcome);
    }
    sp_subject_close(&subject);
    return rc;
}

const struct sp_command sp_cmd_recover = {
    .name = "recover",
    .summary = "finish or roll back a write that was interrupted",
    .description = description,
    .target = true,
    .options = options,
    .exits = exits,
    .examples = examples,
    .fields = fields,
    .run = run,
};
