/* device.cu: one kernel per protocol and dtype. */
#include "device.h"
#include "protocol.h"

#define PAR_KERNEL(protocol, suffix, dtype)                                                                       \
    extern "C" __global__ void __launch_bounds__(PAR_MAX_WORKERS + PAR_KEEPER_THREADS)                            \
        par_kernel_##protocol##_##suffix(const __grid_constant__ par_launch launch)                               \
    {                                                                                                             \
        par_##protocol(&launch.call[blockIdx.y], dtype);                                                          \
    }

#define PAR_KERNEL_SET(protocol)                                                                                  \
    PAR_KERNEL(protocol, fp16, PAR_FP16)                                                                          \
    PAR_KERNEL(protocol, bf16, PAR_BF16)                                                                          \
    PAR_KERNEL(protocol, fp32, PAR_FP32)

PAR_KERNEL_SET(sentinel_one_shot)
PAR_KERNEL_SET(sentinel_two_shot)
PAR_KERNEL_SET(chunked_one_shot)
PAR_KERNEL_SET(chunked_two_shot)

#define PAR_ROW(protocol)                                                                                         \
    (const void *)par_kernel_##protocol##_fp16, (const void *)par_kernel_##protocol##_bf16,                       \
        (const void *)par_kernel_##protocol##_fp32

const void *par_kernel_at(int i)
{
    const void *const kernels[PAR_KERNELS] = {PAR_ROW(sentinel_one_shot), PAR_ROW(sentinel_two_shot),
                                              PAR_ROW(chunked_one_shot), PAR_ROW(chunked_two_shot)};
    return kernels[i];
}

const void *par_kernel(int algorithm, int dtype)
{
    return par_kernel_at((2 * par_is_chunked(algorithm) + par_is_two_shot(algorithm)) * PAR_DTYPES + dtype);
}
