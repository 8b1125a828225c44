/*
 * Level 2: what passes between each two GPUs, and through host memory, by `sgl-pcie-gpu transfers`.
 *
 * Where the control fails, a GPU errs without any peer, or NCCL does, and what else failed with it proves nothing about
 * peers: that is inconclusive, and so is the control.
 */
#include "base/err.h"
#include "verify/ladder/rates.h"
#include "verify/ladder/rival.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LEVEL = 2, SECONDS = 200 };

struct remedy {
    const char *kind; /* as an id begins */
    const char *text;
};

static const struct remedy remedies[] = {
    {"control", "this GPU errs without any peer: look for Xid in the kernel's log (dmesg) and at nvidia-smi -q -d ECC"},
    {"host",
     "host memory is not kept coherent for this GPU: look for Xid in the kernel's log, and at the IOMMU's settings"},
    {"copy", "the copy engine's way to this peer is broken: sgl-pcie doctor names settings of ACS, IOMMU and driver "
             "that do it"},
    {"store",
     "stores to this peer are not to be trusted: sgl-pcie doctor names settings of ACS, IOMMU and driver that do it; "
     "the host backend needs no peer"},
    {"load",
     "loads from this peer are not to be trusted: sgl-pcie doctor names settings of ACS, IOMMU and driver that do it; "
     "the push and host backends do not load from peers"},
    {"latency", "flags to this peer are lost: sgl-pcie doctor names settings of ACS, IOMMU and driver that do it"},
    {"collapse",
     "stores of several GPUs at once hinder each other by more than sharing a link, as posted writes do behind some "
     "switches: pull or host may be faster here, bench measures it"},
};

static void set_remedy(struct sp_check *check)
{
    if (check->status == SP_CHECK_WARN && !check->remedy && strstr(check->id, "-rate."))
        sp_check_remedy(check, "half of another's rate or less: compare generation and width of the links (level 1)");
    for (size_t i = 0; i < sizeof remedies / sizeof *remedies && !check->remedy; i++)
        if (check->status != SP_CHECK_PASS && check->status != SP_CHECK_SKIP &&
            strncmp(check->id, remedies[i].kind, strlen(remedies[i].kind)) == 0)
            sp_check_remedy(check, "%s", remedies[i].text);
}

/* ---- a line of the program ---- */

static enum sp_check_status status_of(const char *name)
{
    enum sp_check_status status = SP_CHECK_INCONCLUSIVE;

    for (int i = SP_CHECK_PASS; name && i <= SP_CHECK_INCONCLUSIVE; i++)
        if (strcmp(name, sp_check_status_name((enum sp_check_status)i)) == 0)
            status = (enum sp_check_status)i;
    return status;
}

/* "store-flag.0-1" counts the GPUs that the program sees; ours has NVML's numbers. False: not one of its ids. */
static bool renumber(char out[SP_CHECK_ID], const char *id, const struct sp_subjects *gpus)
{
    char kind[SP_CHECK_ID / 2];
    size_t a, b;
    const int parts = sscanf(id, "%31[a-z-].%zu-%zu", kind, &a, &b);

    if (parts < 2 || a >= gpus->count || (parts == 3 && b >= gpus->count))
        return false;
    if (parts == 3)
        (void)snprintf(out, SP_CHECK_ID, "%s.%zu-%zu", kind, gpus->number[a], gpus->number[b]);
    else
        (void)snprintf(out, SP_CHECK_ID, "%s.%zu", kind, gpus->number[a]);
    return true;
}

static const char *unit_of(const json_t *line)
{
    const char *unit = json_string_value(json_object_get(line, "unit"));

    return !unit ? NULL : strcmp(unit, "us") == 0 ? "us" : "GB/s";
}

/* A new reference, or NULL: --json passes on what its schema has, a text or a number, whatever the program says. */
static json_t *plain(json_t *value)
{
    return json_is_string(value) || json_is_number(value) ? json_incref(value) : NULL;
}

static int add_check(struct sp_ladder *ladder, const json_t *line, const struct sp_subjects *gpus)
{
    const char *id = json_string_value(json_object_get(line, "id"));
    const json_int_t code = json_integer_value(json_object_get(line, "code"));
    char name[SP_CHECK_ID];
    struct sp_check *check;
    int rc;

    if (!id || !renumber(name, id, gpus))
        return SP_OK;
    rc = sp_check_new(&check, &ladder->checks, LEVEL, "%s", name);
    if (rc < 0)
        return rc;
    check->status = status_of(json_string_value(json_object_get(line, "status")));
    check->code = code == 7 ? SP_EDATA : code == 8 ? SP_EHANG : SP_EFAIL;
    check->actual = plain(json_object_get(line, "actual"));
    check->expected = plain(json_object_get(line, "expected"));
    check->unit = unit_of(line);
    sp_rate_judge(ladder, check);
    set_remedy(check);
    return SP_OK;
}

