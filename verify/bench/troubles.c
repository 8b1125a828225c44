/*
 * What is slower than the links allow, or wrong and not ours, in words. Rates are those that were measured with nothing
 * else at work; a sentence names the figures, what they should be, and what such figures have been the sign of.
 */
#include "base/err.h"
#include "verify/bench/bench.h"
#include "verify/verdict/algorithm.h"
#include "verify/verdict/profile.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const double narrow = 0.75;   /* of what a link could carry */
static const double slow_host = 0.5; /* of the link, where 0.8 to 0.9 is usual */
static const double slow_write = 0.4;
static const double far_us = 3.5;   /* one way through host memory; 1 to 2.5 is usual */
static const double slow_row = 2.5; /* times what the links allow; what a protocol adds is within 2 */

static int say(struct sp_bench *bench, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

static int say(struct sp_bench *bench, const char *fmt, ...)
{
    char *text = NULL;
    va_list args;
    int len;

    va_start(args, fmt);
    len = vasprintf(&text, fmt, args);
    va_end(args);
    if (len >= 0)
        (void)json_array_append_new(bench->troubles, json_string(text));
    free(len < 0 ? NULL : text);
    return len < 0 ? sp_err(SP_ECANNOT, "out of memory") : SP_OK;
}

/* ---- links ---- */

/* No trouble of the links, but of expectations. */
static int look_at_nvlink(struct sp_bench *bench, const struct sp_bench_group *group)
{
    if (!group->nvlink)
        return SP_OK;
    return say(bench,
               "%zu GPUs: NVLink joins them all: SGLang leaves such a group alone, whatever the profile says, unless "
               "SGLANG_PCIE_AR_BACKEND names peer or host",
               group->world);
}

static int look_at_link(struct sp_bench *bench, const struct sp_bench_group *group)
{
    const struct sp_bench_rates *is = &group->rates;

    if (is->link <= 0 || is->link >= narrow * is->link_most)
        return SP_OK;
    return say(
        bench,
        "%zu GPUs: the narrowest link carries %.0f of %.0f GB/s: fewer lanes or a slower generation than the GPU "
        "has (sgl-pcie verify --level 1 names it), and every size above the smallest pays for that",
        group->world, is->link, is->link_most);
}

static int look_at_host(struct sp_bench *bench, const struct sp_bench_group *group)
{
    const struct sp_bench_rates *is = &group->rates;
    const double least = is->host_read < is->host_write ? is->host_read : is->host_write;
    int rc = SP_OK;

    if (is->host_us > far_us)
        rc = say(bench,
                 "%zu GPUs: a word takes %.1f us one way through host memory, 1 to 2.5 us is usual: memory on another "
                 "NUMA node, or an IOMMU that translates",
                 group->world, is->host_us);
    if (rc == SP_OK && is->link > 0 && least > 0 && least < slow_host * is->link)
        rc =
            say(bench,
                "%zu GPUs: host memory is read at %.0f and written at %.0f GB/s per GPU where links carry %.0f: memory "
                "on another NUMA node, or GPUs that share a link to it",
                group->world, is->host_read, is->host_write, is->link);
    return rc;
}

static int look_at_peers(struct sp_bench *bench, const struct sp_bench_group *group)
{
    const struct sp_bench_rates *is = &group->rates;

    if (is->link <= 0 || is->peer_write <= 0 || is->peer_write >= slow_write * is->link)
        return SP_OK;
    return say(bench,
               "%zu GPUs: with all at once a GPU stores %.1f GB/s into its peer where its link carries %.0f (loads: "
               "%.1f): posted writes collapse, as behind some switches with two ways up; pull or host serve instead",
               group->world, is->peer_write, is->link, is->peer_read);
}

/* ---- stock ---- */

/* It is timed only where it is right, so that NCCL would pass for stock without a word. */
static int look_at_rival(struct sp_bench *bench, const struct sp_bench_group *group, size_t rival)
{
    const struct sp_bench_row *first = NULL;
    size_t count = 0;
    char size[32];

    for (size_t i = group->row_count; i-- > 0;)
        if (group->row[i].rival_wrong[rival] > 0) {
            first = &group->row[i];
            count++;
        }
    if (!first)
        return SP_OK;
    return say(
        bench,
        "%zu GPUs: %s gives wrong elements at %zu of %zu sizes, %llu at %s: SGLang uses it by itself, and here gets "
        "wrong sums; with --disable-custom-all-reduce it leaves everything to NCCL",
        group->world, group->rival[rival].name, count, group->row_count, (unsigned long long)first->rival_wrong[rival],
        sp_size_text(size, sizeof size, first->bytes));
}

/* ---- what remains ---- */

static double best_of(const struct sp_bench_row *row, const char *transport, double *model)
{
    double best = 0;

    for (size_t i = 0; i < row->ours_count; i++) {
        const struct sp_bench_ours *ours = &row->ours[i];

        if (strcmp(sp_algorithm_transport(ours->algorithm), transport) != 0 || ours->us.step <= 0 || ours->model <= 0)
            continue;
        if (best <= 0 || ours->us.step < best) {
            best = ours->us.step;
            *model = ours->model;
        }
    }
    return best;
}

/* Links are as they should be, and still it is slow. At the largest size, where little but the links counts. */
static int look_at_rows(struct sp_bench *bench, const struct sp_bench_group *group, const char *transport)
{
    const struct sp_bench_row *row = group->row_count > 0 ? &group->row[group->row_count - 1] : NULL;
    double model = 0, best = row ? best_of(row, transport, &model) : 0;
    char size[32];

    if (best <= 0 || best < slow_row * model)
        return SP_OK;
    return say(bench, "%zu GPUs: %s takes %.0f us at %s, the links allow %.0f: something else uses them, or throttles",
               group->world, transport, best, sp_size_text(size, sizeof size, row->bytes), model);
}

int sp_bench_look(struct sp_bench *bench)
{
    int rc;

    json_decref(bench->troubles);
    bench->troubles = json_array();
    rc = bench->troubles ? SP_OK : sp_err(SP_ECANNOT, "out of memory");
    for (size_t i = 0; i < bench->group_count && rc == SP_OK; i++) {
        const struct sp_bench_group *group = &bench->group[i];
        size_t before;

        if (!sp_bench_decides(bench, i))
            continue;
        rc = look_at_nvlink(bench, group);
        for (size_t k = 0; k < group->rival_count && rc == SP_OK; k++)
            rc = look_at_rival(bench, group, k);
        before = json_array_size(bench->troubles);
        if (rc == SP_OK)
            rc = look_at_link(bench, group);
        if (rc == SP_OK)
            rc = look_at_host(bench, group);
        if (rc == SP_OK)
            rc = look_at_peers(bench, group);
        if (rc == SP_OK && json_array_size(bench->troubles) == before)
            rc = look_at_rows(bench, group, "host");
        if (rc == SP_OK && json_array_size(bench->troubles) == before)
            rc = look_at_rows(bench, group, "push");
    }
    return rc;
}
