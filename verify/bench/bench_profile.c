#include "base/err.h"
#include "verify/bench/bench.h"
#include "verify/machine/uuids.h"
#include "verify/verdict/profile.h"

int sp_bench_profile(json_t **out, const struct sp_bench *bench, const json_t *bound)
{
    json_t *tables = json_array();

    for (size_t i = 0; i < bench->group_count; i++)
        if (sp_bench_decides(bench, i))
            (void)json_array_extend(tables, bench->group[i].tables);
    *out = json_pack("{s:s, s:s, s:s, s:O, s:o}", "schema", SP_PROFILE_SCHEMA, "tool", SP_VERSION, "created",
                     bench->created, "bound", bound, "tables", tables);
    return *out ? SP_OK : sp_err(SP_ECANNOT, "out of memory");
}

/* ---- what served so far ---- */

static bool is_of(const json_t *table, const struct sp_bench_group *group)
{
    const json_t *gpus = json_object_get(table, "gpus");
    bool same = json_array_size(gpus) == group->world;

    for (size_t i = 0; i < group->world && same; i++)
        same = sp_uuids_have(gpus, group->uuid[i]);
    return same;
}

void sp_bench_remember(struct sp_bench *bench, const json_t *profile, const json_t *bound)
{
    const json_t *tables = json_object_get(profile, "tables");

    if (!json_equal(json_object_get(profile, "bound"), bound))
        return;
    for (size_t i = 0; i < bench->group_count; i++) {
        json_decref(bench->group[i].before);
        bench->group[i].before = json_array();
        for (size_t k = 0; k < json_array_size(tables); k++)
            if (is_of(json_array_get(tables, k), &bench->group[i]))
                (void)json_array_append(bench->group[i].before, json_array_get(tables, k));
    }
}
