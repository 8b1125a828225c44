#include "copies.h"
#include "gpu.cuh"

#define PATIENCE_NS 2000000000ull

static __device__ uint32_t word(uint32_t key, uint32_t index)
{
    uint32_t x = key ^ index * 0x9e3779b9u;

    x = (x ^ x >> 16) * 0x85ebca6bu;
    x = (x ^ x >> 13) * 0xc2b2ae35u;
    return x ^ x >> 16;
}

static __device__ uint4 vec(uint32_t key, uint32_t i)
{
    return make_uint4(word(key, 4 * i), word(key, 4 * i + 1), word(key, 4 * i + 2), word(key, 4 * i + 3));
}

static __device__ void note(copies_tally *tally, unsigned long long index, uint32_t expected, uint32_t seen)
{
    if (expected == seen)
        return;
    if (atomicAdd(&tally->wrong, 1ull) == 0) {
        tally->index = index;
        tally->expected = expected;
        tally->seen = seen;
    }
}

static __device__ void compare(const uint4 *from, uint32_t key, uint32_t i, int as_nan, copies_tally *tally)
{
    uint4 is = load(from + i), wanted = vec(key, i);

    if (as_nan)
        is = make_uint4(0x7fc00000u, 0x7fc00000u, 0x7fc00000u, 0x7fc00000u);
    note(tally, 4ull * i, wanted.x, is.x);
    note(tally, 4ull * i + 1, wanted.y, is.y);
    note(tally, 4ull * i + 2, wanted.z, is.z);
    note(tally, 4ull * i + 3, wanted.w, is.w);
}

extern "C" __global__ void copies_fill_kernel(uint4 *to, uint32_t key, uint32_t vecs)
{
    for (uint32_t i = blockIdx.x * blockDim.x + threadIdx.x; i < vecs; i += gridDim.x * blockDim.x)
        store(to + i, vec(key, i));
}

extern "C" __global__ void copies_check_kernel(const uint4 *from, uint32_t key, uint32_t vecs, int as_nan,
                                               copies_tally *tally)
{
    for (uint32_t i = blockIdx.x * blockDim.x + threadIdx.x; i < vecs; i += gridDim.x * blockDim.x)
        compare(from, key, i, as_nan, tally);
}

/* One thread waits for the block. Everybody learns whether it came. */
static __device__ int await(const uint32_t *flag, uint32_t value)
{
    __shared__ int came;
    uint64_t start = nanoseconds_now();

    if (threadIdx.x == 0) {
        came = 1;
        for (uint32_t polls = 1; *(const volatile uint32_t *)flag != value && came; polls++)
            if (polls % 1024 == 0 && nanoseconds_now() - start > PATIENCE_NS)
                came = 0;
        __threadfence_system();
    }
    __syncthreads();
    return came;
}

static __device__ void set_flag(uint32_t *flag, uint32_t value)
{
    __threadfence_system();
    __syncthreads();
    if (threadIdx.x == 0)
        *(volatile uint32_t *)flag = value;
}

extern "C" __global__ void copies_send_kernel(copies_box box, uint32_t key, uint32_t vecs, int rounds, int drop,
                                              copies_tally *tally)
{
    for (int round = 1; round <= rounds; round++) {
        for (uint32_t i = threadIdx.x; i < vecs - (drop ? vecs / 4 : 0); i += blockDim.x)
            store((uint4 *)box.data + i, vec(key + round, i));
        set_flag(box.flag, round);
        if (!await(box.ack, round)) {
            if (threadIdx.x == 0)
                tally->late = round;
            return;
        }
    }
}

extern "C" __global__ void copies_receive_kernel(copies_box box, uint32_t key, uint32_t vecs, int rounds, int as_nan,
                                                 copies_tally *tally)
{
    for (int round = 1; round <= rounds; round++) {
        if (!await(box.flag, round)) {
            if (threadIdx.x == 0)
                tally->late = round;
            return;
        }
        for (uint32_t i = threadIdx.x; i < vecs; i += blockDim.x)
            compare((const uint4 *)box.data, key + round, i, as_nan, tally);
        set_flag(box.ack, round);
    }
}

extern "C" __global__ void copies_hang_kernel(volatile uint32_t *never)
{
    while (*never == 0)
        ;
}

/* --- launches -------------------------------------------------------------------------------- */

int copies_fill(void *to, uint32_t key, size_t bytes, void *stream)
{
    copies_fill_kernel<<<64, 512, 0, (cudaStream_t)stream>>>((uint4 *)to, key, (uint32_t)(bytes / 16));
    return (int)cudaGetLastError();
}

int copies_check(const void *from, uint32_t key, size_t bytes, int as_nan, copies_tally *tally, void *stream)
{
    copies_check_kernel<<<64, 512, 0, (cudaStream_t)stream>>>((const uint4 *)from, key, (uint32_t)(bytes / 16), as_nan,
                                                              tally);
    return (int)cudaGetLastError();
}

int copies_send(copies_box box, uint32_t key, size_t bytes, int rounds, int drop, copies_tally *tally, void *stream)
{
    copies_send_kernel<<<1, 256, 0, (cudaStream_t)stream>>>(box, key, (uint32_t)(bytes / 16), rounds, drop, tally);
    return (int)cudaGetLastError();
}

int copies_receive(copies_box box, uint32_t key, size_t bytes, int rounds, int as_nan, copies_tally *tally, void *stream)
{
    copies_receive_kernel<<<1, 256, 0, (cudaStream_t)stream>>>(box, key, (uint32_t)(bytes / 16), rounds, as_nan, tally);
    return (int)cudaGetLastError();
}

int copies_hang(void *stream)
{
    uint32_t *never = NULL;
    cudaError_t rc = cudaMalloc(&never, 256);

    if (rc == cudaSuccess)
        rc = cudaMemset(never, 0, 256);
    if (rc == cudaSuccess)
        copies_hang_kernel<<<1, 1, 0, (cudaStream_t)stream>>>(never);
    return rc != cudaSuccess ? (int)rc : (int)cudaGetLastError();
}

int copies_load(void)
{
    const void *const kernels[] = {(const void *)copies_fill_kernel, (const void *)copies_check_kernel,
                                   (const void *)copies_send_kernel, (const void *)copies_receive_kernel,
                                   (const void *)copies_hang_kernel};
    cudaFuncAttributes attributes;
    cudaError_t rc = cudaSuccess;

    for (size_t i = 0; i < sizeof(kernels) / sizeof(kernels[0]) && rc == cudaSuccess; i++)
        rc = cudaFuncGetAttributes(&attributes, kernels[i]);
    return (int)rc;
}
