/* device_w2.cu: the sentinel kernels for a world of 2 ranks. */
#define PAR_WORLD(c) 2u
#include "kernel.h"

PAR_KERNELS_OF(sentinel_one_shot, _w2)
PAR_KERNELS_OF(sentinel_two_shot, _w2)
