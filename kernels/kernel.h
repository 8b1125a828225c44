/*
 * kernel.h: makes kernels of the protocols. Plain and tagged kernels are compiled for the usual world sizes too, where
 * a constant world takes most of a microsecond off; the including file says which.
 */
#ifndef PAR_KERNEL_H
#define PAR_KERNEL_H

#include "device.h"
#include "protocol.h"

/* A kernel for any world serves all ranks of its GPU in one launch. One for a given world serves a single rank: its
 * call is at a constant place, and no instruction is spent on finding it. */
#ifdef PAR_ONE_RANK
#define PAR_ARGUMENT par_call
#define PAR_CALL(argument) (&(argument))
#else
#define PAR_ARGUMENT par_launch
#define PAR_CALL(argument) (&(argument).call[blockIdx.y])
#endif

/* One block a multiprocessor is what a call needs; asked for no more, the compiler spills no registers. */
#define PAR_KERNEL(protocol, suffix, dtype, workers)                                                              \
    extern "C" __global__ void __launch_bounds__((workers) + PAR_KEEPER_THREADS, 1)                               \
        par_kernel_##protocol##_##suffix(const __grid_constant__ PAR_ARGUMENT argument)                           \
    {                                                                                                             \
        par_##protocol(PAR_CALL(argument), dtype);                                                                \
    }

/* The kernels of a protocol, and a table of them. tag: nothing, or _w2 and so on. */
#define PAR_KERNELS_OF(protocol, tag, workers)                                                                    \
    PAR_KERNEL(protocol, fp16##tag, PAR_FP16, workers)                                                            \
    PAR_KERNEL(protocol, bf16##tag, PAR_BF16, workers)                                                            \
    PAR_KERNEL(protocol, fp32##tag, PAR_FP32, workers)                                                            \
    const void *par_kernels_##protocol##tag(int dtype)                                                            \
    {                                                                                                             \
        const void *const kernels[PAR_DTYPES] = {(const void *)par_kernel_##protocol##_fp16##tag,                 \
                                                 (const void *)par_kernel_##protocol##_bf16##tag,                 \
                                                 (const void *)par_kernel_##protocol##_fp32##tag};                \
        return kernels[dtype];                                                                                    \
    }

/* All kernels for a world size. */
#define PAR_KERNELS_FOR(tag)                                                                                      \
    PAR_KERNELS_OF(plain_one_shot, tag, PAR_MAX_WORKERS)                                                          \
    PAR_KERNELS_OF(plain_two_shot, tag, PAR_MAX_WORKERS)                                                          \
    PAR_KERNELS_OF(tagged_one_shot, tag, PAR_TAGGED_WORKERS)                                                      \
    PAR_KERNELS_OF(tagged_two_shot, tag, PAR_TAGGED_WORKERS)                                                      \
    const void *par_kernels_for##tag(int tagged, int two, int dtype)                                              \
    {                                                                                                             \
        const void *plain = two ? par_kernels_plain_two_shot##tag(dtype) : par_kernels_plain_one_shot##tag(dtype);\
        return !tagged ? plain                                                                                    \
               : two   ? par_kernels_tagged_two_shot##tag(dtype)                                                  \
                       : par_kernels_tagged_one_shot##tag(dtype);                                                 \
    }

#endif
