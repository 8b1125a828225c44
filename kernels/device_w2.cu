/* device_w2.cu: the plain and tagged kernels for a world of 2 ranks, one on this GPU. */
#define PAR_WORLD(c) 2u
#define PAR_ONE_RANK
#include "kernel.h"

PAR_KERNELS_FOR(_w2)
