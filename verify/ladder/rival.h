/*
 * NCCL as a witness: it knows nothing of this program. Wrong sums, or none in time, without peer access: the machine is
 * in doubt, and what failed is INCONCLUSIVE. With it only: peer access is broken for everybody, and stock SGLang errs,
 * too. Where there is no NCCL, or it cannot start, or was given less time than usual and took longer, nothing follows
 * (SKIP).
 */
#ifndef SP_LADDER_RIVAL_H
#define SP_LADDER_RIVAL_H

#include "verify/ladder/gpu.h"

#define SP_RIVAL_DEFAULT "nccl.default" /* and SP_RIVAL_HOST (verdict.h) */

/* Adds a check for each arm. SP_ECANNOT where there is no program. */
int sp_run_rival(struct sp_ladder *ladder, const struct sp_subjects *gpus, const struct sp_set *set);

#endif
