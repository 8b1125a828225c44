/*
 * build --upstream --probe: run the probe of build/upstream_probe.h and show what it measured.
 */
#ifndef SP_CLI_PROBE_H
#define SP_CLI_PROBE_H

#include "cli/report.h"
#include "cli/subject.h"

#include "build/upstream_probe.h"

/* subject->install may be NULL: then nothing is recorded. options: without progress, which is for us. */
int sp_probe_show(struct sp_report *report, struct sp_subject *subject, const struct sp_upstream *upstream,
                  struct sp_probe_options *options);

#endif
