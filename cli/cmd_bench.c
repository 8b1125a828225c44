#include "base/file.h"
#include "base/json.h"
#include "cli/bench_show.h"
#include "cli/progress.h"
#include "cli/subject.h"
#include "verify/bench_run.h"
#include "verify/bound.h"
#include "verify/plot.h"
#include "verify/profile.h"
#include "verify/state.h"
#include "verify/survey.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

static const char *const description[] = {
    "Measures the all-reduce against what SGLang uses by itself, on this machine's GPUs, and writes the profile that "
    "enable asks for and SGLang reads: which algorithm serves which size. Stock is NCCL as the environment sets it up; "
    "on two GPUs SGLang's own kernel, where the interpreter has one. With peer access, NCCL without it is shown "
    "beside.",
    "Each size is timed back to back in CUDA graphs, as nccl-tests do, and inside a step, with a small kernel before "
    "every call; the second decides, since it contains the gap before a kernel starts. Everything is compared with a "
    "reference first: a wrong algorithm ends in exit status 7 and no profile. Ours serves a size only where it is "
    "faster than stock by more than the noise.",
    "Only backends that the verdict of verify proved are measured. The profile is written at the end and at once: what "
    "is interrupted leaves the one before.",
    NULL,
};

static const struct sp_option options[] = {
    {.name = "gpus",
     .value = "LIST",
     .help = "on these GPUs, as verify takes them (default: $CUDA_VISIBLE_DEVICES, else all)"},
    {.name = "sizes", .value = "LIST", .help = "these sizes instead of 2K to 16M, as 2K,43008,1M; writes no profile"},
    {.name = "quick", .help = "few sizes, a few seconds; writes no profile"},
    {.name = "step",
     .value = "NxBYTES[,...]",
     .help = "what a step of so many all-reduces costs with stock and with ours, as 122x43008"},
    {.name = "model", .value = "KEY=N,...", .help = "the same for a model: hidden=5120,layers=64,batch=1-32,draft=5"},
    {.name = "plot",
     .value = "FILE",
     .complete = SP_COMPLETE_FILE,
     .help = "draw it into a file that ends in .svg or .png, or on the terminal (-); needs gnuplot"},
    {.name = "from",
     .value = "FILE",
     .complete = SP_COMPLETE_FILE,
     .help = "show what was measured before: bench.json, or the output of bench --json; nothing is run or written"},
    {.name = "timeout",
     .value = "SECONDS",
     .help = "time limit of one child process (default: what it needs, and a minute)"},
    {.name = "unproved", .help = "measure without a verdict; writes no profile"},
    {.name = NULL},
};

static const struct sp_exit exits[] = {
    {0, "measured; where stock is as fast at every size, the message says so"},
    {1, "there is no fresh verdict, or it proves nothing on these GPUs; with --from: that file is of no bench"},
    {2, "wrong arguments, or no such GPU"},
    {5, "fewer than two GPUs, no driver, nothing built, no NCCL to compare with, or no such file"},
    {7, "an algorithm gave wrong data"},
    {8, "something hung, or did not end in time"},
    {9, "inconclusive: another process computes on these GPUs, or a GPU refuses to work"},
    {-1, NULL},
};

static const struct sp_example examples[] = {
    {"sudo sgl-pcie bench --python /opt/venv/bin/python", "after verify; a minute and a half at most"},
    {"sgl-pcie bench --quick --step 122x43008", "what a speculative verify step of 122 all-reduces would save"},
    {"sgl-pcie bench --model hidden=5120,layers=64,batch=1-32 --plot bench.svg", "by batch size, with a picture"},
    {NULL, NULL},
};

static const char *const fields[] = {"bench", "checks", "gpus", "profile", "steps", NULL};

/* ---- arguments ---- */

struct wanted {
    uint64_t bytes[SP_BENCH_SIZES];
    size_t bytes_count, default_count;
    struct sp_step step[SP_STEPS];
    size_t step_count;
    const char *plot;
    double seconds; /* of a child; 0: by what it does */
    bool quick, unproved, sizes;
};

static int read_steps(struct wanted *out, const struct sp_args *args)
{
    const char *step = sp_args_value(args, "step"), *model = sp_args_value(args, "model");

    if (step && model)
        return sp_err(SP_EUSAGE, "--step and --model exclude each other");
    if (model)
        return sp_steps_of_model(out->step, &out->step_count, model);
    out->step_count = step != NULL;
    return step ? sp_step_parse(&out->step[0], step) : SP_OK;
}

/* The sizes of the steps are measured themselves, as many as there is room for. */
static void add_step_sizes(struct wanted *out)
{
    for (size_t i = 0; i < out->step_count; i++)
        for (size_t k = 0; k < out->step[i].count; k++)
            (void)sp_bench_add_size(out->bytes, &out->bytes_count, out->step[i].bytes[k]);
}

