#include "base/lock.h"
#include "base/proc.h"
#include "build/arch.h"
#include "cli/change.h"
#include "cli/progress.h"
#include "cli/report.h"
#include "cli/subject.h"
#include "patcher/runtime.h"
#include "verify/bench/bench_sets.h"
#include "verify/ladder/ladder.h"
#include "verify/machine/survey.h"
#include "verify/verdict/covers.h"
#include "verify/verdict/profile.h"
#include "verify/verdict/verdict.h"

#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

static const char *const description[] = {
    "From a released wheel to an SGLang that uses the PCIe all-reduce: doctor, apply, build, verify, bench and "
    "enable, one after the other, each as if it had been typed. The first that fails ends it: its reason and the "
    "next command are shown, and an install that was stock before is stock again. A backend that verify found wrong "
    "does not end it where another one was proved: that one is measured and enabled, as verify, bench and enable by "
    "hand would have it.",
    "Without two GPUs, which all of this is for, nothing is written.",
    "It may be interrupted at any point and run again: a write that was cut short is finished or rolled back first, "
    "and what is done already is not done twice: a verdict and a profile that still hold and are of all the GPUs "
    "that it is to serve are kept, unless --gpus or --level ask for others.",
    "What an interrupted run patched is taken back by the next one that fails, unless apply was typed meanwhile. A "
    "second one at work on the same install is refused.",
    "Where nothing is faster than what SGLang does by itself, that is said, and the install is stock again (1).",
    NULL,
};

static const struct sp_option options[] = {
    {.name = "gpus",
     .value = "LIST",
     .help = "prove it on these GPUs, as verify takes them (default: $CUDA_VISIBLE_DEVICES, else all)"},
    {.name = "arch",
     .value = "LIST",
     .help = "compile for these architectures, as build takes them (default: of the GPUs)"},
    {.name = "level", .value = "N", .help = "climb up to this level of verify (default: 3)"},
    {.name = NULL},
};

static const struct sp_exit exits[] = {
    {0, "enabled, now or already"},
    {1, "a check failed, or stock is as fast at every size: nothing is to be enabled, and the install is as before"},
    {2, NULL},
    {3, NULL},
    {4, NULL},
    {5, NULL},
    {6, NULL},
    {7, NULL},
    {8, NULL},
    {9, NULL},
    {10, NULL},
    {-1, NULL},
};

static const struct sp_example examples[] = {
    {"sudo sgl-pcie setup --python /opt/venv/bin/python", "everything, for every user of that environment"},
    {NULL, NULL},
};

static const char *const fields[] = {"steps", "undone", NULL};

/* ---- what would fail in any case ---- */

/* What is wrong in itself is said before anything is written. */
static int check_words(const struct sp_args *args)
{
    const char *level = sp_args_value(args, "level"), *archs = sp_args_value(args, "arch");
    int number, rc = SP_OK;

    if (level)
        rc = sp_ladder_level(&number, level);
    if (rc == SP_OK && level && number < SP_VERDICT_LEVEL)
        rc = sp_err(SP_EUSAGE, "level %d enables nothing: %d at least", number, SP_VERDICT_LEVEL);
    return rc == SP_OK && archs ? sp_archs_check(archs) : rc;
}

/* ---- one step ---- */

enum { WORDS = 16, OUTPUT_MAX = 16 << 20 };

struct step {
    const char *command;
    const char *option; /* of setup that it takes over, or NULL */
};

/* recover does nothing where nothing was interrupted. */
static const struct step steps[] = {
    {"recover", NULL},  {"doctor", NULL},  {"apply", NULL},  {"build", "arch"},
    {"verify", "gpus"}, {"bench", "gpus"}, {"enable", NULL},
};
enum { FIRST_OF_PATCHED = 2 };

struct setup {
    const struct sp_args *args;
    struct sp_report *report;
    struct sp_subject subject;
    char self[PATH_MAX];
    json_t *list; /* what was done */
    json_t *last; /* what the last step said */
    struct sp_survey survey;
    struct sp_subjects gpus; /* to be enabled */
};

static void add_option(const char **argv, size_t *count, const struct sp_args *args, const char *option, char *words)
{
    const char *value = option ? sp_args_value(args, option) : NULL;

    if (!value || *count + 2 >= WORDS)
        return;
    (void)snprintf(words, 16, "--%s", option);
    argv[(*count)++] = words;
    argv[(*count)++] = value;
}

static int call(struct setup *setup, const char *command, const char *option)
{
    char words[6][16];
    const char *argv[WORDS] = {setup->self, command, "--json"};
    const struct sp_proc_options limits = {.output_max = OUTPUT_MAX};
    struct sp_proc_result result;
    size_t count = 3, word = 0;
    int rc;

    for (const struct sp_option *target = sp_target_options; target->name; target++)
        add_option(argv, &count, setup->args, target->name, words[word++]);
    add_option(argv, &count, setup->args, option, words[word++]);
    if (strcmp(command, "verify") == 0)
        add_option(argv, &count, setup->args, "level", words[word]);
    if (strcmp(command, "revert") == 0) { /* what apply does unasked: another set is somebody else's work */
        argv[count++] = "--set";
        argv[count++] = "sglang";
    }
    rc = sp_proc_run(&result, argv, &limits);
    json_decref(setup->last);
    setup->last = rc == SP_OK ? json_loads(result.out.data, 0, NULL) : NULL;
    if (rc == SP_OK && !setup->last)
        rc = sp_err_hint(sp_err(SP_ECANNOT, "'sgl-pcie %s' ended without a result", command), "%s",
                         sp_subject_next(&setup->subject, "setup"));
    sp_proc_free(&result);
    return rc;
}

