#include "cli/show.h"
#include "cli/subject.h"
#include "patcher/patched.h"
#include "verify/verdict/proof.h"
#include "verify/verdict/state.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *const description[] = {
    "Persists SGLANG_FORCE_CUSTOM_AR_PCIE=1 for this environment: every shell, service and worker that uses this "
    "Python sees it. Where the variable itself is set, to 0 say, it wins.",
    "It is refused without proof: the install must be patched and built, the verdict of verify must be fresh, of "
    "level 3 or more, and hold a PASS, and the profile of bench must be fresh and show a size at which the PCIe "
    "all-reduce is faster with the transports that passed. What was persisted stays when the machine changes later: "
    "SGLang then takes what it would have taken by itself, and says why in its log.",
    "By root it holds for every user, by another user for that user only. Where SGL_PCIE_STATE is set, SGLang has to "
    "be started with it, too, to find what was proved.",
    NULL,
};

static const struct sp_option options[] = {{.name = NULL}};

static const struct sp_exit exits[] = {
    {0, "enabled, now or already"},
    {1, "refused: something is not proved; the message says what"},
    {2, NULL},
    {3, NULL},
    {4, NULL},
    {5, "not patched, not built, no permission or space, or another sgl-pcie at work"},
    {10, NULL},
    {-1, NULL},
};

static const struct sp_example examples[] = {
    {"sudo sgl-pcie enable --python /opt/venv/bin/python", "for every user of that environment"},
    {NULL, NULL},
};

static const char *const fields[] = {SP_SHOW_FIELDS, NULL};

/* ---- what must be so ---- */

static int check_patch(struct sp_subject *subject, const struct sp_plan *plan)
{
    struct sp_patched is;
    int rc = sp_plan_check(plan, subject->install);

    if (rc < 0)
        return rc;
    sp_patched_judge(&is, plan, subject->install);
    if (is.lacks[0])
        rc = sp_err(SP_ECANNOT, "not enabled: %s", is.lacks);
    return is.next ? sp_err_hint(rc, "%s", sp_subject_next(subject, is.next)) : rc;
}

static int check_install(struct sp_subject *subject, const struct sp_facts *facts)
{
    struct sp_plan *plan = NULL;
    int rc = sp_plan_make(&plan, subject->install, subject->sets, NULL);

    if (rc == SP_OK)
        rc = check_patch(subject, plan);
    if (rc == SP_OK && !facts->extension.present)
        rc = sp_err_hint(sp_err(SP_ECANNOT, "the all-reduce is not built%s",
                                facts->extension.partial ? " whole: _sgl_pcie.abi3.so is missing" : ""),
                         "%s", sp_subject_next(subject, "build"));
    sp_plan_free(plan);
    return rc;
}

/* The next command is the one that makes what is missing. */
static int check_proof(struct sp_subject *subject)
{
    const char *command = NULL;
    int rc = sp_proof_check(&command, subject->install->site);

    return rc < 0 && command ? sp_err_hint(rc, "%s", sp_subject_next(subject, command)) : rc;
}

/* ---- the command ---- */

static int say(struct sp_report *report, bool changed, const struct sp_flag *flag)
{
    const char *whom = geteuid() == 0 ? "every user of this environment" : "this user";
    const char *what = changed ? "enabled" : "already enabled", *state = getenv(SP_STATE_ENV);

    if (strcmp(flag->source, "environment") == 0 && strcmp(flag->value, "1") != 0)
        return sp_report_say(report, NULL, "%s for %s, but " SP_FLAG_ENV "=%s is set in this shell, and that wins",
                             what, whom, flag->value);
    return sp_report_say(report, NULL, "%s for %s, from SGLang's next start on%s%s", what, whom,
                         state && *state ? ", if that has " SP_STATE_ENV "=" : "", state ? state : "");
}

static int enable(struct sp_report *report, struct sp_subject *subject)
{
    struct sp_facts facts;
    bool changed = false;
    int rc = sp_facts_read(&facts, subject->install);

    if (rc < 0)
        return rc;
    rc = sp_pending_check(subject->install);
    if (rc == SP_OK)
        rc = check_install(subject, &facts);
    if (rc == SP_OK)
        rc = check_proof(subject);
    if (rc == SP_OK)
        rc = sp_flag_write(&changed, subject->install, "1");
    if (rc == SP_OK)
        rc = sp_flag_read(&facts.flag, subject->install->site_fd);
    sp_show_install(report, subject->install, NULL, &facts);
    if (rc == SP_OK)
        rc = say(report, changed, &facts.flag);
    sp_facts_free(&facts);
    return rc;
}

static int run(const struct sp_args *args, struct sp_report *report)
{
    struct sp_subject subject;
    int rc = sp_subject_open(&subject, args);

    if (rc == SP_OK)
        rc = enable(report, &subject);
    sp_subject_close(&subject);
    return rc;
}

const struct sp_command sp_cmd_enable = {
    .name = "enable",
    .summary = "turn the flag on for this environment, where it is proved",
    .description = description,
    .target = true,
    .options = options,
    .exits = exits,
    .examples = examples,
    .fields = fields,
    .run = run,
};
