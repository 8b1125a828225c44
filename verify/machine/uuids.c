#include "verify/machine/uuids.h"

#include <string.h>

bool sp_uuids_have(const json_t *list, const char *uuid)
{
    bool found = false;

    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *is = json_string_value(json_array_get(list, i));

        found = found || (is && uuid && strcmp(is, uuid) == 0);
    }
    return found;
}

bool sp_uuids_within(const json_t *part, const json_t *whole)
{
    bool all = true;

    for (size_t i = 0; i < json_array_size(part); i++)
        all = all && sp_uuids_have(whole, json_string_value(json_array_get(part, i)));
    return all;
}

bool sp_uuids_same(const json_t *a, const json_t *b)
{
    return sp_uuids_within(a, b) && sp_uuids_within(b, a);
}
