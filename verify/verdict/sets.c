#include "verify/verdict/sets.h"

#include <stdio.h>
#include <string.h>

static bool passed(const struct sp_checks *checks, const char *id)
{
    bool is = false;

    for (size_t i = 0; i < checks->count && !is; i++)
        is = checks->item[i]->status == SP_CHECK_PASS && strcmp(checks->item[i]->id, id) == 0;
    return is;
}

static bool pair_passed(const struct sp_checks *checks, const char *const *kinds, size_t from, size_t to)
{
    char id[SP_CHECK_ID];
    bool all = true;

    for (size_t k = 0; kinds[k] && all; k++) {
        (void)snprintf(id, sizeof id, "%s.%zu-%zu", kinds[k], from, to);
        all = passed(checks, id);
    }
    return all;
}

struct search {
    const struct sp_checks *checks;
    const struct sp_subjects *gpus;
    const char *const *kinds;
    size_t world;
};

static bool fits(const struct search *search, const struct sp_set *set, size_t next)
{
    bool good = true;

    for (size_t i = 0; i < set->count && good; i++) {
        const size_t a = search->gpus->number[set->at[i]], b = search->gpus->number[next];

        good = pair_passed(search->checks, search->kinds, a, b) && pair_passed(search->checks, search->kinds, b, a);
    }
    return good;
}

/* Depth first, in the order of the GPUs; as deep as a world is large. */
static bool extend(const struct search *search, struct sp_set *set, size_t from)
{
    bool done = set->count == search->world;

    for (size_t next = from; next < search->gpus->count && !done; next++) {
        if (!fits(search, set, next))
            continue;
        set->at[set->count++] = next;
        done = extend(search, set, next + 1);
        set->count -= !done;
    }
    return done;
}

bool sp_set_find(struct sp_set *out, const struct sp_checks *checks, const struct sp_subjects *gpus,
                 const char *backend, size_t world)
{
    const struct search search = {checks, gpus, sp_backend_needs(backend), world};
    bool found;

    memset(out, 0, sizeof *out);
    found = extend(&search, out, 0);
    if (!found)
        for (out->count = 0; out->count < world && out->count < gpus->count; out->count++)
            out->at[out->count] = out->count;
    return found;
}

void sp_set_name(char out[SP_CHECK_ID], const struct sp_subjects *gpus, const struct sp_set *set)
{
    size_t used = 0;

    out[0] = '\0';
    for (size_t i = 0; i < set->count && used < SP_CHECK_ID; i++)
        used += (size_t)snprintf(out + used, SP_CHECK_ID - used, "%s%zu", i ? "-" : "", gpus->number[set->at[i]]);
}

size_t sp_set_largest(struct sp_set *out, const struct sp_checks *checks, const struct sp_subjects *gpus,
                      const char *backend)
{
    char name[SP_CHECK_ID], id[2 * SP_CHECK_ID];
    size_t world = gpus->count < SP_WORLD_MAX ? gpus->count : SP_WORLD_MAX;

    for (; world >= 2; world--) {
        (void)sp_set_find(out, checks, gpus, backend, world);
        sp_set_name(name, gpus, out);
        (void)snprintf(id, sizeof id, "kernels.%s.%s", backend, name);
        if (passed(checks, id))
            return world;
    }
    out->count = 0;
    return 0;
}
