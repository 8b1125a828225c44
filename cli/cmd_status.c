#include "cli/show.h"
#include "cli/subject.h"
#include "patcher/patched.h"
#include "verify/doctor/doctor.h"
#include "verify/verdict/covers.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

extern char **environ;

static const char *const description[] = {
    "Reads the files that a patch set knows, the runtime that apply installs beside them, the flag, and the journal of "
    "an interrupted write, and says in its last line what that amounts to and which command comes next. Nothing is "
    "written; a tree that is read-only is fine.",
    "States of a file: pristine (the released bytes), applied (our patch), applied-old (an earlier revision of it), "
    "drifted or missing (a release we know, but not its bytes; in a git checkout: a change of yours), unknown (bytes "
    "of no release we know). Files of the set sgl-kernel, which a checkout has, are shown, and "
    "named in the last line where they alone are patched. \"patch gone\" means that the files are pristine while the "
    "runtime is there: "
    "sglang was installed again, or apply was cut short.",
    NULL,
};

static const struct sp_option options[] = {{.name = NULL}};

static const struct sp_exit exits[] = {
    {0, "the install can be worked with: stock, patched, or anything in between"},
    {1, "the data that came with this program is damaged"},
    {2, NULL},
    {3, "the files are of no release that can be patched"},
    {4, "files differ from those of the release"},
    {5, "the install cannot be read, or its interpreter cannot be run"},
    {10, "an earlier write was interrupted"},
    {-1, NULL},
};

static const struct sp_example examples[] = {
    {"sgl-pcie status", "of the SGLang of this shell's Python"},
    {"sgl-pcie status --site /opt/venv/lib/python3.11/site-packages --json", "for a script"},
    {NULL, NULL},
};

static const char *const fields[] = {SP_SHOW_FIELDS, NULL};

/* ---- the verdict ---- */

/* All is there; but a variable of this shell may make SGLang stock, if it is started here. */
static int say_enabled(struct sp_report *report, const struct sp_facts *facts)
{
    const char *backend = getenv("SGLANG_PCIE_AR_BACKEND");
    struct sp_findings odd = {NULL, 0};
    int rc = sp_find_odd(&odd, environ, "");

    if (rc == SP_OK && odd.count > 0) {
        rc = sp_report_say(report, odd.item[0].remedy, "enabled, but in this shell %s", odd.item[0].text);
    } else if (rc == SP_OK && backend && *backend && !sp_verdict_has_passed(facts->verdict.content, backend)) {
        rc = sp_report_say(report, "unset SGLANG_PCIE_AR_BACKEND",
                           "enabled, but in this shell SGLANG_PCIE_AR_BACKEND is '%s', of which nothing was proved: "
                           "SGLang behaves as stock",
                           backend);
    } else if (rc == SP_OK) {
        report->attention = false;
        rc = sp_report_say(report, NULL, "enabled: nothing to do");
    }
    sp_findings_free(&odd);
    return rc;
}

/* Proved: is it measured, and does it pay? */
static int say_profile(struct sp_report *report, const struct sp_facts *facts, struct sp_subject *subject)
{
    const struct sp_profile_now *profile = &facts->profile;
    const char *flag = facts->flag.value, *bench = sp_subject_next(subject, "bench");
    const bool set = strcmp(facts->flag.source, "unset") != 0; /* perhaps to nothing, which is not unset */
    const bool measured = profile->fresh && profile->says != SP_SERVED_UNMEASURED;

    if (set && strcmp(flag, "unsafe") == 0)
        return sp_report_say(report, NULL, "in use by the flag unsafe, which asks for no proof");
    if (set && strcmp(flag, "1") != 0)
        return sp_report_say(report, NULL, "proved, but the flag is %s",
                             flag[0] ? flag : "set to nothing, which is stock");
    if (profile->says == SP_SERVED_NOT)
        return sp_report_say(report, NULL,
                             "proved for SGLang's own kernel alone: SGLANG_PCIE_AR_BACKEND=upstream is for that one");
    if (set && !measured)
        return sp_report_say(report, bench, "enabled, but not measured as it is now: start values choose");
    if (!measured)
        return sp_report_say(report, bench, "proved, not measured: SGLang behaves as stock");
    if (profile->says != SP_SERVED_FASTER)
        return sp_report_say(report, NULL, "proved, but nothing is faster here than what SGLang does by itself");
    if (!set)
        return sp_report_say(report, sp_subject_next(subject, "enable"),
                             "proved, not enabled: SGLang behaves as stock");
    return say_enabled(report, facts);
}

