/*
 * SGLang's own all-reduce out of a source checkout: one header of the kernel package, with the patch set sgl-kernel.
 *
 *     rc = sp_upstream_open(&text, "/src/sglang");
 *     ... sp_build_run() with it, or sp_upstream_probe() ...
 *     sp_upstream_free(&text);
 *
 * Its bytes are read once; what is compiled is what was identified by its blob id. The kernel package that a wheel
 * brought stays as it is: what is built is a library of its own (kernels/upstream/overlay.h) that python/sgl_pcie hands
 * SGLang's calls to.
 */
#ifndef SP_BUILD_UPSTREAM_H
#define SP_BUILD_UPSTREAM_H

#include "build/compile.h"

#include <jansson.h>

#define SP_UPSTREAM_SET "sgl-kernel"

struct sp_upstream {
    char *path;            /* in the checkout */
    struct sp_oid pre, id; /* as released, and as it is */
    unsigned revision;     /* of the patch */
    struct sp_buf bytes;
};

/* SP_EUSAGE: no checkout of SGLang; SP_ENOPATCH, SP_EDRIFT: a text that we do not know; SP_ECANNOT: it is not patched,
 * with next, "sgl-pcie apply …", as the hint. To be freed in any case. */
int sp_upstream_open(struct sp_upstream *out, const char *checkout, const char *next);
void sp_upstream_free(struct sp_upstream *upstream);

/* The text as one more input, where the recipe expects it. */
int sp_upstream_input(struct sp_files *inputs, const struct sp_upstream *upstream);

/* Which text it is: path, released, patched, revision. NULL: out of memory. */
json_t *sp_upstream_json(const struct sp_upstream *upstream);

#endif
