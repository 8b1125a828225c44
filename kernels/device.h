/* device.h: the kernels, as the host side sees them. */
#ifndef PAR_DEVICE_H
#define PAR_DEVICE_H

#include "call.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Kernel argument: one call per rank of that GPU; blockIdx.y picks it. 4096 bytes, the most that every driver takes. */
typedef struct { par_call call[PAR_MAX_WORLD]; } par_launch;

/* Threads of the block beyond the workers: a warp of its own for the housekeeper. */
enum { PAR_KEEPER_THREADS = 32 };

/* Kernel of an algorithm, dtype and world size for so many ranks in one launch, for cudaLaunchKernel(). Its only
 * argument is a par_launch, of which it reads the first call alone if there is one rank. */
const void *par_kernel(int algorithm, int dtype, int world, unsigned ranks);

#ifdef __cplusplus
}
#endif
#endif
