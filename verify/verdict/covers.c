#include "verify/verdict/covers.h"
#include "base/json.h"
#include "verify/machine/uuids.h"
#include "verify/verdict/merge.h"

#include <string.h>

struct group {
    const char *const *uuid;
    size_t count;
};

static bool in_group(const struct group *group, const char *uuid)
{
    bool found = false;

    for (size_t i = 0; i < group->count; i++)
        found = found || (uuid && strcmp(group->uuid[i], uuid) == 0);
    return found;
}

static bool all_in_list(const struct group *group, const json_t *list)
{
    bool all = true;

    for (size_t i = 0; i < group->count; i++)
        all = all && sp_uuids_have(list, group->uuid[i]);
    return all;
}

/* Of this backend and as many GPUs. */
static bool of_size(const json_t *result, const char *backend, size_t count)
{
    return sp_json_is(result, "backend", backend) && json_array_size(json_object_get(result, "gpus")) == count;
}

static bool any_failed(const json_t *failed, const struct group *group)
{
    bool any = false;

    for (size_t i = 0; i < json_array_size(failed); i++) {
        const json_t *pair = json_array_get(failed, i);

        any = any || (in_group(group, json_string_value(json_array_get(pair, 0))) &&
                      in_group(group, json_string_value(json_array_get(pair, 1))));
    }
    return any;
}

/* Did this many pass on some GPUs of these? */
static bool passed_within(const json_t *results, const char *backend, size_t count, const json_t *gpus)
{
    bool any = false;

    for (size_t i = 0; i < json_array_size(results); i++) {
        const json_t *result = json_array_get(results, i);

        any = any || (of_size(result, backend, count) && sp_json_is(result, "result", "PASS") &&
                      sp_uuids_within(json_object_get(result, "gpus"), gpus));
    }
    return any;
}

/* 1, 0, or -1 where there is no result for exactly these. */
static int exactly(const json_t *results, const char *backend, const struct group *group)
{
    int passed = -1;

    for (size_t i = 0; i < json_array_size(results); i++) {
        const json_t *result = json_array_get(results, i);

        if (of_size(result, backend, group->count) && all_in_list(group, json_object_get(result, "gpus")))
            passed = passed != 0 && sp_json_is(result, "result", "PASS");
    }
    return passed;
}

bool sp_verdict_covers(const json_t *content, const char *backend, const char *const *uuid, size_t count)
{
    const json_t *results = json_object_get(content, "results"), *pairs = json_object_get(content, "pairs");
    const struct group group = {uuid, count};
    const int exact = exactly(results, backend, &group);
    bool covers = exact == 1;

    for (size_t i = 0; exact < 0 && i < json_array_size(pairs); i++) {
        const json_t *item = json_array_get(pairs, i), *gpus = json_object_get(item, "gpus");

        covers = covers ||
                 (sp_json_is(item, "backend", backend) && all_in_list(&group, gpus) &&
                  !any_failed(json_object_get(item, "failed"), &group) && passed_within(results, backend, count, gpus));
    }
    return covers;
}

bool sp_verdict_tried(const json_t *content, const char *const *uuid, size_t count)
{
    const json_t *pairs = json_object_get(content, "pairs");
    const struct group group = {uuid, count};
    bool tried = false;

    for (size_t i = 0; i < json_array_size(pairs); i++) {
        const json_t *item = json_array_get(pairs, i);

        tried =
            tried || (!sp_json_is(item, "backend", SP_UPSTREAM) && all_in_list(&group, json_object_get(item, "gpus")));
    }
    return tried;
}

static bool is_of(const json_t *result, const char *choice)
{
    const bool upstream = sp_json_is(result, "backend", "upstream"), host = sp_json_is(result, "backend", "host");

    if (strcmp(choice, "auto") == 0)
        return !upstream;
    if (strcmp(choice, "peer") == 0)
        return !upstream && !host;
    return sp_json_is(result, "backend", choice);
}

bool sp_verdict_has_passed(const json_t *content, const char *choice)
{
    const json_t *results = json_object_get(content, "results");
    bool any = false;

    for (size_t i = 0; i < json_array_size(results); i++) {
        const json_t *result = json_array_get(results, i);

        any = any || (is_of(result, choice) && sp_json_is(result, "result", "PASS"));
    }
    return any;
}
