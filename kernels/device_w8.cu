/* device_w8.cu: the plain and tagged kernels for a world of 8 ranks. */
#define PAR_WORLD(c) 8u
#include "kernel.h"

PAR_KERNELS_FOR(_w8)
