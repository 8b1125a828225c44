/* device_w8.cu: the sentinel kernels for a world of 8 ranks. */
#define PAR_WORLD(c) 8u
#include "kernel.h"

PAR_KERNELS_OF(sentinel_one_shot, _w8)
PAR_KERNELS_OF(sentinel_two_shot, _w8)
