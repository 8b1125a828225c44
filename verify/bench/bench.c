#include "verify/bench/bench.h"
#include "base/err.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void free_group(struct sp_bench_group *group)
{
    for (size_t i = 0; i < group->world; i++)
        free(group->uuid[i]);
    free(group->row);
    json_decref(group->before);
    json_decref(group->tables);
}

void sp_bench_free(struct sp_bench *bench)
{
    for (size_t i = 0; i < bench->group_count; i++)
        free_group(&bench->group[i]);
    free(bench->group);
    json_decref(bench->troubles);
    json_decref(bench->steps);
    memset(bench, 0, sizeof *bench);
}

static bool same_gpus(const struct sp_bench_group *a, const struct sp_bench_group *b)
{
    bool same = a->world == b->world;

    for (size_t i = 0; i < a->world && same; i++)
        same = strcmp(a->uuid[i], b->uuid[i]) == 0;
    return same;
}

bool sp_bench_decides(const struct sp_bench *bench, size_t at)
{
    const struct sp_bench_group *group = &bench->group[at];
    bool best = true;

    for (size_t i = 0; i < bench->group_count; i++) {
        const struct sp_bench_group *other = &bench->group[i];

        if (i != at && same_gpus(other, group))
            best = best && (other->row_count < group->row_count || (other->row_count == group->row_count && i > at));
    }
    return best;
}

double sp_bench_algbw(uint64_t bytes, double us)
{
    return us > 0 ? (double)bytes / us / 1e3 : 0;
}

double sp_bench_busbw(uint64_t bytes, double us, size_t world)
{
    return sp_bench_algbw(bytes, us) * 2 * (double)(world - 1) / (double)world;
}

double sp_bench_stock_us(const struct sp_bench_row *row)
{
    return row->stock < 0 ? 0 : row->rival[row->stock].step;
}

double sp_bench_chosen_us(const struct sp_bench_row *row)
{
    return row->chosen < 0 ? 0 : row->ours[row->chosen].us.step;
}

int sp_bench_find(const struct sp_bench_row *row, const char *algorithm)
{
    for (size_t i = 0; i < row->ours_count; i++)
        if (strcmp(row->ours[i].algorithm, algorithm) == 0)
            return (int)i;
    return -1;
}

/* ---- making ---- */

static bool is_of(const struct sp_bench_group *group, const char *const *uuid, size_t world, const char *type)
{
    bool same = group->world == world && strcmp(group->type, type) == 0;

    for (size_t i = 0; i < world && same; i++)
        same = strcmp(group->uuid[i], uuid[i]) == 0;
    return same;
}

static size_t type_size(const char *type)
{
    static const struct {
        const char *name;
        size_t size;
    } types[] = {{"bf16", 2}, {"fp16", 2}, {"fp32", 4}};

    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (strcmp(types[i].name, type) == 0)
            return types[i].size;
    return 0;
}

static int add_group(struct sp_bench_group **out, struct sp_bench *bench)
{
    struct sp_bench_group *grown;

    if (bench->group_count >= SP_BENCH_GROUPS)
        return sp_err(SP_EFAIL, "more than %d groups", SP_BENCH_GROUPS);
    grown = realloc(bench->group, (bench->group_count + 1) * sizeof *grown);
    if (!grown)
        return sp_err(SP_ECANNOT, "out of memory");
    bench->group = grown;
    *out = memset(&grown[bench->group_count++], 0, sizeof *grown);
    return SP_OK;
}

int sp_bench_group_of(struct sp_bench_group **out, struct sp_bench *bench, const char *const *uuid,
                      const size_t *number, size_t world, const char *type)
{
    int rc;

    *out = NULL;
    for (size_t i = 0; i < bench->group_count && !*out; i++)
        if (is_of(&bench->group[i], uuid, world, type))
            *out = &bench->group[i];
    if (*out)
        return SP_OK;
    if (type_size(type) == 0)
        return sp_err(SP_EFAIL, "type '%s' is not known", type);
    rc = add_group(out, bench);
    if (rc == SP_OK) {
        memcpy((*out)->type, type, strlen(type));
        (*out)->type_size = type_size(type);
    }
    for (size_t i = 0; i < world && rc == SP_OK; i++) {
        (*out)->number[i] = number[i];
        (*out)->uuid[i] = strdup(uuid[i]);
        (*out)->world++;
        rc = (*out)->uuid[i] ? SP_OK : sp_err(SP_ECANNOT, "out of memory");
    }
    return rc;
}

int sp_bench_rival_of(size_t *out, struct sp_bench_group *group, const char *name)
{
    size_t at = 0;

    while (at < group->rival_count && strcmp(group->rival[at].name, name) != 0)
        at++;
    if (at == group->rival_count && strcmp(name, "nccl") != 0 && strcmp(name, "nccl-no-p2p") != 0 &&
        strcmp(name, "v1") != 0)
        return sp_err(SP_EFAIL, "rival '%s' is not known", name);
    if (at == group->rival_count) {
        memset(&group->rival[at], 0, sizeof group->rival[at]);
        (void)snprintf(group->rival[at].name, SP_BENCH_NAME, "%s", name);
        group->rival[at].stock = strcmp(name, "nccl-no-p2p") != 0;
        group->rival_count++;
    }
    *out = at;
    return SP_OK;
}

int sp_bench_row_of(struct sp_bench_row **out, struct sp_bench_group *group, uint64_t bytes)
{
    size_t at = 0;
    struct sp_bench_row *grown;

    while (at < group->row_count && group->row[at].bytes < bytes)
        at++;
    *out = at < group->row_count && group->row[at].bytes == bytes ? &group->row[at] : NULL;
    if (*out)
        return SP_OK;
    if (group->row_count >= SP_BENCH_SIZES)
        return sp_err(SP_EFAIL, "more than %d sizes", SP_BENCH_SIZES);
    grown = realloc(group->row, (group->row_count + 1) * sizeof *grown);
    if (!grown)
        return sp_err(SP_ECANNOT, "out of memory");
    group->row = grown;
    memmove(&grown[at + 1], &grown[at], (group->row_count++ - at) * sizeof *grown);
    *out = memset(&grown[at], 0, sizeof *grown);
    **out = (struct sp_bench_row){
        .bytes = bytes, .stock = SP_BENCH_STOCK, .fastest = SP_BENCH_STOCK, .chosen = SP_BENCH_STOCK};
    return SP_OK;
}

/* ---- stock ---- */

static int rival_at(const struct sp_bench_group *group, const struct sp_bench_row *row, const char *name)
{
    for (size_t i = 0; i < group->rival_count; i++)
        if (strcmp(group->rival[i].name, name) == 0 && row->rival[i].step > 0)
            return (int)i;
    return SP_BENCH_STOCK;
}

void sp_bench_find_stock(struct sp_bench_group *group)
{
    for (size_t i = 0; i < group->row_count; i++) {
        struct sp_bench_row *row = &group->row[i];
        const int own = rival_at(group, row, "v1");

        row->stock = own >= 0 ? own : rival_at(group, row, "nccl");
    }
}
