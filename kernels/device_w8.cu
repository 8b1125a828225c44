/* device_w8.cu: the plain and tagged kernels for a world of 8 ranks, one on this GPU. */
#define PAR_WORLD(c) 8u
#define PAR_ONE_RANK
#include "kernel.h"

PAR_KERNELS_FOR(_w8)
