#include "cli/bundle.h"
#include "base/json.h"
#include "cli/examine.h"
#include "cli/report.h"
#include "cli/show.h"
#include "verify/bench/bench.h"
#include "verify/machine/redact.h"
#include "verify/page/bundle_shape.h"
#include "verify/verdict/profile.h"
#include "verify/verdict/state.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* ---- the parts ---- */

/* What status shows, without the folders; and the verdict that it speaks of. The profile has a part of its own. */
static int put_status(json_t *bundle, const struct sp_examination *is)
{
    static const char *const folders[] = {"root", "site", "python", "checkout"};
    struct sp_report inner = {.object = json_object()};
    struct sp_facts facts;
    int rc = sp_facts_read(&facts, is->subject.install);

    if (rc == SP_OK)
        sp_show_install(&inner, is->subject.install, is->plan, &facts);
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++)
        (void)json_object_del(json_object_get(inner.object, "install"), folders[i]);
    (void)json_object_del(inner.object, "profile");
    if (rc == SP_OK && facts.verdict.present)
        (void)json_object_set(bundle, "verdict", facts.verdict.content);
    (void)json_object_set_new(bundle, "status", inner.object);
    if (rc == SP_OK)
        sp_facts_free(&facts);
    return rc;
}

/* What it is worth depends on the verdict. */
static int put_profile(json_t *bundle, const char *site)
{
    struct sp_verdict_now verdict;
    struct sp_profile_now now = {.content = NULL};
    int rc = sp_verdict_read(&verdict, site);
    const json_t *holds = rc == SP_OK && sp_verdict_holds(&verdict) ? verdict.content : NULL;
    char *summary = NULL;

    if (rc == SP_OK)
        rc = sp_profile_read(&now, site, holds);
    if (rc == SP_OK && now.content)
        summary = sp_profile_summary(now.content, holds);

    if (rc == SP_OK && now.content)
        (void)json_object_set_new(bundle, "profile",
                                  json_pack("{s:b, s:b, s:s?, s:s?, s:O}", "fresh", now.fresh, "wins",
                                            now.says == SP_SERVED_FASTER, "reason", now.reason, "summary", summary,
                                            "content", now.content));
    free(summary);
    sp_profile_free(&now);
    sp_verdict_free(&verdict);
    return rc;
}

static int put_bench(json_t *bundle, const char *site)
{
    json_t *content = NULL;
    char *found = NULL;
    int rc = sp_state_read(&content, &found, SP_BENCH_FILE, SP_BENCH_SCHEMA, site);

    if (rc == SP_OK && content)
        (void)json_object_set(bundle, "bench", content);
    json_decref(content);
    free(found);
    return rc;
}

/* What a survey says, and no more. */
static int make_empty(json_t **out, const struct sp_survey *survey)
{
    const time_t now = time(NULL);
    struct tm utc;
    char created[32] = "";

    if (gmtime_r(&now, &utc))
        (void)strftime(created, sizeof created, "%Y-%m-%dT%H:%M:%SZ", &utc);
    *out = json_pack("{s:s, s:s, s:s, s:o, s:n, s:n, s:o, s:[], s:o, s:n, s:n, s:n}", "schema", SP_BUNDLE_SCHEMA,
                     "version", SP_VERSION, "created", created, "recording", sp_recording_json(&survey->recording),
                     "status", "status_error", "findings", sp_findings_json(&survey->findings), "checks", "backends",
                     sp_candidates_json(&survey->candidates), "verdict", "profile", "bench");
    return *out ? SP_OK : sp_err(SP_ECANNOT, "out of memory");
}

/* The paths that may be in it, as the command line has them and as they were found. */
static int know_paths(struct sp_redaction *redaction, const struct sp_examination *is)
{
    const struct sp_install *install = is->subject.install;
    int rc = SP_OK;

    for (const struct sp_option *target = sp_target_options; target->name && rc == SP_OK; target++)
        rc = sp_redaction_add_path(redaction, sp_args_value(is->subject.args, target->name));
    if (rc == SP_OK && install) {
        const char *const paths[] = {install->root, install->site, install->python, install->checkout,
                                     install->pycache_prefix};

        for (size_t i = 0; i < sizeof paths / sizeof *paths && rc == SP_OK; i++)
            rc = sp_redaction_add_path(redaction, paths[i]);
    }
    return rc;
}

