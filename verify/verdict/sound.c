#include "verify/verdict/sound.h"
#include "base/err.h"
#include "base/json.h"
#include "base/shape.h"
#include "verify/machine/uuids.h"
#include "verify/verdict/algorithm.h"
#include "verify/verdict/profile.h"
#include "verify/verdict/verdict.h"

#include <stdbool.h>
#include <string.h>

enum { GROWING = SP_IS_OBJECT | SP_MAY_GROW, ENTRIES_MAX = 60, GRID_MAX = 1024, WARP = 32 };

/* ---- types and words ---- */

#define BACKENDS "push pull host upstream"

static const struct sp_shape result[] = {
    {"backend", SP_IS_TEXT, BACKENDS, NULL},           {"world", SP_IS_INTEGER, NULL, NULL},
    {"gpus", SP_IS_LIST, NULL, SP_EACH(SP_IS_TEXT)},   {"result", SP_IS_TEXT, "PASS FAIL INCONCLUSIVE", NULL},
    {"library", SP_IS_TEXT | SP_MAY_MISS, NULL, NULL}, {.key = NULL},
};

static const struct sp_shape pairs[] = {
    {"backend", SP_IS_TEXT, BACKENDS, NULL},
    {"gpus", SP_IS_LIST, NULL, SP_EACH(SP_IS_TEXT)},
    {"failed", SP_IS_LIST, NULL, SP_EACH(SP_IS_LIST, .of = SP_EACH(SP_IS_TEXT))},
    {.key = NULL},
};

static const struct sp_shape of_machine[] = {
    {"driver", SP_IS_TEXT, NULL, NULL},
    {"gpu 0", SP_IS_TEXT, NULL, NULL},
    {"libpar.so", SP_IS_TEXT, NULL, NULL},
    {.key = NULL},
};

static const struct sp_shape of_verdict[] = {
    {"level", SP_IS_INTEGER, NULL, NULL},
    {"bound", GROWING, NULL, of_machine},
    {"results", SP_IS_LIST, NULL, SP_EACH(GROWING, .of = result)},
    {"pairs", SP_IS_LIST, NULL, SP_EACH(GROWING, .of = pairs)},
    {.key = NULL},
};

static const struct sp_shape entry[] = {
    {"max_bytes", SP_IS_INTEGER, NULL, NULL},
    {"algorithm", SP_IS_TEXT, NULL, NULL},
    {"lanes", SP_IS_INTEGER | SP_MAY_MISS, NULL, NULL},
    {"threads", SP_IS_INTEGER | SP_MAY_MISS, NULL, NULL},
    {.key = NULL},
};

static const struct sp_shape table[] = {
    {"world", SP_IS_INTEGER, NULL, NULL},
    {"gpus", SP_IS_LIST, NULL, SP_EACH(SP_IS_TEXT)},
    {"entries", SP_IS_LIST, NULL, SP_EACH(GROWING, .of = entry)},
    {.key = NULL},
};

static const struct sp_shape of_library[] = {
    {"libpar.so", SP_IS_TEXT, NULL, NULL},
    {.key = NULL},
};

static const struct sp_shape of_profile[] = {
    {"bound", GROWING, NULL, of_library},
    {"tables", SP_IS_LIST, NULL, SP_EACH(GROWING, .of = table)},
    {.key = NULL},
};

static const struct sp_shape verdict = {.is = GROWING, .of = of_verdict}, profile = {.is = GROWING, .of = of_profile};

/* ---- what they mean together ---- */

/* What may not be read is no difference; a library that nobody read would hold for every other. */
static int check_bound(const json_t *content)
{
    const char *key;
    json_t *value;
    int rc = SP_OK;

    if (sp_json_is(json_object_get(content, "bound"), "libpar.so", "unreadable"))
        rc = sp_err(SP_EFAIL, "field 'bound.libpar.so' is of no library");

    json_object_foreach(json_object_get(content, "bound"), key, value)
    {
        if (rc == SP_OK && !json_is_string(value))
            rc = sp_err(SP_EFAIL, "field 'bound.%s' is not a string", key);
    }
    return rc;
}

static bool all_different(const json_t *gpus)
{
    bool good = true;

    for (size_t i = 0; i < json_array_size(gpus); i++)
        for (size_t k = 0; k < i; k++)
            good = good && !json_equal(json_array_get(gpus, i), json_array_get(gpus, k));
    return good;
}

static int check_gpus(const json_t *item, const char *list, size_t at)
{
    const json_t *gpus = json_object_get(item, "gpus"), *world = json_object_get(item, "world");

    if (!all_different(gpus))
        return sp_err(SP_EFAIL, "field '%s[%zu].gpus' names a GPU twice", list, at);
    if (world && json_integer_value(world) != (json_int_t)json_array_size(gpus))
        return sp_err(SP_EFAIL, "field '%s[%zu].world' is %" JSON_INTEGER_FORMAT ", of %zu GPUs", list, at,
                      json_integer_value(world), json_array_size(gpus));
    return SP_OK;
}

