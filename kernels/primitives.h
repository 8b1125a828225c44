/*
 * primitives.h: the few device operations that the protocols are written on.
 *
 * The protocol sources (protocol.h and what it includes) use these and nothing else of CUDA: no shared memory, no warp
 * operations, no CUDA types. nvcc compiles them into kernels. A host compiler, without __CUDACC__, takes the
 * declarations at the end of this file, which an emulator defines; it can run every thread as a fibre against a memory
 * that delays, splits and reorders.
 *
 * Four kinds of memory access, and no others:
 *   par_ld*, par_st*          memory that other GPUs or the host see: 32-bit elements, relaxed, system scope
 *   par_own_*                 this rank's private device memory, ordered by block barrier and kernel boundary
 *   par_in*, par_out*         the caller's input and output, plain
 *   par_call                  kernel arguments, constant
 * A 16-byte access is four 32-bit elements that may be seen apart and in any order.
 */
#ifndef PAR_PRIMITIVES_H
#define PAR_PRIMITIVES_H

#include <stdint.h>

typedef struct { uint32_t w[4]; } par_vec; /* 16 bytes: the unit of transfer */

#ifdef __CUDACC__

#define PAR_DEV static __device__ __forceinline__
#define PAR_COLD extern "C" inline __device__ __noinline__ /* off the fast path */
#define PAR_UNROLL _Pragma("unroll")

/* Shared memory between ranks: relaxed at system scope. Pointers to par_vec are 16-byte aligned. */

PAR_DEV uint32_t par_ld(const uint32_t *p)
{
    uint32_t v;
    asm volatile("ld.relaxed.sys.global.u32 %0, [%1];" : "=r"(v) : "l"(p) : "memory");
    return v;
}

PAR_DEV uint32_t par_ld_acquire(const uint32_t *p)
{
    uint32_t v;
    asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(v) : "l"(p) : "memory");
    return v;
}

PAR_DEV par_vec par_ld4(const uint32_t *p)
{
    par_vec v;
    asm volatile("ld.relaxed.sys.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.w[0]), "=r"(v.w[1]), "=r"(v.w[2]), "=r"(v.w[3]) : "l"(p) : "memory");
    return v;
}

PAR_DEV void par_st(uint32_t *p, uint32_t v)
{
    asm volatile("st.relaxed.sys.global.u32 [%0], %1;" :: "l"(p), "r"(v) : "memory");
}

PAR_DEV void par_st4(uint32_t *p, par_vec v)
{
    asm volatile("st.relaxed.sys.global.v4.u32 [%0], {%1, %2, %3, %4};"
                 :: "l"(p), "r"(v.w[0]), "r"(v.w[1]), "r"(v.w[2]), "r"(v.w[3]) : "memory");
}

/* Order this thread's accesses, and those that a block barrier put before them, at system scope. */
PAR_DEV void par_fence(void) { asm volatile("fence.acq_rel.sys;" ::: "memory"); }

/* Barrier of all threads of the block; orders their memory accesses among each other. Returns whether any of them
 * passed non-zero. */
PAR_DEV int par_barrier_or(int any) { return __syncthreads_or(any); }

/*
 * Half a barrier each: workers signal and go on; the others of the block wait until all workers have signalled, and are
 * ordered behind them. Workers signal again only after the others have waited. id is 1 or 2.
 */
PAR_DEV void par_signal(uint32_t id)
{
    asm volatile("barrier.cta.arrive %0, %1;" :: "r"(id), "r"(blockDim.x) : "memory");
}

PAR_DEV void par_wait_signals(uint32_t id)
{
    asm volatile("barrier.cta.sync %0, %1;" :: "r"(id), "r"(blockDim.x) : "memory");
}

/* This rank's private memory. */

PAR_DEV uint32_t par_own_ld(const uint32_t *p)
{
    uint32_t v;
    asm volatile("ld.global.u32 %0, [%1];" : "=r"(v) : "l"(p) : "memory");
    return v;
}

PAR_DEV void par_own_st(uint32_t *p, uint32_t v)
{
    asm volatile("st.global.u32 [%0], %1;" :: "l"(p), "r"(v) : "memory");
}

/* Atomic exchange, device scope: detects two kernels that run at the same time, and gives a claim to one thread. */
PAR_DEV uint32_t par_own_exchange(uint32_t *p, uint32_t v)
{
    uint32_t old;
    asm volatile("atom.relaxed.gpu.global.exch.b32 %0, [%1], %2;" : "=r"(old) : "l"(p), "r"(v) : "memory");
    return old;
}

/* The caller's input and output. in and out may be the same memory, so nothing here is read-only or non-coherent. */

PAR_DEV par_vec par_in4(const void *p)
{
    par_vec v;
    asm volatile("ld.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.w[0]), "=r"(v.w[1]), "=r"(v.w[2]), "=r"(v.w[3]) : "l"(p) : "memory");
    return v;
}

PAR_DEV uint32_t par_in_u32(const void *p) { return *(const volatile uint32_t *)p; }
PAR_DEV uint32_t par_in_u16(const void *p) { return *(const volatile uint16_t *)p; }

PAR_DEV void par_out4(void *p, par_vec v)
{
    asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};"
                 :: "l"(p), "r"(v.w[0]), "r"(v.w[1]), "r"(v.w[2]), "r"(v.w[3]) : "memory");
}