static int check_from(const struct sp_args *args)
{
    static const char *const excluded[] = {"gpus", "sizes", "quick", "timeout", "unproved", "python", "site", "source"};

    for (size_t i = 0; sp_args_has(args, "from") && i < sizeof excluded / sizeof *excluded; i++)
        if (sp_args_has(args, excluded[i]))
            return sp_err(SP_EUSAGE, "--from measures nothing, --%s is about measuring", excluded[i]);
    return SP_OK;
}

static bool is_terminal(const char *plot)
{
    return strcmp(plot, "-") == 0;
}

static int read_options(struct wanted *out, const struct sp_args *args)
{
    const char *sizes = sp_args_value(args, "sizes");
    int rc = check_from(args);

    out->quick = sp_args_has(args, "quick");
    out->unproved = sp_args_has(args, "unproved");
    out->sizes = sizes != NULL;
    out->plot = sp_args_value(args, "plot");
    if (rc == SP_OK && sizes)
        rc = sp_bench_parse_sizes(out->bytes, &out->bytes_count, sizes);
    else if (rc == SP_OK)
        out->bytes_count = sp_bench_sizes(out->bytes, out->quick);
    if (rc == SP_OK)
        rc = sp_args_number(&out->seconds, args, "timeout");
    if (rc == SP_OK)
        rc = read_steps(out, args);
    out->default_count = out->bytes_count;
    add_step_sizes(out);
    if (rc == SP_OK && out->plot)
        rc = sp_plot_check(out->plot);
    return rc;
}

/* ---- text and JSON ---- */

static int draw(const struct sp_report *report, const struct sp_bench *bench)
{
    struct sp_buf text = SP_BUF_INIT;
    int rc = SP_OK;

    for (size_t i = 0; report->text && i < bench->group_count && rc == SP_OK; i++) {
        sp_buf_free(&text);
        rc = sp_plot_text(&text, &bench->group[i], sp_plot_columns());
        if (rc == SP_OK)
            (void)printf("%s\n", text.data);
    }
    sp_buf_free(&text);
    return rc;
}

static int show(struct sp_report *report, struct sp_bench *bench, const struct wanted *wanted)
{
    int rc = sp_bench_look(bench);

    json_decref(bench->steps);
    bench->steps = wanted->step_count > 0 ? sp_steps_json(bench, wanted->step, wanted->step_count) : NULL;
    sp_report_set(report, "steps", json_incref(bench->steps));
    sp_report_set(report, "bench", sp_bench_json(bench));
    if (rc == SP_OK && report->text)
        rc = sp_show_bench(report, bench);
    if (rc == SP_OK && report->text)
        rc = sp_show_steps(report, bench, wanted->step, wanted->step_count);
    return rc;
}

/* Last: a picture that fails costs nothing else. */
static int plot(const struct sp_report *report, const struct sp_bench *bench, const struct wanted *wanted)
{
    if (!wanted->plot)
        return SP_OK;
    return is_terminal(wanted->plot) ? draw(report, bench) : sp_plot_file(wanted->plot, bench);
}

/* ---- what was measured before ---- */

enum { FILE_MAX = 16 << 20 };

static int load(struct sp_bench *out, const char *path)
{
    struct sp_buf bytes = SP_BUF_INIT;
    json_t *content = NULL;
    int rc = sp_read_file(&bytes, path, FILE_MAX);

    if (rc == 1)
        rc = sp_err(SP_ECANNOT, "there is no '%s'", path);
    if (rc == SP_OK)
        rc = sp_json_load(&content, bytes.data, bytes.len, path);
    if (rc == SP_OK) {
        rc = sp_bench_read(out, content);
        if (rc < 0)
            (void)sp_err_wrap(rc, "'%s'", path);
    }
    json_decref(content);
    sp_buf_free(&bytes);
    return rc;
}

/* What a table of these measurements would be, in a sentence. */
static char *summary_of(const struct sp_bench *bench, bool *wins)
{
    json_t *profile = NULL, *bound = json_object();
    char *text = NULL;

    if (sp_profile_make(&profile, bench, bound) == SP_OK)
        text = sp_profile_summary(profile);
    *wins = sp_profile_wins(profile);
    json_decref(profile);
    json_decref(bound);
    return text;
}

static int replay(struct sp_report *report, const char *path, const struct wanted *wanted)
{
    struct sp_bench bench = {.group_count = 0};
    char *summary = NULL;
    bool wins = false;
    int rc = load(&bench, path), wrong = SP_OK;

    if (rc == SP_OK) {
        wrong = sp_bench_tune(&bench);
        if (wrong < 0)
            (void)sp_report_judge(report, wrong);
        rc = show(report, &bench, wanted);
        if (rc == SP_OK)
            rc = plot(report, &bench, wanted);
        report->judged = report->judged && rc == SP_OK;
        summary = summary_of(&bench, &wins);
    }
    if (rc == SP_OK)
        rc = wrong < 0 ? wrong
                       : sp_report_say(report, NULL, wins ? "ours was faster: %s" : "%s", summary ? summary : "?");
    free(summary);
    sp_bench_free(&bench);
    return rc;
}

/* ---- measuring ---- */

struct session {
    struct sp_report *report;
    const struct wanted *wanted;
    struct sp_subject *subject;
    struct sp_survey *survey;
    struct sp_ladder *ladder;
    struct sp_verdict_now verdict;
    struct sp_bench bench;
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

