/*
 * kernel.h: makes kernels of the protocols. The sentinel kernels are compiled for the usual world sizes too, where a
 * constant world takes most of a microsecond off; the including file says which.
 */
#ifndef PAR_KERNEL_H
#define PAR_KERNEL_H

#include "device.h"
#include "protocol.h"

#define PAR_KERNEL(protocol, suffix, dtype)                                                                       \
    extern "C" __global__ void __launch_bounds__(PAR_MAX_WORKERS + PAR_KEEPER_THREADS)                            \
        par_kernel_##protocol##_##suffix(const __grid_constant__ par_launch launch)                               \
    {                                                                                                             \
        par_##protocol(&launch.call[blockIdx.y], dtype);                                                          \
    }

/* The kernels of a protocol, and a table of them. tag: nothing, or _w2 and so on. */
#define PAR_KERNELS_OF(protocol, tag)                                                                             \
    PAR_KERNEL(protocol, fp16##tag, PAR_FP16)                                                                     \
    PAR_KERNEL(protocol, bf16##tag, PAR_BF16)                                                                     \
    PAR_KERNEL(protocol, fp32##tag, PAR_FP32)                                                                     \
    const void *par_kernels_##protocol##tag(int dtype)                                                            \
    {                                                                                                             \
        const void *const kernels[PAR_DTYPES] = {(const void *)par_kernel_##protocol##_fp16##tag,                 \
                                                 (const void *)par_kernel_##protocol##_bf16##tag,                 \
                                                 (const void *)par_kernel_##protocol##_fp32##tag};                \
        return kernels[dtype];                                                                                    \
    }

#define PAR_DECLARE(protocol, tag) const void *par_kernels_##protocol##tag(int dtype);

#endif
