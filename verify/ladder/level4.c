/*
 * Level 4: for long, and against what SGLang would use. For each backend that passed, on the most GPUs that it passed
 * on: small calls under random delays for the minutes asked for, shared out, then the time against NCCL, which SGLang
 * uses wherever this is needed; bench has SGLang's own kernel, too. Being slower is a warning: bench decides size by
 * size.
 */
#include "base/err.h"
#include "base/json.h"
#include "verify/ladder/gpu.h"
#include "verify/verdict/sets.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LEVEL = 4, PERF_SECONDS = 120, SPARE_SECONDS = 120 };

struct job {
    struct sp_ladder *ladder;
    const struct sp_subjects *gpus;
    const struct sp_set *set;
    const char *backend, *name; /* of the set */
    double minutes;
};

static int new_check(struct sp_check **out, const struct job *job, const char *kind)
{
    char progress[SP_CHECK_ID * 2];

    (void)snprintf(progress, sizeof progress, "%s of %s on GPUs %s", kind, job->backend, job->name);
    if (job->ladder->progress)
        job->ladder->progress(progress);
    return sp_check_new(out, &job->ladder->checks, LEVEL, "%s.%s.%s", kind, job->backend, job->name);
}

/* ---- soak ---- */

/* Of a child whose work takes no more than `usual`, unless --timeout says otherwise. */
static double limit_of(const struct job *job, double usual)
{
    return job->ladder->seconds > 0 ? job->ladder->seconds : usual;
}

static int soak(const struct job *job)
{
    const double start = sp_now_ms(), asked = 60 * job->minutes < 1 ? 1 : 60 * job->minutes;
    const double seconds = asked + limit_of(job, SPARE_SECONDS);
    char world[8], time[32], limit[16];
    const char *const words[] = {"smoke",   "--transport", job->backend, "--world",     world, "--mode",
                                 "process", "--types",     "bf16",       "--max-bytes", "64K", "--soak-for",
                                 time,      "--limit",     limit,        NULL};
    struct sp_proc_result result;
    struct sp_check *check;
    int rc = new_check(&check, job, "soak");

    if (rc < 0)
        return rc;
    (void)snprintf(world, sizeof world, "%zu", job->set->count);
    (void)snprintf(time, sizeof time, "%.1f", asked);
    (void)snprintf(limit, sizeof limit, "%.1f", seconds - 0.05 * (seconds - asked));
    rc = sp_gpu_run(&result, job->ladder, job->gpus, job->set, words, seconds);
    if (rc == SP_OK)
        sp_gpu_judge(check, &result, seconds);
    sp_check_expect(check, "no wrong element in %s s", time);
    if (check->status == SP_CHECK_FAIL)
        sp_check_remedy(check, "sgl-pcie report%s # and leave this backend off", sp_ladder_target(job->ladder));
    sp_check_cut(check, job->ladder->seconds, SPARE_SECONDS);
    check->duration_ms = sp_now_ms() - start;
    sp_proc_free(&result);
    return rc;
}

/* ---- time ---- */

static double microseconds(const json_t *row)
{
    return json_number_value(json_object_get(json_object_get(row, "graph"), "us"));
}

/* The best of NCCL's time over ours, NCCL as SGLang would use it here; 0 where nothing was compared. */
static double best_ratio(const json_t *summary)
{
    const json_t *rows = json_object_get(summary, "rows"), *row, *other;
    double best = 0;
    size_t i, k;

    json_array_foreach(rows, i, row) json_array_foreach(rows, k, other)
    {
        const double ours = microseconds(row);
        const double nccl = microseconds(other);

        if (sp_json_is(row, "by", "ours") && sp_json_is(other, "name", "nccl") && ours > 0 && nccl / ours > best &&
            json_equal(json_object_get(row, "bytes"), json_object_get(other, "bytes")))
            best = nccl / ours;
    }
    return best;
}

static void judge_time(struct sp_check *check, const struct sp_ladder *ladder, const struct sp_proc_result *result)
{
    json_t *summary = sp_gpu_summary(result);
    const double best = best_ratio(summary);

    if (check->status == SP_CHECK_PASS && best > 0) {
        sp_check_numbers(check, 1, best, "x NCCL");
        check->status = best > 1 ? SP_CHECK_PASS : SP_CHECK_WARN;
    } else if (check->status != SP_CHECK_FAIL) {
        check->status = SP_CHECK_SKIP; /* no NCCL, most likely: it is no part of this */
    }
    if (check->status == SP_CHECK_WARN)
        sp_check_remedy(check, "sgl-pcie bench%s", sp_ladder_target(ladder));
    json_decref(summary);
}

static int compare(const struct job *job)
{
    const double start = sp_now_ms(), seconds = limit_of(job, PERF_SECONDS);
    const char *transport = strcmp(job->backend, "host") == 0 ? "host" : job->backend;
    char world[8];
    const char *const words[] = {"perf",    "--transport", transport,  "--world", world,
                                 "--sizes", "8K,64K,512K", "--budget", "20",      NULL};
    struct sp_proc_result result;
    struct sp_check *check;
    int rc = new_check(&check, job, "time");

    if (rc < 0)
        return rc;
    (void)snprintf(world, sizeof world, "%zu", job->set->count);
    rc = sp_gpu_run(&result, job->ladder, job->gpus, job->set, words, seconds);
    if (rc == SP_OK) {
        sp_gpu_judge(check, &result, seconds);
        judge_time(check, job->ladder, &result);
        sp_check_cut(check, job->ladder->seconds, PERF_SECONDS);
    }
    check->duration_ms = sp_now_ms() - start;
    sp_proc_free(&result);
    return rc;
}

/* ---- the level ---- */

int sp_run_soak(struct sp_ladder *ladder)
{
    struct sp_subjects gpus;
    struct sp_set set;
    char name[SP_CHECK_ID];
    struct job job = {.ladder = ladder, .gpus = &gpus, .set = &set, .name = name};
    size_t passed = 0;
    int rc = SP_OK;

    sp_subjects_of(&gpus, ladder->topology);
    for (size_t i = 0; sp_backends[i]; i++)
        passed += sp_set_largest(&set, &ladder->checks, &gpus, sp_backends[i]) > 0;
    for (size_t i = 0; sp_backends[i] && rc == SP_OK; i++) {
        if (sp_set_largest(&set, &ladder->checks, &gpus, sp_backends[i]) == 0)
            continue;
        sp_set_name(name, &gpus, &set);
        job.backend = sp_backends[i];
        job.minutes = (ladder->minutes > 0 ? ladder->minutes : 1) / (double)passed;
        rc = soak(&job);
        if (rc == SP_OK)
            rc = compare(&job);
    }
    return rc;
}