static int check_failed(const json_t *item, size_t at)
{
    const json_t *failed = json_object_get(item, "failed"), *gpus = json_object_get(item, "gpus");

    for (size_t i = 0; i < json_array_size(failed); i++) {
        const json_t *pair = json_array_get(failed, i);

        if (json_array_size(pair) != 2 || !sp_uuids_within(pair, gpus))
            return sp_err(SP_EFAIL, "field 'pairs[%zu].failed[%zu]' is no pair of its GPUs", at, i);
    }
    return SP_OK;
}

static int check_range(const json_t *item, const char *key, json_int_t least, json_int_t most)
{
    const json_int_t is = json_integer_value(json_object_get(item, key));

    return is < least || is > most
               ? sp_err(SP_EFAIL,
                        "field '%s' is %" JSON_INTEGER_FORMAT ", not %" JSON_INTEGER_FORMAT " to %" JSON_INTEGER_FORMAT,
                        key, is, least, most)
               : SP_OK;
}

static int check_result(const json_t *item, size_t at)
{
    int rc = check_gpus(item, "results", at);

    if (rc == SP_OK && check_range(item, "world", 2, SP_WORLD_MAX) < 0)
        rc = sp_err_wrap(SP_EFAIL, "results[%zu]", at);
    return rc;
}

static int check_verdict(const json_t *content)
{
    const json_t *results = json_object_get(content, "results"), *list = json_object_get(content, "pairs");
    int rc = sp_shape_check(content, &verdict);

    if (rc == SP_OK)
        rc = check_range(content, "level", 1, SP_LEVELS);
    if (rc == SP_OK)
        rc = check_bound(content);
    for (size_t i = 0; rc == SP_OK && i < json_array_size(results); i++)
        rc = check_result(json_array_get(results, i), i);
    for (size_t i = 0; rc == SP_OK && i < json_array_size(list); i++) {
        rc = check_gpus(json_array_get(list, i), "pairs", i);
        if (rc == SP_OK)
            rc = check_failed(json_array_get(list, i), i);
    }
    return rc;
}

static bool in_grid(const json_t *number, json_int_t step)
{
    const json_int_t is = json_integer_value(number); /* 0 where it is missing */

    return is >= 0 && is <= GRID_MAX && is % step == 0;
}

static int check_entries(const json_t *item, size_t at)
{
    const json_t *entries = json_object_get(item, "entries");
    const size_t count = json_array_size(entries);
    json_int_t below = -1;

    if (count == 0 || count > ENTRIES_MAX)
        return sp_err(SP_EFAIL, "field 'tables[%zu].entries' has %zu entries, not 1 to %d", at, count, ENTRIES_MAX);
    for (size_t i = 0; i < count; i++) {
        const json_t *is = json_array_get(entries, i);
        const char *algorithm = json_string_value(json_object_get(is, "algorithm"));
        const json_int_t bytes = json_integer_value(json_object_get(is, "max_bytes"));

        if (bytes <= below)
            return sp_err(SP_EFAIL, "field 'tables[%zu].entries[%zu].max_bytes' does not rise", at, i);
        if (strcmp(algorithm, "stock") != 0 && !sp_algorithm_known(algorithm))
            return sp_err(SP_EFAIL, "field 'tables[%zu].entries[%zu].algorithm' is '%.64s'", at, i, algorithm);
        if (!in_grid(json_object_get(is, "lanes"), 1) || !in_grid(json_object_get(is, "threads"), WARP))
            return sp_err(SP_EFAIL, "field 'tables[%zu].entries[%zu]' has lanes or threads that cannot be", at, i);
        below = bytes;
    }
    return SP_OK;
}

static int check_profile(const json_t *content)
{
    const json_t *tables = json_object_get(content, "tables");
    int rc = sp_shape_check(content, &profile);

    if (rc == SP_OK)
        rc = check_bound(content);
    for (size_t i = 0; rc == SP_OK && i < json_array_size(tables); i++) {
        rc = check_gpus(json_array_get(tables, i), "tables", i);
        if (rc == SP_OK)
            rc = check_entries(json_array_get(tables, i), i);
    }
    return rc;
}

int sp_sound_check(const json_t *content)
{
    if (sp_json_is(content, "schema", SP_VERDICT_SCHEMA))
        return check_verdict(content);
    return sp_json_is(content, "schema", SP_PROFILE_SCHEMA) ? check_profile(content) : SP_OK;
}
