/* device_w2.cu: the plain and tagged kernels for a world of 2 ranks. */
#define PAR_WORLD(c) 2u
#include "kernel.h"

PAR_KERNELS_FOR(_w2)