static int add_checks(struct sp_ladder *ladder, const char *text, const struct sp_subjects *gpus)
{
    int rc = SP_OK;

    for (const char *at = text; *at && rc == SP_OK; at += strcspn(at, "\n"), at += *at == '\n') {
        json_t *line = json_loadb(at, strcspn(at, "\n"), 0, NULL);

        rc = add_check(ladder, line, gpus);
        json_decref(line);
    }
    return rc;
}

/* ---- control ---- */

static void doubt_failures(struct sp_checks *checks)
{
    for (size_t i = 0; i < checks->count; i++)
        if (checks->item[i]->level == LEVEL && checks->item[i]->status == SP_CHECK_FAIL)
            checks->item[i]->status = SP_CHECK_INCONCLUSIVE;
}

/* ---- the level ---- */

/* No check came: the program itself is what failed. */
static int add_program(struct sp_ladder *ladder, const struct sp_proc_result *result, double seconds)
{
    struct sp_check *check;
    int rc = sp_check_new(&check, &ladder->checks, LEVEL, "transfers.program");

    if (rc < 0)
        return rc;
    sp_check_expect(check, "runs to its end");
    sp_gpu_judge(check, result, seconds);
    if (check->status == SP_CHECK_PASS)
        check->status = SP_CHECK_INCONCLUSIVE;
    sp_check_remedy(check, "look for Xid in the kernel's log (dmesg), and whether nvidia-smi answers");
    sp_check_cut(check, ladder->seconds, SECONDS);
    return SP_OK;
}

static bool any_failed(const struct sp_checks *checks, size_t from)
{
    bool any = false;

    for (size_t i = from; i < checks->count; i++)
        any = any || checks->item[i]->status == SP_CHECK_FAIL || checks->item[i]->status == SP_CHECK_INCONCLUSIVE;
    return any;
}

/* It ended badly, and no line says why: what it did say is not to be trusted either. */
static int add_end(struct sp_ladder *ladder, const struct sp_proc_result *result, double seconds)
{
    struct sp_check *check;
    int rc = sp_check_new(&check, &ladder->checks, LEVEL, SP_TRANSFERS_END);

    if (rc < 0)
        return rc;
    sp_check_expect(check, "ends as its checks say");
    sp_gpu_judge(check, result, seconds);
    sp_check_remedy(check,
                    "again; if it stays so, look for Xid in the kernel's log (dmesg), and report it: sgl-pcie report%s",
                    sp_ladder_target(ladder));
    return SP_OK;
}

/* One program does them all, and times none by itself: each has an equal share. */
static void share_time(struct sp_ladder *ladder, size_t from, double ms)
{
    for (size_t i = from; i < ladder->checks.count; i++)
        ladder->checks.item[i]->duration_ms = ms / (double)(ladder->checks.count - from);
}

int sp_run_transfers(struct sp_ladder *ladder)
{
    static const char *const words[] = {"transfers", NULL};
    const double start = sp_now_ms(), seconds = ladder->seconds > 0 ? ladder->seconds : SECONDS;
    const size_t before = ladder->checks.count;
    struct sp_subjects gpus;
    struct sp_set all = {.count = 0};
    struct sp_proc_result result;
    int rc;

    sp_subjects_of(&gpus, ladder->topology);
    for (; all.count < gpus.count && all.count < SP_WORLD_MAX; all.count++)
        all.at[all.count] = all.count;
    if (ladder->progress)
        ladder->progress("transfers between all pairs");
    rc = sp_gpu_run(&result, ladder, &gpus, &all, words, seconds);
    if (rc == SP_OK)
        rc = add_checks(ladder, result.out.data, &gpus);
    if (rc == SP_OK && (ladder->checks.count == before || result.timed_out || result.signal))
        rc = add_program(ladder, &result, seconds);
    else if (rc == SP_OK && result.status != 0 && !any_failed(&ladder->checks, before))
        rc = add_end(ladder, &result, seconds);
    share_time(ladder, before, sp_now_ms() - start);
    if (rc == SP_OK)
        rc = sp_run_rival(ladder, &gpus, &all);
    if (rc == SP_OK && sp_verdict_doubts(&ladder->checks))
        doubt_failures(&ladder->checks);
    sp_proc_free(&result);
    return rc;
}