/* Patched as it should be: what stands between that and a server that uses it. */
static int say_proof(struct sp_report *report, const struct sp_facts *facts, struct sp_subject *subject)
{
    const struct sp_verdict_now *verdict = &facts->verdict;

    if (!facts->extension.present && faccessat(subject->install->site_fd, "sgl_pcie/libupstream.so", F_OK, 0) == 0)
        return sp_report_say(report, sp_subject_next(subject, "build"),
                             "patched; SGLang's own all-reduce is built, ours is not: "
                             "SGLANG_PCIE_AR_BACKEND=upstream is for that one");
    if (!facts->extension.present)
        return sp_report_say(report, sp_subject_next(subject, "build"), "patched, not built%s: SGLang behaves as stock",
                             facts->extension.partial ? " whole, _sgl_pcie.abi3.so is missing" : "");
    if (!verdict->present)
        return sp_report_say(report, sp_subject_next(subject, "verify"), "built, nothing proved on this machine");
    if (!verdict->fresh)
        return sp_report_say(report, sp_subject_next(subject, "verify"), "built, the verdict is stale");
    if (json_array_size(verdict->reasons) > 0)
        return sp_report_say(report, sp_subject_next(subject, "verify"), "built, no verdict that enables anything");
    return say_profile(report, facts, subject);
}

/* Nothing of SGLang's Python. Its C++ text may be patched all the same, and whoever did that needs no more. */
static int say_stock(struct sp_report *report, const struct sp_patched *is, struct sp_subject *subject)
{
    if (is->named_old > 0)
        return sp_report_say(report, sp_subject_next(subject, "apply --set sgl-kernel"),
                             "sgl-kernel is patched by an earlier revision, sglang is stock");
    if (is->named_applied > 0)
        return sp_report_say(report, sp_subject_next_source(subject, "build --upstream --probe"),
                             "sgl-kernel is patched, sglang is stock");
    return sp_report_say(report, sp_subject_next(subject, is->next), "%s", is->lacks);
}

/* Every file is pristine, applied or applied-old. */
static int say_state(struct sp_report *report, const struct sp_plan *plan, const struct sp_facts *facts,
                     struct sp_subject *subject)
{
    struct sp_patched is;

    sp_patched_judge(&is, plan, subject->install);
    report->attention = is.applied + is.old > 0 || is.named_old > 0 || plan->runtime != SP_RUNTIME_ABSENT;
    if (is.applied + is.old == 0 && plan->runtime == SP_RUNTIME_ABSENT)
        return say_stock(report, &is, subject);
    if (is.lacks[0])
        return sp_report_say(report, is.next ? sp_subject_next(subject, is.next) : NULL, "%s", is.lacks);
    return say_proof(report, facts, subject);
}

/* ---- the facts ---- */

static int row(struct sp_table *table, const char *name, const char *value)
{
    const char *const cells[] = {name, value};

    return sp_table_row(table, cells);
}

static int join(char **out, const char *first, const char *second)
{
    if (asprintf(out, second ? "%s (%s)" : "%s", first, second) >= 0)
        return SP_OK;
    *out = NULL;
    return sp_err(SP_ECANNOT, "out of memory");
}

static int joined_row(struct sp_table *table, const char *name, const char *first, const char *second)
{
    char *value;
    int rc = join(&value, first, second);

    if (rc == SP_OK)
        rc = row(table, name, value);
    free(value);
    return rc;
}

/* The release that the bytes are of, where it is not what the metadata says. */
static int release_rows(struct sp_table *table, const struct sp_report *report, const struct sp_install *install,
                        const struct sp_plan *plan)
{
    int rc = SP_OK;

    for (size_t i = 0; i < plan->set_count && rc == SP_OK; i++) {
        const char *version = plan->release[i] ? plan->release[i]->version : NULL;

        if (plan->set[i]->checkout) /* one text of many releases: it tells none */
            continue;
        if (version && (report->verbose || !install->sglang || strcmp(version, install->sglang) != 0))
            rc = joined_row(table, "files of", version, plan->set[i]->name);
    }
    return rc;
}

static int install_rows(struct sp_table *table, const struct sp_report *report, const struct sp_install *install,
                        const struct sp_plan *plan)
{
    int rc =
        joined_row(table, "sglang", install->sglang ? install->sglang : "unknown", sp_layout_name(install->layout));

    if (rc == SP_OK)
        rc = release_rows(table, report, install, plan);
    if (rc == SP_OK)
        rc = row(table, "kernel", install->kernel ? install->kernel : "none");
    if (rc == SP_OK && install->checkout)
        rc = row(table, "checkout", install->checkout);
    if (rc == SP_OK)
        rc = row(table, "root", install->root);
    if (rc == SP_OK && (report->verbose || strcmp(install->root, install->site) != 0))
        rc = row(table, "site", install->site);
    if (rc == SP_OK && report->verbose)
        rc = row(table, "python", install->python ? install->python : "not asked");
    if (rc == SP_OK && report->verbose)
        rc = row(table, "bytecode", install->pycache_prefix ? install->pycache_prefix : "beside the sources");
    return rc;
}

/* Fresh, or what changed, a line each. */
static int verdict_rows(struct sp_table *table, const struct sp_verdict_now *verdict)
{
    const char *reason = json_string_value(json_array_get(verdict->reasons, 0));
    char *summary;
    int rc;

    if (!verdict->present)
        return row(table, "verdict",
                   reason && strcmp(reason, "no verdict for this machine") != 0 ? reason : "none for this machine");
    summary = sp_verdict_summary(verdict);
    rc = summary ? joined_row(table, "verdict", verdict->fresh ? "fresh" : "stale", summary)
                 : sp_err(SP_ECANNOT, "out of memory");
    for (size_t i = 0; i < json_array_size(verdict->reasons) && rc == SP_OK; i++)
        rc = row(table, "", json_string_value(json_array_get(verdict->reasons, i)));
    free(summary);
    return rc;
}

