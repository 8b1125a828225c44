#include "verify/bench/bench_run.h"
#include "base/err.h"
#include "verify/bench/bench_field.h"
#include "verify/bench/bench_sets.h"
#include "verify/ladder/gpu.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    LEVEL = 4,
    FULL_SECONDS = 60,
    QUICK_SECONDS = 11,
    LEAST_SECONDS = 1, /* of a world size */
    SPARE_SECONDS = 60,
    OWN_SECONDS = 60
};

struct work {
    const struct sp_bench_plan *plan;
    struct sp_bench *bench;
    struct sp_subjects gpus;
    struct sp_bench_set job[SP_BENCH_SETS];
    size_t job_count, at;
    double end_ms;      /* when all of them should have been measured */
    double seconds;     /* of the one at work: what is left, shared out */
    struct sp_buf line; /* of standard error, until it is whole */
};

static void uuids_of(const char *out[SP_BENCH_WORLD], const struct sp_subjects *gpus, const struct sp_set *set)
{
    for (size_t i = 0; i < set->count; i++)
        out[i] = gpus->uuid[set->at[i]];
}

/* ---- words ---- */

static void say_sizes(char *out, size_t size, const struct sp_bench_plan *plan)
{
    size_t used = 0;

    out[0] = '\0';
    for (size_t i = 0; i < plan->bytes_count && used < size; i++)
        used += (size_t)snprintf(out + used, size - used, "%s%llu", i ? "," : "", (unsigned long long)plan->bytes[i]);
}

static void say_backends(char *out, size_t size, const struct sp_bench_set *job)
{
    size_t used = 0;

    out[0] = '\0';
    for (size_t i = 0; i < SP_BENCH_BACKENDS && used < size; i++)
        if (job->backend[i])
            used += (size_t)snprintf(out + used, size - used, "%s%s", used ? "," : "", sp_backends[i]);
}

/* ---- progress ---- */

/* "[12/34 31s] world 2, bf16, 42 KiB: host-one-shot" */
static void show_line(struct work *work)
{
    const char *line = work->line.data ? work->line.data : "";
    const char *text = strstr(line, "] ");
    unsigned long done, all, left;

    if (text && sscanf(line, "[%lu/%lu %lus]", &done, &all, &left) == 3)
        work->plan->progress(text + 2, (double)left + (double)(work->job_count - work->at - 1) * work->seconds);
}

static void see(void *context, const char *text, size_t len)
{
    struct work *work = context;

    for (size_t i = 0; i < len; i++) {
        if (text[i] != '\n') {
            (void)sp_buf_append(&work->line, &text[i], 1);
            continue;
        }
        show_line(work);
        sp_buf_free(&work->line);
    }
}

/* ---- children ---- */

/* One that was killed while it wrote leaves a line that nobody can read. */
static void cut_last_line(struct sp_proc_result *result)
{
    char *end = result->timed_out || result->signal ? strrchr(result->out.data, '\n') : NULL;

    if (end)
        end[1] = '\0';
    else if (result->timed_out || result->signal)
        result->out.data[0] = '\0';
}

static int read_output(struct work *work, struct sp_proc_result *result, const struct sp_set *set, const char *who,
                       struct sp_bench_end *end)
{
    const char *uuid[SP_BENCH_WORLD];
    size_t number[SP_BENCH_WORLD];
    int rc;

    uuids_of(uuid, &work->gpus, set);
    for (size_t i = 0; i < set->count; i++)
        number[i] = work->gpus.number[set->at[i]];
    cut_last_line(result);
    rc = sp_bench_read_run(work->bench, end, result->out.data, uuid, number, set->count);
    if (rc < 0)
        return sp_err_wrap(SP_ECANNOT, "what %s said", who);
    if (!end->seen && !result->timed_out && !result->signal && result->status == 0)
        return sp_err(SP_ECANNOT, "%s ended well, but before its result did", who);
    return SP_OK;
}

static void set_remedy(struct sp_check *check, const struct work *work)
{
    const struct sp_ladder *ladder = work->plan->ladder;
    const char *target = sp_ladder_target(ladder);

    if (check->status == SP_CHECK_FAIL && check->code == SP_EDATA)
        sp_check_remedy(check, "do not enable it here, and report it: sgl-pcie report%s", target);
    else if (check->status == SP_CHECK_FAIL)
        sp_check_remedy(check, "sgl-pcie verify%s, and report it: sgl-pcie report%s", target, target);
    sp_check_cut(check, ladder->seconds, work->seconds + SPARE_SECONDS);
}

/* The words of `perf`, and room for those that are made. */
struct words {
    char world[8], budget[16], limit[16], backends[32], sizes[SP_BENCH_SIZES * 12];
    const char *list[SP_GPU_WORDS];
};

