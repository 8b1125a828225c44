/*
 * What a verdict is bound to: the facts about a machine and an install that a change of makes it stale.
 *
 * The same flat table of text to text as python/sgl_pcie/machine.py makes inside SGLang, from /proc, /sys and the
 * install; docs/formats.md lists the keys. No GPU is touched. What may not be read is "unreadable", which differs from
 * nothing.
 */
#ifndef SP_VERDICT_BOUND_H
#define SP_VERDICT_BOUND_H

#include "base/file.h"

#include <jansson.h>

/* *out: a new object. site: the install's; root: "" for this machine, else a folder with proc/ and sys/ in it, for
 * tests; NVML is asked only for this machine, and only where /proc does not say. SP_EHANG: it does not answer.
 * SP_ECANNOT without memory. */
int sp_bound_read(json_t **out, const char *site, const char *root);

/* SHA-256 of sgl_pcie/NAME in the install; "" where there is none that can be read. SP_ECANNOT without memory. */
int sp_built_sum(char sum[SP_SHA256_HEX + 1], const char *site, const char *name);

/* What differs, a new array of sentences in order of the keys: "driver was 570.1, is 580.2". */
int sp_bound_changes(json_t **out, const json_t *was, const json_t *is);

/* The same of this machine as it is now. Where NVML does not answer, that is what changed. */
int sp_bound_since(json_t **out, const json_t *was, const char *site);

#endif
