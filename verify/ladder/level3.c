/*
 * Level 3: the all-reduce itself, by `sgl-pcie-gpu smoke` on the libpar.so that SGLang will load: every algorithm of a
 * backend against a reference, in CUDA graphs and out of them. A process of its own for each backend and world size, so
 * that one that hangs takes no other along. Then, on the largest set of each that passed, a rank is killed and one does
 * not come: the others must notice in time.
 */
#include "base/err.h"
#include "verify/ladder/gpu.h"
#include "verify/verdict/sets.h"

#include <stdio.h>
#include <string.h>

enum { LEVEL = 3, SECONDS = 90 };

/* ---- one backend, one world size ---- */

static int run_smoke(struct sp_check *check, const struct sp_ladder *ladder, const struct sp_subjects *gpus,
                     const struct sp_set *set, const char *backend)
{
    const double seconds = ladder->seconds > 0 ? ladder->seconds : SECONDS;
    struct sp_proc_result result;
    char world[8], limit[16];
    const char *const words[] = {"smoke",   "--transport", backend, "--world", world, "--mode",
                                 "process", "--max-bytes", "16M",   "--limit", limit, NULL};
    int rc;

    (void)snprintf(world, sizeof world, "%zu", set->count);
    (void)snprintf(limit, sizeof limit, "%.0f", seconds > 10 ? seconds - 5 : seconds);
    rc = sp_gpu_run(&result, ladder, gpus, set, words, seconds);
    if (rc == SP_OK)
        sp_gpu_judge(check, &result, seconds);
    sp_proc_free(&result);
    return rc;
}

/* What was refused is skipped; what failed below is not tried, and fails by that. */
static void say_untried(struct sp_check *check, const char *backend, size_t world, bool doubts)
{
    check->status = SP_CHECK_SKIP;
    if (doubts)
        sp_check_actual(check, "not tried: this machine errs without any peer");
    else
        sp_check_actual(check, "not tried: no %zu GPUs between which all transfers of %s passed", world, backend);
}

static void set_remedy(struct sp_check *check, const struct sp_ladder *ladder)
{
    if (check->status == SP_CHECK_FAIL)
        sp_check_remedy(check, "sgl-pcie report%s # and leave this backend off", sp_ladder_target(ladder));
    else if (check->status == SP_CHECK_INCONCLUSIVE)
        sp_check_remedy(
            check, "look for memory on these GPUs (nvidia-smi) and for Xid in the kernel's log (dmesg), then again");
}

static int run_world(struct sp_ladder *ladder, const struct sp_subjects *gpus, const char *backend, size_t world)
{
    const double start = sp_now_ms();
    char name[SP_CHECK_ID], progress[SP_CHECK_ID * 2];
    struct sp_check *check;
    struct sp_set set;
    const bool doubts = sp_verdict_doubts(&ladder->checks); /* not worth a try */
    const bool found = sp_set_find(&set, &ladder->checks, gpus, backend, world) && !doubts;
    int rc;

    sp_set_name(name, gpus, &set);
    rc = sp_check_new(&check, &ladder->checks, LEVEL, "kernels.%s.%s", backend, name);
    if (rc < 0)
        return rc;
    (void)snprintf(progress, sizeof progress, "kernels of %s on GPUs %s", backend, name);
    if (ladder->progress && found)
        ladder->progress(progress);
    if (found)
        rc = run_smoke(check, ladder, gpus, &set, backend);
    else
        say_untried(check, backend, world, doubts);
    sp_check_expect(check, "every element as the reference has it");
    set_remedy(check, ladder);
    sp_check_cut(check, ladder->seconds, SECONDS);
    check->duration_ms = sp_now_ms() - start;
    return rc;
}

/* ---- a rank that dies ---- */

/* One algorithm is enough: all wait in the same way. */
static const char *algorithm_of(const char *backend)
{
    return strcmp(backend, "pull") == 0   ? "pull-two-shot"
           : strcmp(backend, "push") == 0 ? "push-one-shot"
                                          : "host-one-shot";
}

static int run_death(struct sp_ladder *ladder, const struct sp_subjects *gpus, const char *backend)
{
    const double start = sp_now_ms(), seconds = ladder->seconds > 0 ? ladder->seconds : SECONDS;
    const char *const words[] = {"smoke", "--faults", "--transport", backend, "--algorithms", algorithm_of(backend),
                                 NULL};
    struct sp_proc_result result;
    char name[SP_CHECK_ID];
    struct sp_check *check;
    struct sp_set set;
    int rc;

    if (sp_set_largest(&set, &ladder->checks, gpus, backend) == 0)
        return SP_OK;
    sp_set_name(name, gpus, &set);
    rc = sp_check_new(&check, &ladder->checks, LEVEL, "death.%s.%s", backend, name);
    if (rc < 0)
        return rc;
    if (ladder->progress)
        ladder->progress("a rank that dies");
    sp_check_expect(check, "the others notice within a second, and nothing is left");
    rc = sp_gpu_run(&result, ladder, gpus, &set, words, seconds);
    if (rc == SP_OK)
        sp_gpu_judge(check, &result, seconds);
    set_remedy(check, ladder);
    sp_check_cut(check, ladder->seconds, SECONDS);
    check->duration_ms = sp_now_ms() - start;
    sp_proc_free(&result);
    return rc;
}

/* ---- the level ---- */

static int run_backend(struct sp_ladder *ladder, const struct sp_subjects *gpus, const char *backend)
{
    int rc = SP_OK;

    for (size_t world = 2; world <= gpus->count && world <= SP_WORLD_MAX && rc == SP_OK; world++)
        rc = run_world(ladder, gpus, backend, world);
    return rc == SP_OK ? run_death(ladder, gpus, backend) : rc;
}

int sp_run_kernels(struct sp_ladder *ladder)
{
    struct sp_subjects gpus;
    int rc = SP_OK;

    sp_subjects_of(&gpus, ladder->topology);
    for (size_t i = 0; sp_backends[i] && rc == SP_OK; i++)
        rc = run_backend(ladder, &gpus, sp_backends[i]);
    return rc;
}
