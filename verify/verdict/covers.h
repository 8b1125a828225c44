/*
 * Which backends a verdict proved on a group of GPUs: the rule of docs/formats.md, as python/sgl_pcie/verdict.py has
 * it.
 */
#ifndef SP_VERDICT_COVERS_H
#define SP_VERDICT_COVERS_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

/* content: of verdict.json. A result for exactly these GPUs decides; else every ordered pair must have passed, and this
 * world size on some GPUs of the same set of pairs. Pure. */
bool sp_verdict_covers(const json_t *content, const char *backend, const char *const *uuid, size_t count);

/* Did anything pass that SGLANG_PCIE_AR_BACKEND may then take: "auto", "peer", "host" or "upstream"? Pure. */
bool sp_verdict_has_passed(const json_t *content, const char *choice);

/* Did one run try all of these together, whatever came of it? Pure. */
bool sp_verdict_tried(const json_t *content, const char *const *uuid, size_t count);

#endif