/* is: what was looked at here; NULL: nothing. */
static int redact(json_t *bundle, const struct sp_examination *is)
{
    struct sp_redaction redaction;
    int rc = sp_redaction_init(&redaction);

    if (rc == SP_OK && is)
        rc = know_paths(&redaction, is);
    if (rc == SP_OK)
        rc = sp_redact_json(bundle, &redaction);
    sp_redaction_free(&redaction);
    return rc;
}

/* ---- this machine ---- */

static int fill(json_t *bundle, const struct sp_examination *is)
{
    const struct sp_install *install = is->subject.install;
    int rc = install ? put_status(bundle, is) : SP_OK;

    (void)json_object_set_new(bundle, "status_error", sp_json_text(is->no_install));
    (void)json_object_set_new(bundle, "findings", sp_findings_json(&is->findings));
    (void)json_object_set_new(bundle, "checks", sp_examination_json(is, true));
    if (rc == SP_OK && install)
        rc = put_profile(bundle, install->site);
    if (rc == SP_OK && install)
        rc = put_bench(bundle, install->site);
    return rc == SP_OK ? redact(bundle, is) : rc;
}

int sp_bundle_make(json_t **out, const struct sp_args *args)
{
    struct sp_examination examination = {.count = 0};
    int rc = sp_examination_choose(&examination, NULL);

    *out = NULL;
    if (rc == SP_OK)
        rc = sp_examination_run(&examination, args);
    if (rc == SP_OK)
        rc = make_empty(out, &examination.survey);
    if (rc == SP_OK)
        rc = fill(*out, &examination);
    sp_examination_free(&examination);
    return rc;
}

/* ---- another one ---- */

/* What report --json says has a bundle in it. */
static void unwrap(json_t **content)
{
    json_t *bundle = json_object_get(*content, "bundle");

    if (!json_is_object(bundle))
        return;
    json_incref(bundle);
    json_decref(*content);
    *content = bundle;
}

/* What is wrong was written by hand, or by a program that is no sgl-pcie. */
static int check(const json_t *bundle, const char *path)
{
    int rc = sp_bundle_check(bundle);

    if (rc < 0)
        rc = sp_err_hint(sp_err_wrap(rc, "'%s'", path), SP_RECORDING_HINT);
    return rc;
}

/* NULL without an error where the file is a recording alone. */
static int read_bundle(json_t **out, const char *path)
{
    struct sp_buf bytes = SP_BUF_INIT;
    int rc = sp_read_file(&bytes, path, SP_REC_BYTES_MAX);
    const char *schema = NULL;

    *out = NULL;
    if (rc == SP_OK)
        rc = sp_json_load(out, bytes.data, bytes.len, path);
    if (rc == SP_OK)
        unwrap(out);
    if (rc == SP_OK)
        rc = sp_json_opt_string(&schema, *out, "schema");
    if (rc == SP_OK && (!schema || strcmp(schema, SP_BUNDLE_SCHEMA) != 0)) {
        json_decref(*out);
        *out = NULL;
    }
    if (rc == SP_OK && *out)
        rc = check(*out, path);
    sp_buf_free(&bytes);
    return rc;
}

/* As sp_recording_load() chooses in a folder: a recording comes first. */
static const char *file_of(char out[PATH_MAX], const char *path)
{
    if (!sp_is_folder(path))
        return path;
    if (snprintf(out, PATH_MAX, "%s/recording.json", path) >= PATH_MAX || access(out, F_OK) != 0)
        (void)snprintf(out, PATH_MAX, "%s/report.json", path);
    return out;
}

int sp_bundle_load(json_t **out, const char *path)
{
    struct sp_survey survey = {.choice = {.count = 0}};
    char file[PATH_MAX];
    int rc = sp_survey_make(&survey, path, NULL); /* names what is wrong with the recording */

    *out = NULL;
    if (rc == SP_OK)
        rc = read_bundle(out, file_of(file, path));
    if (rc == SP_OK && *out)
        (void)json_object_set_new(*out, "recording", sp_recording_json(&survey.recording));
    else if (rc == SP_OK)
        rc = make_empty(out, &survey);
    if (rc == SP_OK)
        rc = redact(*out, NULL);
    sp_survey_free(&survey);
    return rc;
}
