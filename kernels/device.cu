/* device.cu: the kernels for any world size, and the choice among all. */
#include "kernel.h"

PAR_KERNELS_OF(sentinel_one_shot, )
PAR_KERNELS_OF(sentinel_two_shot, )
PAR_KERNELS_OF(chunked_one_shot, )
PAR_KERNELS_OF(chunked_two_shot, )

PAR_DECLARE(sentinel_one_shot, _w2)
PAR_DECLARE(sentinel_two_shot, _w2)
PAR_DECLARE(sentinel_one_shot, _w4)
PAR_DECLARE(sentinel_two_shot, _w4)
PAR_DECLARE(sentinel_one_shot, _w8)
PAR_DECLARE(sentinel_two_shot, _w8)

static const void *sentinel_kernel(int two, int dtype, int world)
{
    switch (world) {
    case 2: return two ? par_kernels_sentinel_two_shot_w2(dtype) : par_kernels_sentinel_one_shot_w2(dtype);
    case 4: return two ? par_kernels_sentinel_two_shot_w4(dtype) : par_kernels_sentinel_one_shot_w4(dtype);
    case 8: return two ? par_kernels_sentinel_two_shot_w8(dtype) : par_kernels_sentinel_one_shot_w8(dtype);
    default: return two ? par_kernels_sentinel_two_shot(dtype) : par_kernels_sentinel_one_shot(dtype);
    }
}

const void *par_kernel(int algorithm, int dtype, int world)
{
    const int two = par_is_two_shot(algorithm);
    const void *kernel;
    if (par_is_chunked(algorithm))
        kernel = two ? par_kernels_chunked_two_shot(dtype) : par_kernels_chunked_one_shot(dtype);
    else
        kernel = sentinel_kernel(two, dtype, world);
    return kernel;
}
