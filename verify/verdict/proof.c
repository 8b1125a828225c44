#include "verify/verdict/proof.h"
#include "base/err.h"
#include "verify/verdict/bound.h"
#include "verify/verdict/profile.h"
#include "verify/verdict/state.h"
#include "verify/verdict/verdict.h"

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

/* ---- profile ---- */

/* Measuring again would not make a fresh one win, nor make it be about another kernel than ours. */
static int judge_profile(const char **command, const json_t *profile, const json_t *verdict, const char *site)
{
    json_t *changes = NULL;
    const char *first;
    int rc = sp_bound_since(&changes, json_object_get(profile, "bound"), site);
    const enum sp_served says = sp_serve_best(profile, verdict);

    if (rc < 0)
        return rc;
    first = json_string_value(json_array_get(changes, 0));
    if (first)
        rc = sp_err(SP_EFAIL, "not enabled: the profile is stale: %s", first);
    else if (says == SP_SERVED_UNMEASURED)
        rc = sp_err(SP_EFAIL, "not enabled: the profile has nothing with the transports that the verdict passed, and "
                              "start values would choose");
    else if (says != SP_SERVED_FASTER) {
        *command = NULL;
        rc = sp_err(SP_EFAIL, "not enabled: by the profile nothing is faster here than what SGLang does by itself");
    }
    json_decref(changes);
    return rc;
}

static int check_profile(const char **command, const char *site, const json_t *verdict)
{
    json_t *profile = NULL;
    char *found = NULL;
    int rc = sp_state_read(&profile, &found, SP_PROFILE_FILE, SP_PROFILE_SCHEMA, site);

    *command = "bench";
    if (rc == SP_OK && !profile)
        rc = sp_err(SP_EFAIL,
                    "not enabled: no profile shows that it is faster here (%s); until it is measured, "
                    "SGLANG_FORCE_CUSTOM_AR_PCIE=1 where SGLang is started uses start values",
                    found);
    if (rc == SP_OK)
        rc = judge_profile(command, profile, verdict, site);
    if (rc == SP_OK)
        *command = NULL;
    json_decref(profile);
    free(found);
    return rc;
}

/* ---- both ---- */

/* The flag takes a kernel of SGLang's only where it is named, and no profile is about it. */
static int refuse_upstream(void)
{
    return sp_err(SP_EFAIL, "not enabled: the verdict passed SGLang's own kernel alone; SGLANG_FORCE_CUSTOM_AR_PCIE=1 "
                            "and SGLANG_PCIE_AR_BACKEND=upstream where SGLang is started take that one");
}

int sp_proof_check(const char **command, const char *site)
{
    struct sp_verdict_now now;
    int rc = sp_verdict_read(&now, site);

    *command = "verify";
    if (rc == SP_OK && !sp_verdict_holds(&now))
        rc = refuse_verdict(&now);
    else if (rc == SP_OK) {
        *command = NULL;
        rc = sp_serve_best(NULL, now.content) == SP_SERVED_NOT ? refuse_upstream()
                                                               : check_profile(command, site, now.content);
    }
    sp_verdict_free(&now);
    return rc;
}