static const char *said(const struct setup *setup, const char *key)
{
    const char *text = json_string_value(json_object_get(setup->last, key));

    return text ? text : "";
}

static bool verdict_holds(const char *site)
{
    struct sp_verdict_now now;
    const bool is = sp_verdict_read(&now, site) == SP_OK && sp_verdict_holds(&now);

    sp_verdict_free(&now);
    return is;
}

/* verify's exit status is about all that it tried. A backend that failed does not block one that was proved. */
static bool proved_something(const struct setup *setup)
{
    const bool wrote = json_is_object(json_object_get(setup->last, "verdict"));

    return wrote && verdict_holds(setup->subject.install->site);
}

static int keep(struct setup *setup, const char *command, double ms)
{
    const json_int_t code = json_integer_value(json_object_get(setup->last, "exit_code"));

    (void)json_array_append_new(setup->list, json_pack("{s:s, s:I, s:s, s:f}", "command", command, "exit_code", code,
                                                       "message", said(setup, "message"), "duration_ms", ms));
    if (setup->report->text) {
        (void)printf("%-8s %7.1f s  %s\n", command, ms / 1e3, said(setup, "message"));
        (void)fflush(stdout);
    }
    if (code != 0 && strcmp(command, "verify") == 0 && proved_something(setup))
        return SP_OK;
    return code == 0
               ? SP_OK
               : sp_err_hint(sp_err((int)-code, "%s: %s", command, said(setup, "message")), "%s", said(setup, "next"));
}

static int run_step(struct setup *setup, const char *command, const char *option)
{
    const bool progress = sp_progress_seen(setup->report);
    const double start = sp_now_ms();
    int rc;

    if (progress)
        sp_progress_line("%s ...", command);
    rc = call(setup, command, option);
    if (progress)
        sp_progress_end();
    return rc == SP_OK ? keep(setup, command, sp_now_ms() - start) : rc;
}

/* ---- which GPUs ---- */

/* Without GPUs to prove it on there is nothing to patch for. */
static int choose_gpus(struct setup *setup)
{
    int rc = sp_survey_make(&setup->survey, NULL, sp_args_value(setup->args, "gpus"));

    if (rc == SP_OK)
        rc = sp_choice_check(&setup->survey.choice, &setup->survey.recording);
    if (rc == SP_OK)
        sp_subjects_of(&setup->gpus, &setup->survey.topology);
    else if (setup->survey.recording.gpu_count == 0)
        rc = sp_err_hint(rc, "run it on the machine with the GPUs; in a container: docker run --gpus all");
    return rc;
}

/* ---- what is done already ---- */

/* What was proved of some of the GPUs says nothing of all. */
static bool verdict_is_of_all(const struct setup *setup, const struct sp_verdict_now *now)
{
    return sp_verdict_holds(now) && sp_verdict_tried(now->content, setup->gpus.uuid, setup->gpus.count);
}

static bool profile_is_of_all(const struct setup *setup, const char *site, const struct sp_verdict_now *verdict)
{
    struct sp_profile_now now;
    const bool is = sp_profile_read(&now, site, verdict->content) == SP_OK && now.fresh &&
                    sp_bench_sets_have(now.content, &setup->gpus, verdict->content);

    sp_profile_free(&now);
    return is;
}

static bool is_done_for(const struct setup *setup, const char *command, const char *site)
{
    struct sp_verdict_now verdict;
    bool done = sp_verdict_read(&verdict, site) == SP_OK && verdict_is_of_all(setup, &verdict);

    if (done && strcmp(command, "bench") == 0)
        done = profile_is_of_all(setup, site, &verdict);
    sp_verdict_free(&verdict);
    return done;
}

/* An earlier run came so far. What it proved and measured is bound to machine and install, and still so. */
static bool is_done(const struct setup *setup, const char *command)
{
    if (sp_args_has(setup->args, "gpus") || sp_args_has(setup->args, "level"))
        return false;
    if (strcmp(command, "verify") != 0 && strcmp(command, "bench") != 0)
        return false;
    return is_done_for(setup, command, setup->subject.install->site);
}

static int skip_step(struct setup *setup, const char *command)
{
    json_decref(setup->last);
    setup->last = json_pack("{s:s, s:i}", "message",
                            strcmp(command, "verify") == 0 ? "the verdict that there is still holds"
                                                           : "the profile that there is still holds",
                            "exit_code", 0);
    return keep(setup, command, 0);
}