static void add_word(struct words *words, const char *option, const char *value)
{
    size_t count = 0;

    while (words->list[count])
        count++;
    words->list[count] = option;
    words->list[count + 1] = value;
}

static void make_words(struct words *out, const struct work *work, const struct sp_bench_set *job, double seconds)
{
    const double budget = work->seconds < seconds ? work->seconds : seconds;

    memset(out, 0, sizeof *out);
    (void)snprintf(out->world, sizeof out->world, "%zu", job->set.count);
    (void)snprintf(out->budget, sizeof out->budget, "%.0f", budget < LEAST_SECONDS ? LEAST_SECONDS : budget);
    (void)snprintf(out->limit, sizeof out->limit, "%.0f", seconds > 10 ? seconds - 5 : seconds);
    say_sizes(out->sizes, sizeof out->sizes, work->plan);
    say_backends(out->backends, sizeof out->backends, job);
    add_word(out, "perf", "--stream");
    add_word(out, "--budget", out->budget);
    add_word(out, "--world", out->world);
    add_word(out, "--transport", out->backends);
    add_word(out, "--limit", out->limit);
    if (work->plan->own_sizes) {
        add_word(out, "--types", "bf16");
        add_word(out, "--sizes", out->sizes);
    }
    if (work->plan->quick)
        add_word(out, "--quick", NULL);
}

static void say_unmeasured(struct sp_check *check, const struct sp_bench_end *end)
{
    if (end->unmeasured > 0 && check->status == SP_CHECK_PASS)
        sp_check_actual(check, "%zu points were left out for lack of time", end->unmeasured);
}

static int measure_ours(struct work *work, const struct sp_bench_set *job, const char *name)
{
    const double start = sp_now_ms(), own = work->plan->ladder->seconds;
    const double seconds = own > 0 ? own : work->seconds + SPARE_SECONDS;
    struct sp_bench_end end = {.unmeasured = 0};
    struct sp_proc_result result;
    struct sp_check *check;
    struct words words;
    int rc = sp_check_new(&check, &work->plan->ladder->checks, LEVEL, "bench.%s", name);

    if (rc < 0)
        return rc;
    make_words(&words, work, job, seconds);
    sp_check_expect(check, "every algorithm right, and timed");
    rc = sp_gpu_run(&result, work->plan->ladder, &work->gpus, &job->set, words.list, seconds);
    if (rc == SP_OK)
        sp_gpu_judge(check, &result, seconds);
    if (rc == SP_OK)
        rc = read_output(work, &result, &job->set, "sgl-pcie-gpu perf", &end);
    say_unmeasured(check, &end);
    set_remedy(check, work);
    check->duration_ms = sp_now_ms() - start;
    sp_proc_free(&result);
    return rc;
}

/* SGLang's own kernel is what stock uses in groups of two; where it cannot be run, stock is NCCL. */
static void judge_own(struct sp_check *check, const struct sp_proc_result *result)
{
    sp_gpu_judge(check, result, OWN_SECONDS);
    if (check->status != SP_CHECK_PASS)
        check->status = SP_CHECK_SKIP;
}

/* Why there is no figure of it stands where the figure would. */
static int tell_own(struct work *work, const struct sp_bench_set *job, const struct sp_check *check)
{
    const char *why = json_string_value(check->actual);
    int rc = SP_OK;

    for (size_t i = 0; i < work->bench->group_count && rc == SP_OK; i++) {
        struct sp_bench_group *group = &work->bench->group[i];
        const char *uuid[SP_BENCH_WORLD];
        size_t at = 0;

        uuids_of(uuid, &work->gpus, &job->set);
        if (group->world != job->set.count || strcmp(group->uuid[0], uuid[0]) || strcmp(group->uuid[1], uuid[1]))
            continue;
        rc = sp_bench_rival_of(&at, group, "v1");
        if (rc == SP_OK)
            sp_bench_copy(group->rival[at].error, sizeof group->rival[at].error, why ? why : "it did not run");
    }
    return rc;
}

static const char *why_not_own(const struct work *work)
{
    return !work->plan->python ? "no interpreter was named that could run it"
           : work->plan->quick ? "not with --quick: to load SGLang takes longer than all else"
                               : NULL;
}

static int run_own(struct work *work, const struct sp_bench_set *job, struct sp_check *check)
{
    char sizes[SP_BENCH_SIZES * 12];
    const char *const argv[] = {work->plan->python, "-m",  "sgl_pcie.stock", "--world", "2", "--types", "bf16",
                                "--sizes",          sizes, "--stream",       NULL};
    struct sp_proc_result result;
    struct sp_bench_end end = {.unmeasured = 0};
    int rc;

    say_sizes(sizes, sizeof sizes, work->plan);
    if (work->plan->progress)
        work->plan->progress("SGLang's own custom all-reduce", (work->end_ms - sp_now_ms()) / 1e3 + OWN_SECONDS / 3.0);
    rc = sp_gpu_run_program(&result, work->plan->ladder, &work->gpus, &job->set, argv, OWN_SECONDS);
    if (rc == SP_OK)
        judge_own(check, &result);
    if (rc == SP_OK && check->status == SP_CHECK_PASS)
        rc = read_output(work, &result, &job->set, "sgl_pcie.stock", &end);
    say_unmeasured(check, &end);
    sp_proc_free(&result);
    return rc;
}

