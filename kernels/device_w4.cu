/* device_w4.cu: the sentinel kernels for a world of 4 ranks. */
#define PAR_WORLD(c) 4u
#include "kernel.h"

PAR_KERNELS_OF(sentinel_one_shot, _w4)
PAR_KERNELS_OF(sentinel_two_shot, _w4)
