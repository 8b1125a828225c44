/*
 * What long work is at: one line on standard error that is written over, for people at a terminal.
 */
#ifndef SP_CLI_PROGRESS_H
#define SP_CLI_PROGRESS_H

#include "cli/report.h"

/* Is there somebody who sees it? Nothing below asks again. */
bool sp_progress_seen(const struct sp_report *report);

void sp_progress_line(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* The line as build calls for it; context is not used. */
void sp_progress_step(void *context, size_t done, size_t total, const char *text);

/* Take the line away. */
void sp_progress_end(void);

#endif
