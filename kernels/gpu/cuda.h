/*
 * cuda.h: the CUDA runtime with errors as result codes.
 */
#ifndef GPU_CUDA_H
#define GPU_CUDA_H

#include "ranks.h"

#include <cuda_runtime_api.h>

/* rc = CUDA(call); 0, or CODE_CANNOT with the call and CUDA's reason recorded. */
#define CUDA(call) cuda_ok((cudaError_t)(call), #call)

int cuda_ok(cudaError_t error, const char *call);

#endif
