#include "verify/ladder/ladder.h"
#include "base/err.h"

const char *sp_ladder_target(const struct sp_ladder *ladder)
{
    return ladder->target ? ladder->target : "";
}

int sp_ladder_level(int *out, const char *text)
{
    *out = text[0] - '0';
    if (*out < 1 || *out > SP_LEVELS || text[1] != '\0')
        return sp_err(SP_EUSAGE, "there is no level '%s': 1 to %d", text, SP_LEVELS);
    return SP_OK;
}

/* What is known to hang is not tried; whoever else computes there is not to be disturbed, and would be in every result.
 */
static bool blocked(const struct sp_ladder *ladder)
{
    return sp_checks_with(&ladder->checks, SP_CHECK_FAIL) > 0 ||
           sp_checks_with(&ladder->checks, SP_CHECK_INCONCLUSIVE) > 0;
}

int sp_ladder_run(struct sp_ladder *ladder)
{
    int rc = SP_OK;

    for (const struct sp_rung *rung = sp_rungs; rung->level && rc == SP_OK; rung++) {
        if (rung->level > ladder->level || (ladder->replay && !rung->replay))
            continue;
        rc = rung->run(ladder);
        if (rung->level == 1 && blocked(ladder))
            break;
    }
    return rc;
}
