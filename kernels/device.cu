/* device.cu: the kernels for any world size, and the choice among all. */
#include "kernel.h"

PAR_KERNELS_FOR(_any)
PAR_KERNELS_OF(chunked_one_shot, , PAR_MAX_WORKERS)
PAR_KERNELS_OF(chunked_two_shot, , PAR_MAX_WORKERS)

const void *par_kernels_for_w2(int tagged, int two, int dtype);
const void *par_kernels_for_w4(int tagged, int two, int dtype);
const void *par_kernels_for_w8(int tagged, int two, int dtype);

const void *par_kernel(int algorithm, int dtype, int world, unsigned ranks)
{
    const int two = par_is_two_shot(algorithm), tagged = par_is_tagged(algorithm);
    const void *kernel;
    if (par_is_chunked(algorithm))
        kernel = two ? par_kernels_chunked_two_shot(dtype) : par_kernels_chunked_one_shot(dtype);
    else if (ranks > 1)
        kernel = par_kernels_for_any(tagged, two, dtype);
    else if (world == 2)
        kernel = par_kernels_for_w2(tagged, two, dtype);
    else if (world == 4)
        kernel = par_kernels_for_w4(tagged, two, dtype);
    else if (world == 8)
        kernel = par_kernels_for_w8(tagged, two, dtype);
    else
        kernel = par_kernels_for_any(tagged, two, dtype);
    return kernel;
}
