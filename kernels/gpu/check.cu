#include "check.h"
#include "gpu.cuh"

static __device__ uint32_t element(const void *data, size_t i, size_t size)
{
    return size == 4 ? ((const uint32_t *)data)[i] : ((const uint16_t *)data)[i];
}

extern "C" __global__ void gpu_compare(const void *seen, const void *expected, size_t count, size_t size,
                                       size_t guard_bytes, check_tally *tally)
{
    size_t step = (size_t)gridDim.x * blockDim.x, start = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
    const uint8_t *before = (const uint8_t *)seen - guard_bytes, *behind = (const uint8_t *)seen + count * size;

    for (size_t i = start; i < count; i += step) {
        uint32_t a = element(seen, i, size), b = element(expected, i, size);
        if (a != b) {
            unsigned long long n = atomicAdd(&tally->wrong, 1ull);
            if (n < CHECK_SAMPLES) {
                tally->sample[n].index = i;
                tally->sample[n].expected = b;
                tally->sample[n].seen = a;
            }
        }
    }
    for (size_t i = start; i < guard_bytes; i += step)
        if (before[i] != CHECK_POISON || behind[i] != CHECK_POISON)
            atomicAdd(&tally->guard, 1ull);
}

extern "C" __global__ void gpu_delay(uint64_t nanoseconds)
{
    uint64_t start = nanoseconds_now();

    while (nanoseconds_now() - start < nanoseconds)
        ;
}

extern "C" __global__ void gpu_layer(uint32_t *data, size_t words)
{
    size_t step = (size_t)gridDim.x * blockDim.x;

    for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; i < words; i += step) {
        uint32_t v = data[i];
        asm volatile("mov.u32 %0, %0;" : "+r"(v)); /* hides from the compiler that nothing changes */
        data[i] = v;
    }
}

extern "C" __global__ void gpu_empty()
{
}

extern "C" __global__ void gpu_copy(const uint4 *in, uint4 *out, size_t vecs)
{
    size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x;

    if (i < vecs)
        out[i] = in[i];
}

extern "C" __global__ void gpu_ping_pong(volatile uint32_t *in, volatile uint32_t *out, int serves, int rounds,
                                         uint32_t *failed)
{
    uint64_t start = nanoseconds_now();

    for (uint32_t i = 1; i <= (uint32_t)rounds; i++) {
        if (serves)
            *out = i;
        for (uint32_t polls = 1; *in != i; polls++)
            if (polls % 4096 == 0 && nanoseconds_now() - start > 2000000000ull) {
                *failed = 1;
                return;
            }
        if (!serves)
            *out = i;
    }
}

extern "C" __global__ void gpu_exchange(check_words words, int rank, int world, uint32_t *turns, uint32_t *failed)
{
    const int peer = (int)threadIdx.x;
    const uint32_t turn = *turns + 1, gone = *failed;

    if (peer < world && peer != rank && !gone) {
        volatile uint32_t *in = words.in[peer];
        uint64_t start = nanoseconds_now();
        *(volatile uint32_t *)words.out[peer] = turn;
        for (uint32_t polls = 1; (int32_t)(*in - turn) < 0; polls++)
            if (polls % 4096 == 0 && nanoseconds_now() - start > 2000000000ull) {
                *failed = 1;
                break;
            }
    }
    __syncthreads();
    if (peer == 0)
        *turns = turn;
}

extern "C" __global__ void gpu_stream(const uint4 *read, uint4 *write, size_t vecs, int passes, int what,
                                      uint32_t *sink)
{
    size_t step = (size_t)gridDim.x * blockDim.x, start = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
    uint4 v = make_uint4(1, 2, 3, 4);
    uint32_t sum = 0;

    for (int pass = 0; pass < passes; pass++)
        for (size_t i = start; i < vecs; i += step) {
            if (what & CHECK_READ) {
                v = load(read + i);
                sum ^= v.x ^ v.y ^ v.z ^ v.w;
            }
            if (what & CHECK_WRITE)
                store(write + i, make_uint4(pass, 2, 3, 4));
        }
    if (sum == 0x12345678u)
        *sink = sum;
}

/* --- launches -------------------------------------------------------------------------------- */

static unsigned blocks_for(size_t items, unsigned most)
{
    size_t blocks = (items + 255) / 256;

    return (unsigned)(blocks < 1 ? 1 : blocks > most ? most : blocks);
}

int check_compare(const void *seen, const void *expected, size_t count, size_t size, size_t guard_bytes,
                  check_tally *tally, void *stream)
{
    size_t items = count > guard_bytes ? count : guard_bytes;

    gpu_compare<<<blocks_for(items, 512), 256, 0, (cudaStream_t)stream>>>(seen, expected, count, size, guard_bytes,
                                                                          tally);
    return (int)cudaGetLastError();
}

int check_delay(uint64_t nanoseconds, void *stream)
{
    gpu_delay<<<1, 1, 0, (cudaStream_t)stream>>>(nanoseconds);
    return (int)cudaGetLastError();
}

int check_layer(void *data, size_t bytes, void *stream)
{
    size_t words = (bytes > 262144 ? 262144 : bytes) / 4;

    gpu_layer<<<blocks_for(words, 128), 256, 0, (cudaStream_t)stream>>>((uint32_t *)data, words);
    return (int)cudaGetLastError();
}

int check_empty(void *stream)
{
    gpu_empty<<<1, 32, 0, (cudaStream_t)stream>>>();
    return (int)cudaGetLastError();
}

int check_copy(const void *in, void *out, size_t bytes, void *stream)
{
    size_t vecs = bytes / 16;

    gpu_copy<<<(unsigned)((vecs + 127) / 128), 128, 0, (cudaStream_t)stream>>>((const uint4 *)in, (uint4 *)out, vecs);
    return (int)cudaGetLastError();
}

int check_ping_pong(uint32_t *in, uint32_t *out, int serves, int rounds, uint32_t *failed, void *stream)
{
    gpu_ping_pong<<<1, 1, 0, (cudaStream_t)stream>>>(in, out, serves, rounds, failed);
    return (int)cudaGetLastError();
}

int check_exchange(const check_words *words, int rank, int world, uint32_t *turns, uint32_t *failed, void *stream)
{
    gpu_exchange<<<1, 32, 0, (cudaStream_t)stream>>>(*words, rank, world, turns, failed);
    return (int)cudaGetLastError();
}

int check_stream(void *read, void *write, size_t window, int passes, int what, uint32_t *sink, void *stream)
{
    gpu_stream<<<64, 512, 0, (cudaStream_t)stream>>>((const uint4 *)read, (uint4 *)write, window / 16, passes, what,
                                                     sink);
    return (int)cudaGetLastError();
}

int check_load(void)
{
    const void *const kernels[] = {(const void *)gpu_compare,   (const void *)gpu_delay,    (const void *)gpu_layer,
                                   (const void *)gpu_empty,     (const void *)gpu_copy,
                                   (const void *)gpu_ping_pong, (const void *)gpu_exchange, (const void *)gpu_stream};
    cudaFuncAttributes attributes;
    cudaError_t rc = cudaSuccess;

    for (size_t i = 0; i < sizeof(kernels) / sizeof(kernels[0]) && rc == cudaSuccess; i++)
        rc = cudaFuncGetAttributes(&attributes, kernels[i]);
    return (int)rc;
}
