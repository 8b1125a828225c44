/*
 * gpu.cuh: what the program's kernels have in common: accesses that no compiler leaves out, and the clock.
 */
#ifndef GPU_GPU_CUH
#define GPU_GPU_CUH

#include <cuda_runtime.h>
#include <stdint.h>

static __device__ uint64_t nanoseconds_now()
{
    uint64_t t;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(t));
    return t;
}

static __device__ uint4 load(const uint4 *p)
{
    uint4 v;
    asm volatile("ld.volatile.global.v4.u32 {%0,%1,%2,%3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(p));
    return v;
}

static __device__ void store(uint4 *p, uint4 v)
{
    asm volatile("st.volatile.global.v4.u32 [%0], {%1,%2,%3,%4};"
                 :: "l"(p), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w) : "memory");
}

#endif