    if (rc < 0 || session->wanted->unproved ||
        (session->verdict.fresh && json_array_size(session->verdict.reasons) == 0))
        return rc;
    reason = json_string_value(json_array_get(session->verdict.reasons, 0));
    rc = sp_err(SP_EFAIL, "nothing measured: %s%s", session->verdict.present ? "the verdict does not hold: " : "",
                reason ? reason : "no verdict for this machine");
    return sp_err_hint(rc, "%s", sp_subject_next(session->subject, "verify"));
}

/* Another process on these GPUs would be in every figure, and we in its. */
static int check_alone(struct session *session, struct sp_survey *survey)
{
    struct sp_ladder grant = {.topology = &survey->topology, .findings = &survey->findings, .level = 1};
    struct sp_check *check = NULL;
    const struct sp_check *found = NULL;
    int rc = sp_run_grant(&grant);

    if (rc == SP_OK)
        found = sp_check_find(&grant.checks, "grant.processes");
    if (found && found->status == SP_CHECK_INCONCLUSIVE)
        rc = sp_check_new(&check, &session->ladder->checks, 1, "grant.processes");
    if (rc == SP_OK && check) {
        check->actual = json_incref(found->actual);
        check->expected = json_incref(found->expected);
        sp_check_remedy(check, "%s", found->remedy ? found->remedy : "stop it, and measure again");
    }
    sp_checks_free(&grant.checks);
    return rc;
}

/* Somebody may have come while we measured. */
static int check_still_alone(struct session *session, const char *gpus)
{
    struct sp_survey survey = {.choice = {.count = 0}};
    int rc = sp_survey_make(&survey, NULL, gpus);

    if (rc == SP_OK)
        rc = check_alone(session, &survey);
    sp_survey_free(&survey);
    return rc;
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

static bool counts(const struct wanted *wanted)
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
        rc = sp_profile_make(&profile, &session->bench, session->before);
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

static bool any_stock(const struct sp_bench *bench)
{
    bool any = false;

    for (size_t i = 0; i < bench->group_count; i++)
        for (size_t k = 0; k < bench->group[i].row_count; k++)
            any = any || bench->group[i].row[k].stock >= 0;
    return any;
}

static int say(struct session *session)
{
    bool wins = false;
    char *summary = summary_of(&session->bench, &wins);
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
    int rc = sp_profile_read(&profile, session->ladder->site);

    if (rc == SP_OK)
        sp_profile_remember(&session->bench, profile.content, session->before);
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
    rc = show(session->report, &session->bench, session->wanted);
    session->report->judged = session->report->judged && rc == SP_OK;
    if (rc < 0 || code < 0)
        return rc < 0 ? rc : code;
    if (!any_stock(&session->bench))
        return sp_err_hint(sp_err(SP_ECANNOT, "there is nothing to compare with: no NCCL was found"),
                           "install the nvidia-nccl package of the interpreter, or set LD_LIBRARY_PATH");
    rc = counts(session->wanted) ? write_profile(session) : SP_OK;
    if (rc == SP_OK)
        rc = plot(session->report, &session->bench, session->wanted);
    return rc == SP_OK ? say(session) : rc;
}

static int bench(struct session *session, const char *gpus)
{
    int rc = check_verdict(session);

    if (rc == SP_OK && counts(session->wanted))
        rc = sp_state_check(session->ladder->site);
    if (rc == SP_OK)
        rc = check_alone(session, session->survey);
    if (rc == SP_OK)
        rc = sp_bound_read(&session->before, session->ladder->site, "");
    if (rc == SP_OK && session->ladder->checks.count == 0) {
        rc = measure(session);
        if (rc == SP_OK)
            rc = check_still_alone(session, gpus);
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
    sp_report_set(session->report, "gpus", sp_survey_gpus_json(session->survey));
    return SP_OK;
}

static void close_session(struct session *session)
{
    sp_checks_free(&session->ladder->checks);
    sp_verdict_free(&session->verdict);
    sp_bench_free(&session->bench);
    json_decref(session->before);
    sp_survey_free(session->survey);
    sp_subject_close(session->subject);
}

static int measure_here(const struct sp_args *args, struct sp_report *report, const struct wanted *wanted)
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

static int run(const struct sp_args *args, struct sp_report *report)
{
    struct wanted *wanted = calloc(1, sizeof *wanted);
    int rc = wanted ? read_options(wanted, args) : sp_err(SP_ECANNOT, "out of memory");

    if (rc == SP_OK && sp_args_has(args, "from"))
        rc = replay(report, sp_args_value(args, "from"), wanted);
    else if (rc == SP_OK)
        rc = measure_here(args, report, wanted);
    free(wanted);
    return rc;
}

const struct sp_command sp_cmd_bench = {
    .name = "bench",
    .summary = "measure it against what SGLang uses by itself, and write the profile",
    .description = description,
    .target = true,
    .options = options,
    .exits = exits,
    .examples = examples,
    .fields = fields,
    .run = run,
};
