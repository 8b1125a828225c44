/* device_w4.cu: the plain and tagged kernels for a world of 4 ranks. */
#define PAR_WORLD(c) 4u
#include "kernel.h"

PAR_KERNELS_FOR(_w4)
