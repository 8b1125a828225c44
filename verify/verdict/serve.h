/*
 * Which table of a profile serves a group of GPUs, by what a verdict passed for that group: the rule of
 * docs/formats.md, as python/sgl_pcie/profile.py and choice.py have it where SGLANG_PCIE_AR_BACKEND is not set. A table
 * is of no use to a group if it needs a transport that did not pass; without one that is, SGLang takes start values,
 * which nobody measured.
 *
 * profile: content of profile.json, or NULL. verdict: content of verdict.json; NULL: every transport passed. gpus:
 * UUIDs. Everything here is pure.
 */
#ifndef SP_VERDICT_SERVE_H
#define SP_VERDICT_SERVE_H

#include <jansson.h>
#include <stdbool.h>

enum { SP_TRANSPORTS = 3 }; /* as sp_backends */

/* What SGLang would do, the best first. */
enum sp_served {
    SP_SERVED_FASTER,     /* the table has a size at which ours was measured faster than stock */
    SP_SERVED_AS_STOCK,   /* it has none */
    SP_SERVED_UNMEASURED, /* a transport passed, and no table is for it */
    SP_SERVED_NOT         /* none passed */
};

/* Does it need no other transports than these? */
bool sp_serve_fits(const json_t *table, const bool passed[SP_TRANSPORTS]);

/* *table: of the profile, or NULL. */
enum sp_served sp_serve_group(const json_t **table, const json_t *profile, const json_t *verdict, const json_t *gpus);

/* What passed for these GPUs, and was not measured on them: "peers" or "host"; NULL: nothing. A run leaves a table for
 * peers alone and one for the host alone, of what had passed by then. */
const char *sp_serve_unmeasured(const json_t *profile, const json_t *verdict, const json_t *gpus);

/* The best that any group has: of those that the profile has tables for, and those that the verdict has results of. */
enum sp_served sp_serve_best(const json_t *profile, const json_t *verdict);

#endif
