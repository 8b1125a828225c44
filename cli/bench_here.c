#include "cli/bench.h"
#include "cli/progress.h"
#include "cli/subject.h"
#include "verify/machine/claim.h"
#include "verify/machine/survey.h"
#include "verify/verdict/bound.h"
#include "verify/verdict/profile.h"
#include "verify/verdict/state.h"
#include "verify/verdict/verdict.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

/* ---- measuring ---- */

struct session {
    struct sp_report *report;
    const struct sp_bench_wanted *wanted;
    struct sp_subject *subject;
    struct sp_survey *survey;
    struct sp_claim claim;
    struct sp_ladder *ladder;
    struct sp_verdict_now verdict;
    struct sp_bench bench;
    char *target;   /* the words that name it */
    json_t *before; /* what the profile will be bound to */
};

static void show_progress(const char *text, double seconds_left)
{
    sp_progress_line("%.0f s left: %s ...", seconds_left, text);
}

/* Nothing that was not proved right is worth a look. */
static int check_verdict(struct session *session)
{
    const char *reason;
    int rc = session->wanted->unproved ? SP_OK : sp_verdict_read(&session->verdict, session->ladder->site);

    if (rc < 0 || session->wanted->unproved || sp_verdict_holds(&session->verdict))
        return rc;
    reason = json_string_value(json_array_get(session->verdict.reasons, 0));
    rc = sp_err(SP_EFAIL, "nothing measured: %s%s", session->verdict.present ? "the verdict does not hold: " : "",
                reason ? reason : "no verdict for this machine");
    return sp_err_hint(rc, "%s", sp_subject_next(session->subject, "verify"));
}

static int check_unchanged(const struct session *session)
{
    json_t *now = NULL, *changes = NULL;
    int rc = sp_bound_read(&now, session->ladder->site, "");

    if (rc == SP_OK)
        rc = sp_bound_changes(&changes, session->before, now);
    if (rc == SP_OK && json_array_size(changes) > 0)
        rc = sp_err_hint(sp_err(SP_ECANNOT, "no profile: something changed while it was measured: %s",
                                json_string_value(json_array_get(changes, 0))),
                         "%s", sp_subject_next(session->subject, "verify"));
    json_decref(now);
    json_decref(changes);
    return rc;
}

static int measure(struct session *session)
{
    const bool progress = sp_progress_seen(session->report);
    const struct sp_bench_plan plan = {
        .ladder = session->ladder,
        .verdict = session->verdict.content,
        .python = session->subject->install->python,
        .bytes = session->wanted->bytes,
        .bytes_count = session->wanted->bytes_count,
        .own_sizes = session->wanted->sizes || session->wanted->bytes_count > session->wanted->default_count,
        .quick = session->wanted->quick,
        .progress = progress ? show_progress : NULL,
    };
    int rc = sp_bench_run(&session->bench, &plan);

    if (progress)
        sp_progress_end();
    return rc == SP_EFAIL ? sp_err_hint(rc, "%s", sp_subject_next(session->subject, "verify")) : rc;
}

static void describe(struct session *session)
{
    const time_t now = time(NULL);
    const char *driver = session->survey->recording.driver.version;
    struct tm parts;

    (void)strftime(session->bench.created, sizeof session->bench.created, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&now, &parts));
    (void)snprintf(session->bench.driver, sizeof session->bench.driver, "%s", driver ? driver : "");
    session->bench.quick = session->wanted->quick;
}

/* ---- the profile ---- */

static bool counts(const struct sp_bench_wanted *wanted)
{
    return !wanted->quick && !wanted->sizes && !wanted->unproved;
}

static int write_profile(struct session *session)
{
    const char *site = session->ladder->site;
    json_t *profile = NULL, *bench = sp_bench_json(&session->bench), *written = NULL;
    char *path = NULL, *other = NULL;
    int rc = check_unchanged(session);

    if (rc == SP_OK)
        rc = sp_bench_profile(&profile, &session->bench, session->before);
    if (rc == SP_OK)
        rc = bench ? sp_state_write(&other, SP_BENCH_FILE, bench, site) : sp_err(SP_ECANNOT, "out of memory");
    if (rc == SP_OK)
        rc = sp_profile_save(&path, &written, site, profile);
    if (rc == SP_OK)
        sp_report_set(session->report, "profile",
                      json_pack("{s:s, s:O}", "path", path, "tables", json_object_get(written, "tables")));
    if (rc == SP_OK && session->report->text)
        (void)printf("written to %s\n\n", path);
    free(path);
    free(other);
    json_decref(profile);
    json_decref(bench);
    json_decref(written);
    return rc;
}