/* ---- undoing ---- */

/* Patched by setup and not yet enabled, by this run or by one that was interrupted? Then revert is what undoes it. */
static bool is_to_undo(const struct setup *setup)
{
    return faccessat(setup->subject.install->site_fd, SP_SETUP_MARK, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

static bool is_of_patched(const char *command, size_t len)
{
    bool is = false;

    for (size_t i = FIRST_OF_PATCHED; i < sizeof steps / sizeof *steps && !is; i++)
        is = strlen(steps[i].command) == len && strncmp(steps[i].command, command, len) == 0;
    return is;
}

/* What a step would have next works on a patched install, or patches one. From stock the way there is setup, which
 * takes the same options. */
static int aim_at_setup(struct sp_buf *out, const char *hint)
{
    static const char self[] = "sgl-pcie ";
    int rc = sp_buf_set(out, "", 0);

    while (*hint && rc == SP_OK) {
        const char *at = strstr(hint, self), *command = at ? at + sizeof self - 1 : hint + strlen(hint);
        const size_t len = strcspn(command, " ,;");
        const bool is = is_of_patched(command, len);

        rc = sp_buf_append(out, hint, (size_t)(command - hint));
        if (rc == SP_OK)
            rc = is ? sp_buf_append(out, "setup", 5) : sp_buf_append(out, command, len);
        hint = command + len;
    }
    return rc;
}

/* The error that stopped us stays. */
static int stop(struct setup *setup, int rc)
{
    char *message = strdup(sp_err_message()), *hint = strdup(sp_err_hint_text());
    const bool undoes = is_to_undo(setup);
    const bool undone = undoes && run_step(setup, "revert", NULL) == SP_OK;
    struct sp_buf next = SP_BUF_INIT;

    if (undoes)
        sp_report_set(setup->report, "undone", json_boolean(undone));
    if (message && hint && aim_at_setup(&next, hint) == SP_OK)
        (void)sp_err_hint(sp_err(rc, "%s%s", message, undone ? "; the install is stock again" : ""), "%s",
                          undone ? next.data : hint);
    sp_buf_free(&next);
    free(message);
    free(hint);
    return rc;
}

/* ---- the command ---- */

static int take_step(struct setup *setup, const struct step *step)
{
    int rc = strcmp(step->command, "apply") == 0 ? choose_gpus(setup) : SP_OK;

    if (rc == SP_OK)
        rc = is_done(setup, step->command) ? skip_step(setup, step->command)
                                           : run_step(setup, step->command, step->option);
    return rc;
}

static int climb(struct setup *setup)
{
    int rc = SP_OK;

    for (size_t i = 0; i < sizeof steps / sizeof *steps && rc == SP_OK; i++)
        rc = take_step(setup, &steps[i]);
    if (rc == SP_OK)
        return sp_report_say(setup->report, NULL, "%s", said(setup, "message"));
    return stop(setup, rc);
}

/* Two at once would take back each other's work. Commands lock the folder above for a moment each. */
static int be_alone(int *lock, const struct sp_install *install)
{
    char path[PATH_MAX], who[SP_LOCK_WHO];
    int pid = 0, rc = SP_OK;

    if (snprintf(path, sizeof path, "%s/sglang", install->root) < (int)sizeof path)
        rc = sp_lock_try(lock, &pid, path, LOCK_EX);
    if (rc == 1)
        rc = sp_lock_hint(sp_err(SP_ECANNOT, "another setup is at work on this install: %s", sp_lock_who(who, pid)),
                          pid);
    return rc;
}

static int find_self(char out[PATH_MAX])
{
    const ssize_t len = readlink("/proc/self/exe", out, PATH_MAX - 1);

    out[len < 0 ? 0 : len] = '\0';
    return len < 0 ? sp_err_sys(SP_ECANNOT, "cannot tell where this program is") : SP_OK;
}

static int run(const struct sp_args *args, struct sp_report *report)
{
    struct setup setup = {.args = args, .report = report, .list = json_array()};
    int lock = -1, rc = check_words(args);

    if (rc == SP_OK)
        rc = find_self(setup.self);
    if (rc == SP_OK && setenv(SP_BY_SETUP, "1", 1) != 0)
        rc = sp_err_sys(SP_ECANNOT, "cannot set " SP_BY_SETUP);
    if (rc == SP_OK)
        rc = sp_subject_locate(&setup.subject, args);
    if (rc == SP_OK)
        rc = be_alone(&lock, setup.subject.install);
    if (rc == SP_OK)
        rc = climb(&setup);
    if (lock >= 0)
        close(lock);
    sp_report_set(report, "steps", setup.list);
    json_decref(setup.last);
    sp_survey_free(&setup.survey);
    sp_subject_close(&setup.subject);
    return rc;
}

const struct sp_command sp_cmd_setup = {
    .name = "setup",
    .summary = "all of it: from a released wheel to enabled, or back to stock",
    .description = description,
    .target = true,
    .options = options,
    .exits = exits,
    .examples = examples,
    .fields = fields,
    .run = run,
};
