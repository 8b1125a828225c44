#include "verify/proof.h"
#include "base/err.h"
#include "verify/bound.h"
#include "verify/profile.h"
#include "verify/state.h"
#include "verify/verdict.h"

#include <stdlib.h>
#include <string.h>

/* ---- verdict ---- */

static int refuse_verdict(const struct sp_verdict_now *now)
{
    const char *reason = json_string_value(json_array_get(now->reasons, 0));
    const size_t more = json_array_size(now->reasons);

    if (now->present && !now->fresh)
        return sp_err(SP_EFAIL, "not enabled: the verdict is stale: %s%s", reason ? reason : "",
                      more > 1 ? ", and more" : "");
    return sp_err(SP_EFAIL, "not enabled: %s", reason ? reason : "no verdict for this machine");
}

static int check_verdict(const char *site)
{
    struct sp_verdict_now now;
    int rc = sp_verdict_read(&now, site);

    if (rc == SP_OK && !sp_verdict_holds(&now))
        rc = refuse_verdict(&now);
    sp_verdict_free(&now);
    return rc;
}

/* ---- profile ---- */

/* Measuring again would not make a fresh one win. */
static int judge_profile(const char **command, const json_t *profile, const json_t *is)
{
    json_t *changes = NULL;
    const char *first;
    int rc = sp_bound_changes(&changes, json_object_get(profile, "bound"), is);

    if (rc < 0)
        return rc;
    first = json_string_value(json_array_get(changes, 0));
    if (first)
        rc = sp_err(SP_EFAIL, "not enabled: the profile is stale: %s", first);
    else if (!sp_profile_wins(profile)) {
        *command = NULL;
        rc = sp_err(SP_EFAIL, "not enabled: by the profile nothing is faster here than what SGLang does by itself");
    }
    json_decref(changes);
    return rc;
}

static int check_profile(const char **command, const char *site)
{
    json_t *profile = NULL, *is = NULL;
    char *found = NULL;
    int rc = sp_state_read(&profile, &found, SP_PROFILE_FILE, SP_PROFILE_SCHEMA, site);

    *command = "bench";
    if (rc == SP_OK && !profile)
        rc = sp_err(SP_EFAIL,
                    "not enabled: no profile shows that it is faster here (%s); until it is measured, "
                    "SGLANG_FORCE_CUSTOM_AR_PCIE=1 where SGLang is started uses start values",
                    found);
    if (rc == SP_OK)
        rc = sp_bound_read(&is, site, "");
    if (rc == SP_OK)
        rc = judge_profile(command, profile, is);
    if (rc == SP_OK)
        *command = NULL;
    json_decref(profile);
    json_decref(is);
    free(found);
    return rc;
}

int sp_proof_check(const char **command, const char *site)
{
    int rc = check_verdict(site);

    *command = rc < 0 ? "verify" : NULL;
    return rc < 0 ? rc : check_profile(command, site);
}