static int say(struct session *session)
{
    bool wins = false;
    char *summary = sp_bench_summary(&session->bench, &wins);
    const char *next = sp_subject_next(session->subject, counts(session->wanted) ? "enable" : "bench");
    int rc;

    session->report->attention = !wins;
    if (!summary)
        rc = sp_err(SP_ECANNOT, "out of memory");
    else if (!wins)
        rc = sp_report_say(session->report, NULL, "stock is as fast here at every size that was measured");
    else if (counts(session->wanted))
        rc = sp_report_say(session->report, next, "ours is faster: %s", summary);
    else
        rc = sp_report_say(session->report, next, "ours is faster: %s; no profile was written", summary);
    free(summary);
    return rc;
}

static int tune(struct session *session)
{
    struct sp_profile_now profile;
    int rc = sp_profile_read(&profile, session->ladder->site, NULL);

    if (rc == SP_OK)
        sp_bench_remember(&session->bench, profile.content, session->before);
    sp_profile_free(&profile);
    return rc == SP_OK ? sp_bench_tune(&session->bench) : rc;
}

/* What was measured is shown in any case; what failed decides the exit status. */
static int conclude(struct session *session)
{
    int rc = tune(session), code = sp_checks_code(&session->ladder->checks);

    code = code < 0 ? code : rc;
    if (code < 0)
        (void)sp_report_judge(session->report, code);
    sp_report_set(session->report, "checks", sp_checks_json(&session->ladder->checks));
    rc = sp_bench_tell(session->report, &session->bench, session->wanted);
    session->report->judged = session->report->judged && rc == SP_OK;
    if (rc < 0 || code < 0)
        return rc < 0 ? rc : code;
    if (!sp_bench_compared(&session->bench))
        return sp_err_hint(sp_err(SP_ECANNOT, "there is nothing to compare with: no NCCL was found"),
                           "install the nvidia-nccl package of the interpreter, or set LD_LIBRARY_PATH");
    rc = counts(session->wanted) ? write_profile(session) : SP_OK;
    if (rc == SP_OK)
        rc = sp_bench_plot(session->report, &session->bench, session->wanted);
    return rc == SP_OK ? say(session) : rc;
}

static int bench(struct session *session, const char *gpus)
{
    int rc = check_verdict(session);

    if (rc == SP_OK && counts(session->wanted))
        rc = sp_state_check(session->ladder->site, SP_PROFILE_FILE);
    if (rc == SP_OK) /* they would be in every figure, and we in theirs */
        rc = sp_check_others(&session->ladder->checks, &session->survey->topology);
    if (rc == SP_OK)
        rc = sp_bound_read(&session->before, session->ladder->site, "");
    if (rc == SP_OK && session->ladder->checks.count == 0) {
        rc = measure(session);
        if (rc == SP_OK)
            rc = sp_check_others_now(&session->ladder->checks, gpus);
    }
    describe(session);
    if (rc == SP_OK)
        rc = conclude(session);
    return rc;
}

/* What another machine measured is no recording of it. */
static int check_choice(const struct sp_survey *survey)
{
    int rc = sp_choice_check(&survey->choice, &survey->recording);

    if (rc == SP_ECANNOT && survey->recording.gpu_count == 0)
        (void)sp_err_hint(rc, "run it on the machine with the GPUs; in a container: docker run --gpus all; what was "
                              "measured before: --from FILE");
    return rc;
}

static int open_session(struct session *session, const struct sp_args *args)
{
    int rc = sp_survey_make(session->survey, NULL, sp_args_value(args, "gpus"));

    if (rc == SP_OK)
        rc = check_choice(session->survey);
    if (rc == SP_OK)
        rc = sp_subject_locate(session->subject, args);
    if (rc < 0)
        return rc;
    session->ladder->topology = &session->survey->topology;
    session->ladder->findings = &session->survey->findings;
    session->ladder->site = session->subject->install->site;
    session->ladder->seconds = session->wanted->seconds;
    session->ladder->target = session->target = sp_subject_words(session->subject);
    sp_report_set(session->report, "gpus", sp_survey_gpus_json(session->survey));
    return sp_claim_make(&session->claim, &session->survey->recording, &session->survey->choice, "");
}

static void close_session(struct session *session)
{
    sp_checks_free(&session->ladder->checks);
    sp_verdict_free(&session->verdict);
    sp_bench_free(&session->bench);
    json_decref(session->before);
    free(session->target);
    sp_claim_free(&session->claim);
    sp_survey_free(session->survey);
    sp_subject_close(session->subject);
}

int sp_bench_here(struct sp_report *report, const struct sp_args *args, const struct sp_bench_wanted *wanted)
{
    struct sp_survey survey = {.choice = {.count = 0}};
    struct sp_subject subject = {.install = NULL};
    struct sp_ladder ladder = {.level = 0};
    struct session session = {
        .report = report, .wanted = wanted, .subject = &subject, .survey = &survey, .ladder = &ladder};
    int rc = open_session(&session, args);

    if (rc == SP_OK)
        rc = bench(&session, sp_args_value(args, "gpus"));
    close_session(&session);
    return rc;
}