/* Which sizes are ours, or why the profile does not count. */
static int profile_row(struct sp_table *table, const struct sp_facts *facts)
{
    const struct sp_profile_now *profile = &facts->profile;
    char *summary = profile->present ? sp_profile_summary(profile->content, sp_facts_verdict(facts)) : NULL;
    int rc;

    if (!profile->present && strcmp(profile->reason, "there is none for this machine") == 0)
        rc = row(table, "profile", "none for this machine");
    else if (!profile->present)
        rc = joined_row(table, "profile", "none that counts", profile->reason);
    else
        rc = summary ? joined_row(table, "profile", profile->fresh ? "fresh" : "stale", summary)
                     : sp_err(SP_ECANNOT, "out of memory");
    if (rc == SP_OK && profile->present && profile->reason)
        rc = row(table, "", profile->reason);
    free(summary);
    return rc;
}

static int state_rows(struct sp_table *table, const struct sp_report *report, const struct sp_plan *plan,
                      const struct sp_facts *facts)
{
    char sha256[SP_SHA256_HEX + 1] = "";
    int rc = row(table, "runtime", sp_runtime_name(plan->runtime));

    memcpy(sha256, facts->extension.sha256, report->verbose ? SP_SHA256_HEX : 12);
    if (rc == SP_OK)
        rc = joined_row(table, "extension",
                        facts->extension.present   ? "present"
                        : facts->extension.partial ? "without the module for Python"
                                                   : "absent",
                        sha256[0] ? sha256 : NULL);
    if (rc == SP_OK)
        rc = verdict_rows(table, &facts->verdict);
    if (rc == SP_OK)
        rc = profile_row(table, facts);
    if (rc == SP_OK)
        rc = strcmp(facts->flag.source, "unset") == 0
                 ? joined_row(table, "flag", "unset",
                              facts->flag.unusable ? ".sgl-pcie/flag.json is damaged, and counts for nothing" : NULL)
                 : joined_row(table, "flag", facts->flag.value[0] ? facts->flag.value : "set to nothing",
                              facts->flag.source);
    if (rc == SP_OK)
        rc = row(table, "journal", facts->pending < 0 ? "interrupted write" : "none");
    return rc;
}

static int print_facts(const struct sp_report *report, const struct sp_subject *subject, const struct sp_plan *plan,
                       const struct sp_facts *facts)
{
    struct sp_table *table;
    int rc = sp_table_new(&table, 2, NULL);

    if (rc == SP_OK)
        rc = install_rows(table, report, subject->install, plan);
    if (rc == SP_OK)
        rc = state_rows(table, report, plan, facts);
    if (rc == SP_OK && report->verbose)
        rc = row(table, "patches", subject->sets->dir);
    if (rc == SP_OK)
        sp_report_table(report, table, NULL);
    else
        sp_table_free(table);
    return rc;
}

/* ---- the command ---- */

static int show(struct sp_report *report, struct sp_subject *subject, const struct sp_plan *plan,
                const struct sp_facts *facts)
{
    int rc = SP_OK;

    sp_show_install(report, subject->install, plan, facts);
    if (report->text)
        rc = print_facts(report, subject, plan, facts);
    if (report->text && rc == SP_OK && plan->file_count > 0)
        (void)putchar('\n');
    if (rc == SP_OK)
        rc = sp_show_files(report, plan);
    if (report->text && rc == SP_OK)
        (void)putchar('\n');
    return rc;
}

static int judge(struct sp_report *report, struct sp_subject *subject, const struct sp_plan *plan,
                 const struct sp_facts *facts)
{
    int rc = sp_pending_check(subject->install);

    if (rc == SP_OK)
        rc = sp_plan_check(plan, subject->install);
    if (rc < 0)
        return sp_report_judge(report, rc);
    return say_state(report, plan, facts, subject);
}

static int run(const struct sp_args *args, struct sp_report *report)
{
    struct sp_facts facts = {.pending = 0};
    struct sp_subject subject;
    struct sp_plan *plan = NULL;
    int rc = sp_subject_open(&subject, args);

    if (rc == SP_OK)
        rc = sp_plan_make(&plan, subject.install, subject.sets, NULL);
    if (rc == SP_OK)
        rc = sp_facts_read(&facts, subject.install);
    if (rc == SP_OK)
        rc = show(report, &subject, plan, &facts);
    if (rc == SP_OK)
        rc = judge(report, &subject, plan, &facts);
    sp_facts_free(&facts);
    sp_plan_free(plan);
    sp_subject_close(&subject);
    return rc;
}

const struct sp_command sp_cmd_status = {
    .name = "status",
    .summary = "show what an install is, file by file, and what to do next",
    .description = description,
    .target = true,
    .options = options,
    .exits = exits,
    .examples = examples,
    .fields = fields,
    .run = run,
};