static int measure_own(struct work *work, const struct sp_bench_set *job, const char *name)
{
    const char *why = why_not_own(work);
    const double start = sp_now_ms();
    struct sp_check *check;
    int rc = sp_check_new(&check, &work->plan->ladder->checks, LEVEL, "bench.v1.%s", name);

    if (rc < 0)
        return rc;
    sp_check_expect(check, "SGLang's own custom all-reduce, timed");
    check->status = SP_CHECK_SKIP;
    if (why)
        sp_check_actual(check, "%s", why);
    else
        rc = run_own(work, job, check);
    if (rc == SP_OK && check->status == SP_CHECK_SKIP)
        rc = tell_own(work, job, check);
    check->duration_ms = sp_now_ms() - start;
    work->end_ms += check->duration_ms; /* it has time of its own */
    return rc;
}

/* ---- links ---- */

static double least(double a, double b)
{
    return a <= 0 || (b > 0 && b < a) ? b : a;
}

/* An idle link slows down: what counts is the speed that it can do, and the lanes that it has. */
static void set_links(struct sp_bench_group *group, const struct sp_topology *topology)
{
    for (size_t i = 0; i < topology->gpu_count; i++) {
        const struct sp_topo_link *link = &topology->gpu[i].link;

        for (size_t k = 0; k < group->world; k++) {
            if (group->number[k] != topology->gpu[i].number || link->width <= 0 || link->gpu_width <= 0)
                continue;
            group->rates.link = least(group->rates.link, sp_link_gbs(link->possible_speed, link->width));
            group->rates.link_most = least(group->rates.link_most, sp_link_gbs(link->gpu_speed, link->gpu_width));
        }
    }
}

static bool nvlink_joins(const struct sp_bench_group *group, const struct sp_topology *topology)
{
    size_t at[SP_BENCH_WORLD] = {0};
    bool all = true;

    for (size_t k = 0; k < group->world; k++)
        for (size_t i = 0; i < topology->gpu_count; i++)
            if (topology->gpu[i].number == group->number[k])
                at[k] = i;
    for (size_t a = 0; a < group->world; a++)
        for (size_t b = a + 1; b < group->world; b++)
            all = all && sp_topology_nvlink(topology, at[a], at[b]);
    return all;
}

/* ---- the run ---- */

/* What is left, shared out; something even after others that hung: a limit of no time would be none. */
static double share_of(const struct work *work)
{
    const double share = (work->end_ms - sp_now_ms()) / 1e3 / (double)(work->job_count - work->at);

    return share > LEAST_SECONDS ? share : LEAST_SECONDS;
}

static int run_job(struct work *work, const struct sp_bench_set *job)
{
    char name[SP_CHECK_ID];
    int rc;

    work->seconds = share_of(work);
    sp_set_name(name, &work->gpus, &job->set);
    if (work->plan->progress)
        work->plan->progress("starting", (double)(work->job_count - work->at) * work->seconds);
    rc = measure_ours(work, job, name);
    if (rc == SP_OK && job->set.count == 2)
        rc = measure_own(work, job, name);
    sp_buf_free(&work->line);
    return rc;
}

int sp_bench_run(struct sp_bench *out, const struct sp_bench_plan *plan)
{
    struct work *work = calloc(1, sizeof *work);
    int rc = work ? SP_OK : sp_err(SP_ECANNOT, "out of memory");

    if (rc < 0)
        return rc;
    work->plan = plan;
    work->bench = out;
    sp_subjects_of(&work->gpus, plan->ladder->topology);
    work->job_count = sp_bench_sets(work->job, &work->gpus, plan->verdict);
    if (work->job_count == 0)
        rc = sp_err(SP_EFAIL, "the verdict proves nothing on these GPUs");
    if (plan->progress) {
        plan->ladder->seen = see;
        plan->ladder->context = work;
    }
    work->end_ms = sp_now_ms() + 1e3 * (plan->quick ? QUICK_SECONDS : FULL_SECONDS);
    for (; work->at < work->job_count && rc == SP_OK; work->at++)
        rc = run_job(work, &work->job[work->at]);
    for (size_t i = 0; i < out->group_count; i++) {
        set_links(&out->group[i], plan->ladder->topology);
        out->group[i].nvlink = nvlink_joins(&out->group[i], plan->ladder->topology);
    }
    plan->ladder->seen = NULL;
    free(work);
    return rc;
}
