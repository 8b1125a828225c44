/*
 * A verdict that cannot be written must not leave an earlier one in force that says more than was just found: a full
 * disk would otherwise keep what gives wrong data enabled. Taking a file away needs no space.
 */
#ifndef SP_VERDICT_WITHDRAW_H
#define SP_VERDICT_WITHDRAW_H

#include "verify/verdict/state.h"

#include <stdbool.h>

/* Did before pass anything, as a result or between a pair, that after does not? Pure. */
bool sp_verdict_takes_back(const json_t *before, const json_t *after);

/* After sp_state_update() failed with rc, its message and hint still set: removes the verdict that holds, if what
 * change() makes of it takes something back, and says so behind the message; or that it could not. Returns rc. */
int sp_verdict_withdraw(int rc, const char *site, sp_state_change *change, const void *context);

#endif
