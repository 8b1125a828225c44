/*
 * run.h: one run: ranks that make a few calls under an adversary, and what must be true afterwards.
 *
 * A scenario says what is called and what goes wrong; the adversary's choices come from its seed or from a list. What
 * is checked, at every call and rank:
 *   - a call that ends without a failure has the sum of the summation tree in its output, bit for bit, unless its host
 *     is certain to see an abort by then
 *   - a call fails only if the scenario has a cause for it; then every rank leaves, and says why
 *   - nobody reads or writes where its transport does not let it, threads do not race on input and output
 *   - no wait is without bound
 * and after the last call, if nothing went wrong:
 *   - boxes of sentinel algorithms are empty but for the slots of the last two calls of a lane
 *   - busy words, claims and abort words are as at the start
 */
#ifndef EMU_RUN_H
#define EMU_RUN_H

#include "choice.h"
#include "scenario.h"

/* What has happened in all runs so far, to see that a campaign reached what it is meant to reach. */
typedef struct {
    uint64_t kernels, failed[3]; /* failed: rank's first report, by phase: at entry, scatter or one-shot, gather */
    uint64_t late, lost, traps;
} run_counts;
extern run_counts run_counted[PAR_ALGORITHMS];

/* Run it. Returns null or the violation, valid until the next run. `given` and `log` as for choice_begin(). */
const char *run(const run_scenario *s, emu_mode mode, const emu_list *given, emu_list *log, int trace);

#endif
