/* device_w4.cu: the plain and tagged kernels for a world of 4 ranks, one on this GPU. */
#define PAR_WORLD(c) 4u
#define PAR_ONE_RANK
#include "kernel.h"

PAR_KERNELS_FOR(_w4)
