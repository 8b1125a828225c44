#include "verify/verdict/withdraw.h"
#include "base/err.h"
#include "base/json.h"
#include "verify/machine/uuids.h"
#include "verify/verdict/covers.h"
#include "verify/verdict/verdict.h"

#include <stdlib.h>
#include <string.h>

enum { PLACES = 2 }; /* the user's own verdict, and root's */

/* ---- what is taken back ---- */

static bool still_passes(const json_t *after, const json_t *result)
{
    const json_t *gpus = json_object_get(result, "gpus");
    const char *uuid[SP_REC_GPUS_MAX];
    size_t count = 0;

    for (; count < json_array_size(gpus) && count < SP_REC_GPUS_MAX; count++)
        uuid[count] = json_string_value(json_array_get(gpus, count));
    return sp_verdict_covers(after, json_string_value(json_object_get(result, "backend")), uuid, count);
}

static bool has(const json_t *list, const json_t *pair)
{
    const json_t *item;
    bool found = false;
    size_t i;

    json_array_foreach(list, i, item) found = found || json_equal(item, pair);
    return found;
}

/* Is there an entry with all of these GPUs, and no failed pair among them that is new? */
static bool still_clear(const json_t *after, const json_t *pairs)
{
    const json_t *gpus = json_object_get(pairs, "gpus"), *item, *pair;
    bool clear = false;
    size_t i, k;

    json_array_foreach(json_object_get(after, "pairs"), i, item)
    {
        bool good = json_equal(json_object_get(item, "backend"), json_object_get(pairs, "backend")) &&
                    sp_uuids_within(gpus, json_object_get(item, "gpus"));

        json_array_foreach(json_object_get(item, "failed"), k, pair)
        {
            good = good && (!sp_uuids_within(pair, gpus) || has(json_object_get(pairs, "failed"), pair));
        }
        clear = clear || good;
    }
    return clear;
}

bool sp_verdict_takes_back(const json_t *before, const json_t *after)
{
    const json_t *item;
    bool takes = false;
    size_t i;

    json_array_foreach(json_object_get(before, "results"), i, item)
    {
        takes = takes || (sp_json_is(item, "result", "PASS") && !still_passes(after, item));
    }
    json_array_foreach(json_object_get(before, "pairs"), i, item)
    {
        takes = takes || !still_clear(after, item);
    }
    return takes;
}

/* ---- taking it away ---- */

/* *path: the verdict that holds and says too much, for the caller to free; NULL: there is none. */
static void find(char **path, const char *site, sp_state_change *change, const void *context)
{
    struct sp_verdict_now now;
    json_t *after = NULL;

    *path = NULL;
    if (sp_verdict_read(&now, site) == SP_OK && sp_verdict_holds(&now) &&
        change(&after, now.content, context) == SP_OK && sp_verdict_takes_back(now.content, after))
        *path = strdup(now.found);
    json_decref(after);
    sp_verdict_free(&now);
}

static int say(int rc, const char *message, const char *hint, const char *left, bool removed)
{
    if (left) {
        char *why = strdup(sp_err_message());

        (void)sp_err(rc, "%s; the earlier verdict still holds: %s", message, why ? why : left);
        free(why);
        return sp_err_hint(rc, "remove '%s': SGLang goes by it", left);
    }
    (void)sp_err(rc, "%s%s", message, removed ? "; the earlier verdict was withdrawn" : "");
    return sp_err_hint(rc, "%s", hint);
}

int sp_verdict_withdraw(int rc, const char *site, sp_state_change *change, const void *context)
{
    char *message = strdup(sp_err_message()), *hint = strdup(sp_err_hint_text()), *path;
    bool removed = false, more = true;

    find(&path, site, change, context);
    for (int i = 0; i < PLACES && path && more; i++) {
        more = sp_state_remove(path) == SP_OK;
        removed = removed || more;
        if (more) {
            free(path);
            find(&path, site, change, context);
        }
    }
    rc = say(rc, message ? message : "", hint ? hint : "", path, removed);
    free(message);
    free(hint);
    free(path);
    return rc;
}
