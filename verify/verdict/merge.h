/*
 * What one run says, put into the verdict that there is.
 *
 * A run on some of the GPUs must not forget what was proved on others, and a probe of SGLang's own kernel says nothing
 * about ours. So, with S the GPUs of the run, and backend by backend:
 *
 *   - Where anything changed between the two (bound.h), or the earlier verdict is of too low a level, the run stands
 *     alone.
 *   - Results and pairs on GPUs that are all in S are replaced by those of the run, if it climbed to the level that
 *     counts.
 *   - Others stay, but what the run found wrong weighs: a PASS on a set that holds a failed set of the run becomes
 *     FAIL, one that holds a pair that did not pass becomes INCONCLUSIVE; both say so. A later PASS heals neither.
 *   - `upstream` (V1) loads from peers and stores its flags there: it suffers from what push and pull suffer from.
 *   - The level is the lowest of those whose results are in it.
 *
 * sp_verdict_merge() and sp_verdict_outcomes() are pure. Formats: docs/formats.md.
 */
#ifndef SP_VERDICT_MERGE_H
#define SP_VERDICT_MERGE_H

#include <jansson.h>
#include <stddef.h>

#define SP_UPSTREAM         "upstream"
#define SP_UPSTREAM_LIBRARY "libupstream.so" /* SGLang's own kernel, rebuilt; in the install's sgl_pcie/ */

/* *out: a new object. before: a verdict, or NULL. run: one of sp_verdict_make() or sp_verdict_outcomes(). */
int sp_verdict_merge(json_t **out, const json_t *before, const json_t *run);

/* One backend on one set of GPUs, run by somebody else than the ladder. */
struct sp_outcome {
    const char *backend; /* "upstream" */
    size_t count;
    const char *const *uuid;
    const char *result;  /* "PASS", "FAIL" or "INCONCLUSIVE" */
    const char *reason;  /* NULL with PASS */
    const char *library; /* SHA-256 of what was run; NULL: as SGLang's wheel has it */
};

/* *out: a new object for sp_verdict_merge(). A PASS is INCONCLUSIVE where before, a verdict, does not have all pairs of
 * the set as passed by push and by pull. */
int sp_verdict_outcomes(json_t **out, const json_t *before, const struct sp_outcome *item, size_t count);

/* Put them into the verdict of this install; *path: where it is, for the caller to free. SP_EFAIL without a fresh one
 * of the level that counts: verify comes first. */
int sp_verdict_add(char **path, const char *site, const struct sp_outcome *item, size_t count);

/* Write what sp_verdict_make() made, merged unless alone. *verdict: what was written; both for the caller to free.
 * Where that is not possible, an earlier verdict that says more is taken away (withdraw.h). */
int sp_verdict_save(char **path, json_t **verdict, const char *site, const json_t *run, int alone);

#endif
