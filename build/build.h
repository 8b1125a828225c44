/*
 * Build the kernels into an install, or check that building them twice gives the same bytes.
 *
 *     <site>/sgl_pcie/libpar.so            the all-reduce
 *     <site>/sgl_pcie/sgl-pcie-gpu         the program that exercises it, for verify and bench
 *     <site>/sgl_pcie/_sgl_pcie.abi3.so    the module for Python
 *     <site>/sgl_pcie/build.json           the build record (build/record.h)
 *
 * Or, given a text of SGLang's own all-reduce (build/upstream.h), that alone, with a record of its own:
 *
 *     <site>/sgl_pcie/libupstream.so       SGLang's all-reduce, rebuilt without torch
 *     <site>/sgl_pcie/upstream.json
 *
 * Everything is compiled in a scratch folder, which goes however this ends; the install is touched only by one
 * transaction at the end, which also brings the RECORD of sgl-pcie-runtime up to date. Where the record that is there
 * says that the same inputs and compilers made what is there, nothing is compiled.
 *
 * A running server keeps the libpar.so that it has loaded: files are replaced by rename(2), never written over.
 */
#ifndef SP_BUILD_BUILD_H
#define SP_BUILD_BUILD_H

#include "build/compile.h"
#include "build/upstream.h"

struct sp_build_options {
    const char *archs;                  /* "sm_90,sm_120", "all", or NULL for the GPUs of this machine */
    bool check;                         /* build twice and compare; write nothing */
    const char *next;                   /* how a user applies the patch, for the hint: "sgl-pcie apply …" */
    const char *again;                  /* the same without --check, for the hint: "sgl-pcie build …" */
    const struct sp_upstream *upstream; /* build this instead; or NULL */
    sp_progress *progress;              /* or NULL */
    void *context;
};

struct sp_build {
    struct sp_toolchain tools;
    struct sp_gpus gpus;
    struct sp_archs archs;
    struct sp_python python;
    struct sp_files outputs; /* paths relative to sgl_pcie/; without bytes when up to date */
    bool needs_python;       /* the recipe has a module */
    bool up_to_date;         /* nothing was compiled */
    bool matches_install;    /* check: what is installed is what these inputs give, too */
    struct sp_words warnings;
    char *log; /* of a compiler that refused */
};

/* *out: what is known, also on error, for the caller to free; it may be NULL only without memory.
 * SP_EFAIL: two builds differ. SP_EUSAGE: unknown architecture. SP_ECANNOT: not patched, no toolchain, no GPU, no
 * permission. SP_EBUILD: a compiler refused. SP_EINTERRUPTED as everywhere. */
int sp_build_run(struct sp_build **out, const struct sp_install *install, const struct sp_build_options *options);
void sp_build_free(struct sp_build *build);

#endif
