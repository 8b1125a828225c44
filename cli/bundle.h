/*
 * The bundle of report: what is known of a machine and its install, without names. docs/json-schema/verify-parts.json.
 *
 *     recording       what the machine is, for verify --from
 *     status, status_error    the install, or why there is none
 *     findings, checks        of the doctor
 *     backends        what the topology promises
 *     verdict         verdict.json, or null
 *     profile         profile.json and what it is worth now, or null
 *     bench           bench.json, or null
 */
#ifndef SP_CLI_BUNDLE_H
#define SP_CLI_BUNDLE_H

#include "cli/opt.h"

#include <jansson.h>

/* Of this machine. *out: a new object, redacted. */
int sp_bundle_make(json_t **out, const struct sp_args *args);

/* Of a file or folder as verify --from takes it: a bundle as it is (redacted once more, by this machine's names), or
 * one made of a recording alone. SP_EFAIL: it is neither, or a field of it is malformed. */
int sp_bundle_load(json_t **out, const char *path);

#endif
