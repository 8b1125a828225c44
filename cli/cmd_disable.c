#include "cli/show.h"
#include "cli/subject.h"

#include <string.h>

static const char *const description[] = {
    "Takes away what enable persisted, and nothing else: SGLang of this environment is stock again from its next "
    "start on, unless SGLANG_FORCE_CUSTOM_AR_PCIE is set where it is started. The verdict stays. Where nothing is "
    "enabled, nothing is done.",
    NULL,
};

static const struct sp_option options[] = {{.name = NULL}};

static const struct sp_exit exits[] = {
    {0, "disabled, now or already"},
    {2, NULL},
    {5, "no permission, no space, or another sgl-pcie at work"},
    {10, NULL},
    {-1, NULL},
};

static const struct sp_example examples[] = {
    {"sgl-pcie disable", "stock again, from SGLang's next start on"},
    {NULL, NULL},
};

static const char *const fields[] = {SP_SHOW_FIELDS, NULL};

static int say(struct sp_report *report, bool changed, const struct sp_flag *flag)
{
    if (strcmp(flag->source, "environment") == 0)
        return sp_report_say(report, NULL, "%s, but " SP_FLAG_ENV "=%s is set in this shell, and that wins",
                             changed ? "disabled" : "not enabled: nothing to do", flag->value);
    return sp_report_say(report, NULL, "%s",
                         changed ? "disabled: SGLang of this environment is stock from its next start on"
                                 : "not enabled: nothing to do");
}

static int run(const struct sp_args *args, struct sp_report *report)
{
    struct sp_subject subject;
    struct sp_facts facts;
    bool changed = false;
    int rc = sp_subject_locate(&subject, args);

    if (rc == SP_OK)
        rc = sp_pending_check(subject.install);
    if (rc == SP_OK)
        rc = sp_flag_write(&changed, subject.install, NULL);
    if (rc == SP_OK)
        rc = sp_facts_read(&facts, subject.install);
    if (rc == SP_OK) {
        sp_show_install(report, subject.install, NULL, &facts);
        rc = say(report, changed, &facts.flag);
        sp_facts_free(&facts);
    }
    sp_subject_close(&subject);
    return rc;
}

const struct sp_command sp_cmd_disable = {
    .name = "disable",
    .summary = "take the flag of this environment away",
    .description = description,
    .target = true,
    .options = options,
    .exits = exits,
    .examples = examples,
    .fields = fields,
    .run = run,
};
