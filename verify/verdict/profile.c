#include "verify/verdict/profile.h"
#include "base/err.h"
#include "verify/machine/uuids.h"
#include "verify/verdict/bound.h"
#include "verify/verdict/state.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- writing ---- */

static bool has_gpus(const json_t *tables, const json_t *gpus)
{
    bool found = false;

    for (size_t i = 0; i < json_array_size(tables); i++)
        found = found || sp_uuids_same(json_object_get(json_array_get(tables, i), "gpus"), gpus);
    return found;
}

int sp_profile_merge(json_t **out, const json_t *before, const json_t *profile)
{
    const json_t *own = json_object_get(profile, "tables"), *tables = json_object_get(before, "tables");
    json_t *all = json_array();

    (void)json_array_extend(all, (json_t *)(uintptr_t)own);
    if (before && json_equal(json_object_get(before, "bound"), json_object_get(profile, "bound")))
        for (size_t i = 0; i < json_array_size(tables); i++) {
            json_t *table = json_array_get(tables, i);

            if (!has_gpus(own, json_object_get(table, "gpus")))
                (void)json_array_append(all, table);
        }
    *out = json_copy((json_t *)(uintptr_t)profile);
    if (!all || json_object_set_new(*out, "tables", all) != 0)
        return sp_err(SP_ECANNOT, "out of memory");
    return SP_OK;
}

static int change(json_t **out, const json_t *before, const void *context)
{
    return sp_profile_merge(out, before, context);
}

int sp_profile_save(char **path, json_t **written, const char *site, const json_t *profile)
{
    return sp_state_update(path, written, SP_PROFILE_FILE, SP_PROFILE_SCHEMA, site, change, profile);
}

/* ---- what it says ---- */

const char *sp_size_text(char *out, size_t size, uint64_t bytes)
{
    if (bytes >= 1 << 20 && bytes % (1 << 20) == 0)
        (void)snprintf(out, size, "%llu MiB", (unsigned long long)(bytes >> 20));
    else if (bytes >= 1 << 10 && bytes % (1 << 10) == 0)
        (void)snprintf(out, size, "%llu KiB", (unsigned long long)(bytes >> 10));
    else
        (void)snprintf(out, size, "%llu bytes", (unsigned long long)bytes);
    return out;
}

static int say_window(struct sp_buf *out, uint64_t above, uint64_t to, bool first)
{
    char from[32], until[32];

    (void)sp_size_text(until, sizeof until, to);
    if (above == 0)
        return sp_buf_printf(out, "%sto %s", first ? "" : " and ", until);
    return sp_buf_printf(out, "%sabove %s to %s", first ? "" : " and ", sp_size_text(from, sizeof from, above), until);
}

/* Neighbours are joined. */
int sp_profile_windows(struct sp_buf *out, const json_t *table)
{
    const json_t *entries = json_object_get(table, "entries");
    uint64_t above = 0, before = 0;
    bool open = false, any = false;
    int rc = SP_OK;

    for (size_t i = 0; i <= json_array_size(entries) && rc == SP_OK; i++) {
        const json_t *entry = json_array_get(entries, i);
        const char *algorithm = json_string_value(json_object_get(entry, "algorithm"));
        const bool ours = algorithm && strcmp(algorithm, "stock") != 0;

        if (ours && !open)
            above = before;
        if (!ours && open) {
            rc = say_window(out, above, before, !any);
            any = true;
        }
        open = ours;
        before = (uint64_t)json_integer_value(json_object_get(entry, "max_bytes"));
    }
    return rc == SP_OK && !any ? sp_buf_printf(out, "nothing") : rc;
}

static int say_group(struct sp_buf *out, const json_t *profile, const json_t *verdict, const json_t *gpus)
{
    const json_t *table;
    const enum sp_served is = sp_serve_group(&table, profile, verdict, gpus);
    const char *unmeasured = verdict ? sp_serve_unmeasured(profile, verdict, gpus) : NULL;
    int rc = sp_buf_printf(out, "%s%zu GPUs: ", out->len ? "; " : "", json_array_size(gpus));

    if (rc == SP_OK)
        rc = is == SP_SERVED_UNMEASURED ? sp_buf_printf(out, "not measured") : sp_profile_windows(out, table);
    if (rc == SP_OK && is != SP_SERVED_UNMEASURED && unmeasured)
        rc = sp_buf_printf(out, ", %s not measured", unmeasured);
    return rc;
}

/* Once each. */
static int say_groups(struct sp_buf *out, const json_t *profile, const json_t *verdict)
{
    const json_t *tables = json_object_get(profile, "tables");
    int rc = SP_OK;

    for (size_t i = 0; i < json_array_size(tables) && rc == SP_OK; i++) {
        const json_t *gpus = json_object_get(json_array_get(tables, i), "gpus");
        bool again = false;

        for (size_t k = 0; k < i && !again; k++)
            again = sp_uuids_same(json_object_get(json_array_get(tables, k), "gpus"), gpus);
        if (!again)
            rc = say_group(out, profile, verdict, gpus);
    }
    return rc;
}

char *sp_profile_summary(const json_t *profile, const json_t *verdict)
{
    static const char *const nothing[] = {
        [SP_SERVED_AS_STOCK] = "nothing is faster here",
        [SP_SERVED_UNMEASURED] = "nothing was measured with what the verdict passed",
        [SP_SERVED_NOT] = "nothing is for what the verdict passed",
    };
    const enum sp_served best = sp_serve_best(profile, verdict);
    struct sp_buf text = SP_BUF_INIT;
    int rc;

    if (best == SP_SERVED_FASTER)
        rc = say_groups(&text, profile, verdict);
    else
        rc = sp_buf_printf(&text, "%s", nothing[verdict ? best : SP_SERVED_AS_STOCK]);
    if (rc < 0)
        sp_buf_free(&text);
    return text.data;
}

/* ---- as it stands now ---- */

static int compare(struct sp_profile_now *now, const char *site)
{
    json_t *changes = NULL;
    const char *first;
    int rc = sp_bound_since(&changes, json_object_get(now->content, "bound"), site);

    first = json_string_value(json_array_get(changes, 0));
    now->fresh = rc == SP_OK && !first;
    now->reason = first ? strdup(first) : NULL;
    json_decref(changes);
    return rc;
}

int sp_profile_read(struct sp_profile_now *out, const char *site, const json_t *verdict)
{
    char *found = NULL;
    int rc;

    memset(out, 0, sizeof *out);
    rc = sp_state_read(&out->content, &found, SP_PROFILE_FILE, SP_PROFILE_SCHEMA, site);
    out->present = rc == SP_OK && out->content;
    out->says = sp_serve_best(out->content, verdict);
    if (out->present)
        rc = compare(out, site);
    else
        out->reason = found;
    if (out->present)
        free(found);
    return rc;
}

void sp_profile_free(struct sp_profile_now *now)
{
    json_decref(now->content);
    free(now->reason);
    memset(now, 0, sizeof *now);
}
