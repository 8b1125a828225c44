#include "verify/ladder/ladder.h"

const struct sp_rung sp_rungs[] = {
    {1, "grant", "what the driver and the platform promise", true, sp_run_grant},
    {2, "transfers", "what passes between each two GPUs, and through host memory", false, sp_run_transfers},
    {3, "kernels", "the all-reduce itself, every algorithm against a reference", false, sp_run_kernels},
    {4, "soak", "the same for long, and its time against NCCL", false, sp_run_soak},
    {0, NULL, NULL, false, NULL},
};

_Static_assert(sizeof sp_rungs / sizeof *sp_rungs == SP_LEVELS + 1, "SP_LEVELS is the number of rungs");
