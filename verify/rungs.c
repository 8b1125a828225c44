#include "verify/ladder.h"

const struct sp_rung sp_rungs[] = {
    {1, "grant", "what the driver and the platform promise", true, sp_run_grant},
    {0, NULL, NULL, false, NULL},
};