PAR_DEV void par_out_u32(void *p, uint32_t v) { *(volatile uint32_t *)p = v; }
PAR_DEV void par_out_u16(void *p, uint32_t v) { *(volatile uint16_t *)p = (uint16_t)v; }

/* Who am I, what time is it. */

PAR_DEV uint32_t par_thread(void) { return threadIdx.x; }   /* thread in the block */
PAR_DEV uint32_t par_thread_again(void)                     /* the same, which the compiler does not know */
{
    uint32_t i;
    asm volatile("mov.u32 %0, %%tid.x;" : "=r"(i));
    return i;
}
PAR_DEV uint32_t par_threads(void) { return blockDim.x; }   /* threads of the block */
PAR_DEV uint32_t par_block(void) { return blockIdx.x; }     /* block = lane */
PAR_DEV uint32_t par_blocks(void) { return gridDim.x; }     /* blocks of this rank */

PAR_DEV uint64_t par_clock_ns(void)
{
    uint64_t t;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(t));
    return t;
}

/* End the kernel with an error that the host sees at its next synchronisation. */
PAR_DEV void par_trap(void) { asm volatile("trap;"); }

#else /* a host compiler: an emulator defines these, with the meaning given above */

#define PAR_DEV static inline
#define PAR_COLD static
#define PAR_UNROLL

#ifdef __cplusplus
extern "C" {
#endif
uint32_t par_ld(const uint32_t *p);
uint32_t par_ld_acquire(const uint32_t *p);
par_vec par_ld4(const uint32_t *p);
void par_st(uint32_t *p, uint32_t v);
void par_st4(uint32_t *p, par_vec v);
void par_fence(void);
int par_barrier_or(int any);
void par_signal(uint32_t id);
void par_wait_signals(uint32_t id);
uint32_t par_own_ld(const uint32_t *p);
void par_own_st(uint32_t *p, uint32_t v);
uint32_t par_own_exchange(uint32_t *p, uint32_t v);
par_vec par_in4(const void *p);
uint32_t par_in_u32(const void *p);
uint32_t par_in_u16(const void *p);
void par_out4(void *p, par_vec v);
void par_out_u32(void *p, uint32_t v);
void par_out_u16(void *p, uint32_t v);
uint32_t par_thread(void);
#define par_thread_again par_thread
uint32_t par_threads(void);
uint32_t par_block(void);
uint32_t par_blocks(void);
uint64_t par_clock_ns(void);
void par_trap(void);
#ifdef __cplusplus
}
#endif

#endif
#endif
