/*
 * Ask something in a child of our own, with a time limit: what asks a driver may not return, or may die.
 *
 * The child is a fork without exec. It must not print, and it ends without running anything of the parent's.
 */
#ifndef SP_MACHINE_CHILD_H
#define SP_MACHINE_CHILD_H

#include "base/file.h"

/* Writes its answer to fd. */
typedef void sp_child_work(int fd, const void *context);

/* What the child wrote. SP_EHANG: it did not end in time, and was killed; SP_ECANNOT: it died, or cannot be started. */
int sp_child_ask(struct sp_buf *answer, int seconds, sp_child_work *work, const void *context);

#endif
