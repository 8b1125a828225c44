#include "verify/bench/bench_sets.h"
#include "verify/verdict/covers.h"
#include "verify/verdict/serve.h"

#include <string.h>

struct search {
    const struct sp_subjects *gpus;
    const json_t *verdict;
};

static bool covers(const struct search *search, const struct sp_set *set, const char *backend)
{
    const char *uuid[SP_WORLD_MAX];

    for (size_t i = 0; i < set->count; i++)
        uuid[i] = search->gpus->uuid[set->at[i]];
    return !search->verdict || sp_verdict_covers(search->verdict, backend, uuid, set->count);
}

static bool index_of(size_t *out, const struct sp_subjects *gpus, const char *uuid)
{
    for (*out = 0; *out < gpus->count; (*out)++)
        if (uuid && strcmp(gpus->uuid[*out], uuid) == 0)
            return true;
    return false;
}

/* The GPUs of a result, if all of them were chosen. */
static bool set_of_result(struct sp_set *out, const struct sp_subjects *gpus, const json_t *result)
{
    const json_t *list = json_object_get(result, "gpus");
    bool chosen = json_array_size(list) <= SP_WORLD_MAX;

    memset(out, 0, sizeof *out);
    for (size_t i = 0; i < json_array_size(list) && chosen; i++)
        chosen = index_of(&out->at[out->count++], gpus, json_string_value(json_array_get(list, i)));
    return chosen;
}

/* All GPUs where that is the world; else the first on which the backend was proved. */
static bool find_set(struct sp_set *out, const struct search *search, const char *backend, size_t world)
{
    const json_t *results = json_object_get(search->verdict, "results");

    memset(out, 0, sizeof *out);
    for (; out->count < world; out->count++)
        out->at[out->count] = out->count;
    if (covers(search, out, backend))
        return true;
    for (size_t i = 0; world < search->gpus->count && i < json_array_size(results); i++)
        if (set_of_result(out, search->gpus, json_array_get(results, i)) && out->count == world &&
            covers(search, out, backend))
            return true;
    return false;
}

static bool same_set(const struct sp_set *a, const struct sp_set *b)
{
    return a->count == b->count && memcmp(a->at, b->at, a->count * sizeof *a->at) == 0;
}

static void add(struct sp_bench_set *list, size_t *count, const struct sp_set *set)
{
    size_t at = 0;

    while (at < *count && !same_set(&list[at].set, set))
        at++;
    if (at == *count && at < SP_BENCH_SETS)
        list[(*count)++] = (struct sp_bench_set){.set = *set};
}

static bool is_world(size_t world, size_t all)
{
    return world == 2 || world == 4 || world == 8 || world == all;
}

size_t sp_bench_sets(struct sp_bench_set out[SP_BENCH_SETS], const struct sp_subjects *gpus, const json_t *verdict)
{
    const struct search search = {gpus, verdict};
    struct sp_set set;
    size_t count = 0;

    for (size_t world = 2; world <= gpus->count && world <= SP_WORLD_MAX; world++)
        for (size_t i = 0; i < SP_BENCH_BACKENDS && is_world(world, gpus->count); i++)
            if (find_set(&set, &search, sp_backends[i], world))
                add(out, &count, &set);
    for (size_t at = 0; at < count; at++) /* all that passed on a set, also where another set came first for it */
        for (size_t i = 0; i < SP_BENCH_BACKENDS; i++)
            out[at].backend[i] = covers(&search, &out[at].set, sp_backends[i]);
    return count;
}

/* ---- what is measured already ---- */

static bool has_tables(const json_t *profile, const json_t *verdict, const struct sp_subjects *gpus,
                       const struct sp_set *set)
{
    json_t *uuids = json_array();
    bool has;

    for (size_t i = 0; i < set->count; i++)
        (void)json_array_append_new(uuids, json_string(gpus->uuid[set->at[i]]));
    has = !sp_serve_unmeasured(profile, verdict, uuids);
    json_decref(uuids);
    return has;
}

bool sp_bench_sets_have(const json_t *profile, const struct sp_subjects *gpus, const json_t *verdict)
{
    struct sp_bench_set list[SP_BENCH_SETS];
    const size_t count = sp_bench_sets(list, gpus, verdict);
    bool all = count > 0;

    for (size_t i = 0; i < count && all; i++)
        all = has_tables(profile, verdict, gpus, &list[i].set);
    return all;
}
