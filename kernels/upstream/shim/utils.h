/*
 * utils.h: stands in for the header of that name in the kernel package, which drags in all of torch. The all-reduce
 * itself needs of it the check of CUDA calls, and standard headers that torch brings along by chance.
 */
#ifndef UPSTREAM_SHIM_UTILS_H
#define UPSTREAM_SHIM_UTILS_H

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <cuda_runtime.h>
#include <stdexcept>
#include <string>

/* Throws what failed, with CUDA's reason. Not while a communicator is taken down: destructors must not throw. */
void upstream_check(cudaError_t error, const char *call);

#define CHECK_CUDA_SUCCESS(call) upstream_check((call), #call)

#endif
