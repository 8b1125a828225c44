/*
 * Architectures to compile for: those of the GPUs that are here, or those of a list.
 *
 * nvcc has a silent default when it sees no GPU; here that is an error. GPUs are found through NVML, which comes with
 * the driver and needs no CUDA context.
 */
#ifndef SP_BUILD_ARCH_H
#define SP_BUILD_ARCH_H

#include "build/toolchain.h"

#include <stdbool.h>

enum { SP_ARCHS_MAX = 64, SP_ARCH_TEXT = 8 * SP_ARCHS_MAX };

struct sp_archs {
    unsigned number[SP_ARCHS_MAX]; /* 90 for sm_90; ascending, each once */
    size_t count;
};

/* What the driver says about this machine. */
struct sp_gpus {
    bool driver;         /* NVML is there and works */
    unsigned cuda_major; /* newest CUDA that the driver knows; 0: unknown */
    struct sp_archs archs;
};

/* SP_OK also without driver. needed: a driver that is there, but does not answer, is an error: SP_EHANG, SP_ECANNOT. */
int sp_gpus_find(struct sp_gpus *out, bool needed);

/* What this nvcc can compile for, from oldest on. */
int sp_archs_known(struct sp_archs *out, const struct sp_toolchain *tools, unsigned oldest);

/* A list "sm_90,sm_120", "all" for everything known, NULL for the GPUs of this machine. SP_EUSAGE: not known, with what
 * is; SP_ECANNOT: no list and no GPU, or a GPU that this nvcc does not know. */
int sp_archs_choose(struct sp_archs *out, const char *list, const struct sp_archs *known, const struct sp_gpus *gpus,
                    const struct sp_toolchain *tools);

/* The form alone, which needs no nvcc: "all", or names as sm_90. SP_EUSAGE. */
int sp_archs_check(const char *list);

/* "sm_90,sm_120" */
void sp_archs_text(char out[SP_ARCH_TEXT], const struct sp_archs *archs);

#endif
