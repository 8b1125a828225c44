/*
 * protocol.h: the protocols, as every thread of a lane runs them.
 *
 * A lane is one block. Threads 0..workers-1 move data, the next one keeps house (fences, flags, bookkeeping, checks at
 * entry), so that no thread that moves data ever waits for a fence. There are three protocols, each one-shot and
 * two-shot. Each has a header that says how it works; docs/memory-model.md says why it is sound, and what it assumes:
 *
 *   protocol/plain.h     an empty slot; a word that is not empty has arrived
 *   protocol/tagged.h    the same, but a bit of each word tells this use of a slot from the last one
 *   protocol/sentinel.h  a call of either: the workers, and who keeps house
 *   protocol/chunked.h   steps, and flags that say how many are done
 *
 * Under them: place.h has who and where, message.h the caller's input and output, wait.h waiting and failing, receive.h
 * polls and sums, move.h a piece of a message through a slot, turn.h a lane's slots by turns.
 */
#ifndef PAR_PROTOCOL_H
#define PAR_PROTOCOL_H

#include "protocol/place.h"
#include "protocol/message.h"
#include "protocol/wait.h"
#include "protocol/receive.h"
#include "protocol/move.h"
#include "protocol/turn.h"
#include "protocol/plain.h"
#include "protocol/tagged.h"
#include "protocol/sentinel.h"
#include "protocol/chunked.h"

PAR_DEV void par_plain_one_shot(const par_call *call, int dtype) { par_sentinel(call, 0, 0, dtype); }
PAR_DEV void par_plain_two_shot(const par_call *call, int dtype) { par_sentinel(call, 1, 0, dtype); }
PAR_DEV void par_tagged_one_shot(const par_call *call, int dtype) { par_sentinel(call, 0, 1, dtype); }
PAR_DEV void par_tagged_two_shot(const par_call *call, int dtype) { par_sentinel(call, 1, 1, dtype); }
PAR_DEV void par_chunked_one_shot(const par_call *call, int dtype) { par_chunked(call, 0, dtype); }
PAR_DEV void par_chunked_two_shot(const par_call *call, int dtype) { par_chunked(call, 1, dtype); }

/* Plain or tagged, as the call says. */
PAR_DEV void par_sentinel_one_shot(const par_call *call, int dtype) { par_sentinel(call, 0, (int)call->tagged, dtype); }
PAR_DEV void par_sentinel_two_shot(const par_call *call, int dtype) { par_sentinel(call, 1, (int)call->tagged, dtype); }

#endif
