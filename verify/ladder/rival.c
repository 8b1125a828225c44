/*
 * The control arm without any code of ours: NCCL, as it comes and without peer access, by `sgl-pcie-gpu nccl`.
 */
#include "verify/ladder/rival.h"
#include "base/err.h"
#include "base/proc.h"

#include <string.h>

/* NCCL may take its time to start on many GPUs whose driver was not loaded. */
enum { LEVEL = 2, ARMS = 2, ARM_SECONDS = 60, SPARE_SECONDS = 10 };

static const struct {
    const char *id, *expected, *remedy;
} arms[ARMS] = {
    {SP_RIVAL_DEFAULT, "right sums by NCCL as it comes",
     "stock SGLang errs here, too, for it runs NCCL: export NCCL_P2P_DISABLE=1 where it is started; sgl-pcie doctor "
     "names "
     "settings of ACS, IOMMU and driver that do it"},
    {SP_RIVAL_HOST, "right sums by NCCL without peer access",
     "NCCL errs without any peer, so this machine is to be mended first: look for Xid in the kernel's log (dmesg), and "
     "whether nvidia-smi answers"},
};

static enum sp_check_status status_of(const json_t *said)
{
    const char *name = json_string_value(json_object_get(said, "status"));

    return !name                       ? SP_CHECK_SKIP
           : strcmp(name, "PASS") == 0 ? SP_CHECK_PASS
           : strcmp(name, "FAIL") == 0 ? SP_CHECK_FAIL
                                       : SP_CHECK_SKIP;
}

/* NULL where the program did not come to it. */
static const json_t *find(const json_t *summary, const char *id)
{
    const json_t *check, *found = NULL;
    size_t i;

    json_array_foreach(json_object_get(summary, "checks"), i, check)
    {
        const char *is = json_string_value(json_object_get(check, "id"));

        found = is && strcmp(is, id) == 0 ? check : found;
    }
    return found;
}

static int add_arm(struct sp_ladder *ladder, const json_t *summary, size_t i)
{
    const json_t *said = find(summary, arms[i].id);
    const char *actual = json_string_value(json_object_get(said, "actual"));
    struct sp_check *check;
    int rc = sp_check_new(&check, &ladder->checks, LEVEL, "%s", arms[i].id);

    if (rc < 0)
        return rc;
    check->status = status_of(said);
    check->code = json_integer_value(json_object_get(said, "code")) == 8 ? SP_EHANG : SP_EDATA;
    sp_check_expect(check, "%s", arms[i].expected);
    sp_check_actual(check, "%s", actual ? actual : "NCCL could not be run");
    check->duration_ms = json_number_value(json_object_get(said, "duration_ms"));
    if (check->status == SP_CHECK_FAIL)
        sp_check_remedy(check, "%s", arms[i].remedy);
    sp_check_cut(check, ladder->seconds, ARM_SECONDS);
    if (check->cut) {
        check->status = SP_CHECK_SKIP;
        sp_check_actual(check, "NCCL did not end within the %g s that --timeout gives it", ladder->seconds);
    }
    return rc;
}

int sp_run_rival(struct sp_ladder *ladder, const struct sp_subjects *gpus, const struct sp_set *set)
{
    const double arm = ladder->seconds > 0 ? ladder->seconds : ARM_SECONDS;
    struct sp_proc_result result;
    json_t *summary = NULL;
    char limit[16];
    const char *const words[] = {"nccl", "--limit", limit, NULL};
    int rc;

    (void)snprintf(limit, sizeof limit, "%.0f", arm < 1 ? 1 : arm);
    if (ladder->progress)
        ladder->progress("NCCL, which knows none of this");
    rc = sp_gpu_run(&result, ladder, gpus, set, words, ARMS * arm + SPARE_SECONDS);
    if (rc == SP_OK)
        summary = sp_gpu_summary(&result);
    for (size_t i = 0; i < ARMS && rc == SP_OK; i++)
        rc = add_arm(ladder, summary, i);
    json_decref(summary);
    sp_proc_free(&result);
    return rc;
}
