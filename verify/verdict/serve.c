#include "verify/verdict/serve.h"
#include "verify/machine/uuids.h"
#include "verify/verdict/algorithm.h"
#include "verify/verdict/covers.h"
#include "verify/verdict/verdict.h"

#include <string.h>

/* ---- transports ---- */

bool sp_serve_fits(const json_t *table, const bool passed[SP_TRANSPORTS])
{
    const json_t *entries = json_object_get(table, "entries");
    bool fits = true;

    for (size_t i = 0; i < json_array_size(entries); i++) {
        const char *name = json_string_value(json_object_get(json_array_get(entries, i), "algorithm"));
        const char *needed = sp_algorithm_transport(name ? name : "");

        for (size_t k = 0; k < SP_TRANSPORTS; k++)
            fits = fits && (passed[k] || strcmp(needed, sp_backends[k]) != 0);
    }
    return fits;
}

/* false: none did. */
static bool find_passed(bool passed[SP_TRANSPORTS], const json_t *verdict, const json_t *gpus)
{
    const char *uuid[SP_WORLD_MAX];
    const size_t count = json_array_size(gpus);
    bool any = false;

    for (size_t i = 0; i < count && i < SP_WORLD_MAX; i++) {
        const char *is = json_string_value(json_array_get(gpus, i));

        uuid[i] = is ? is : "";
    }
    for (size_t k = 0; k < SP_TRANSPORTS; k++) {
        passed[k] = !verdict || (count <= SP_WORLD_MAX && sp_verdict_covers(verdict, sp_backends[k], uuid, count));
        any = any || passed[k];
    }
    return any;
}

/* ---- tables ---- */

static const json_t *find_table(const json_t *profile, const json_t *gpus, const bool passed[SP_TRANSPORTS])
{
    const json_t *tables = json_object_get(profile, "tables"), *exact = NULL, *other = NULL;

    for (size_t i = 0; i < json_array_size(tables); i++) {
        const json_t *table = json_array_get(tables, i), *of = json_object_get(table, "gpus");

        if (json_array_size(of) != json_array_size(gpus) || !sp_serve_fits(table, passed))
            continue;
        if (!exact && sp_uuids_same(of, gpus))
            exact = table;
        if (!other)
            other = table;
    }
    return exact ? exact : other;
}

static bool has_own_table(const json_t *profile, const json_t *gpus, const bool passed[SP_TRANSPORTS])
{
    const json_t *table = find_table(profile, gpus, passed);

    return table && sp_uuids_same(json_object_get(table, "gpus"), gpus);
}

const char *sp_serve_unmeasured(const json_t *profile, const json_t *verdict, const json_t *gpus)
{
    bool passed[SP_TRANSPORTS];
    const bool any = find_passed(passed, verdict, gpus);
    const bool peers[SP_TRANSPORTS] = {passed[0], passed[1], false}, host[SP_TRANSPORTS] = {false, false, passed[2]};

    if (any && (peers[0] || peers[1]) && !has_own_table(profile, gpus, peers))
        return "peers";
    return any && host[2] && !has_own_table(profile, gpus, host) ? "host" : NULL;
}

static bool entry_wins(const json_t *entry)
{
    const char *algorithm = json_string_value(json_object_get(entry, "algorithm"));
    const double us = json_number_value(json_object_get(entry, "us"));
    const double stock = json_number_value(json_object_get(entry, "stock_us"));

    return algorithm && strcmp(algorithm, "stock") != 0 && us > 0 && us < stock;
}

static bool table_wins(const json_t *table)
{
    const json_t *entries = json_object_get(table, "entries");
    bool wins = false;

    for (size_t i = 0; i < json_array_size(entries) && !wins; i++)
        wins = entry_wins(json_array_get(entries, i));
    return wins;
}

/* ---- groups ---- */

enum sp_served sp_serve_group(const json_t **table, const json_t *profile, const json_t *verdict, const json_t *gpus)
{
    bool passed[SP_TRANSPORTS];

    *table = NULL;
    if (!find_passed(passed, verdict, gpus))
        return SP_SERVED_NOT;
    *table = find_table(profile, gpus, passed);
    if (!*table)
        return SP_SERVED_UNMEASURED;
    return table_wins(*table) ? SP_SERVED_FASTER : SP_SERVED_AS_STOCK;
}

static enum sp_served best_of(enum sp_served best, const json_t *list, const json_t *profile, const json_t *verdict)
{
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *table;
        const enum sp_served is =
            sp_serve_group(&table, profile, verdict, json_object_get(json_array_get(list, i), "gpus"));

        best = is < best ? is : best;
    }
    return best;
}

enum sp_served sp_serve_best(const json_t *profile, const json_t *verdict)
{
    const enum sp_served nothing = verdict ? SP_SERVED_NOT : SP_SERVED_UNMEASURED;
    const enum sp_served best = best_of(nothing, json_object_get(profile, "tables"), profile, verdict);

    return best_of(best, json_object_get(verdict, "results"), profile, verdict);
}
