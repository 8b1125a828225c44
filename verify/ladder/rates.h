/*
 * A rate that level 2 measured, against what the links can carry: lanes as trained, speed as possible, since an idle
 * link slows down and only under load shows what it does.
 *
 * Nothing is concluded where the links' figures are not the machine's (a guest), or not known, nor of a pair that
 * NVLink joins. A rate that is low is a warning: the data was right, and bench times what SGLang would run.
 */
#ifndef SP_LADDER_RATES_H
#define SP_LADDER_RATES_H

#include "verify/ladder/ladder.h"

/* A check that passed, or fell behind others of its kind, with a rate: below half of what the narrower link of a pair
 * carries it becomes a warning, link.slow; loads that are much slower than that pair's stores, p2p.staging-suspect.
 * Others are left alone. */
void sp_rate_judge(const struct sp_ladder *ladder, struct sp_check *check);

#endif
