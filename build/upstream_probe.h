/*
 * Measure before cutting: is SGLang's own all-reduce, as a checkout has it, right on the GPUs here, and does it win?
 *
 * Compiles it in a scratch folder together with libpar.so and a program of ours (kernels/upstream/probe.c), runs that
 * as a child with a time limit, and writes nothing but the verdict of backend `upstream`, where there is a verdict to
 * add to. What was run is, byte for byte, what `build --upstream` puts into an install; a library that the install has
 * already, by its record from the same inputs and compilers, is taken from there.
 */
#ifndef SP_BUILD_UPSTREAM_PROBE_H
#define SP_BUILD_UPSTREAM_PROBE_H

#include "build/upstream.h"
#include "patcher/install.h"

struct sp_probe_options {
    const char *archs;                /* as sp_build_options has it */
    const struct sp_install *install; /* whose verdict it is, whose NCCL, and whose libraries; NULL: nobody's */
    unsigned world;                   /* 0: as many of 8, 6, 4, 2 as there are GPUs for */
    size_t bytes;                     /* of the message that is timed; 0: 42 KiB */
    bool virtual_ranks;               /* several ranks on a GPU even where there are enough */
    sp_progress *progress;
    void *context;
};

struct sp_probe {
    struct sp_toolchain tools;
    struct sp_gpus gpus;
    struct sp_archs archs;
    char library[SP_SHA256_HEX + 1]; /* of what was run */
    struct sp_words reused;          /* names of libraries that were taken from the install */
    json_t *found;                   /* what the program said, or NULL: "rivals", "winner", "mode", … */
    char *verdict;                   /* where the verdict was written */
    char *not_recorded;              /* why it was not; NULL as well where there is nothing to say */
    char *log;                       /* of a compiler that refused */
};

/* *out: what is known, also on error, for the caller to free; it may be NULL only without memory. SP_EDATA: wrong sums;
 * SP_EHANG; SP_EFAIL: it does not refuse where it must; SP_ECANNOT, SP_EBUILD, SP_EUSAGE as sp_build_run(). */
int sp_upstream_probe(struct sp_probe **out, const struct sp_upstream *upstream,
                      const struct sp_probe_options *options);
void sp_probe_free(struct sp_probe *probe);

#endif
