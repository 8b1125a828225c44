/*
 * As much of the CUDA runtime as the transfer test uses, in shared memory of processes: "GPU memory" is a memfd, an IPC
 * handle names it as /proc/PID/fd/N, a kernel runs where it is launched. So the test's own logic, its waits and each of
 * its failures are run without a GPU. STANDIN_GPUS: how many there are (default 4); FAKE_NO_P2P=A-B: A may not access
 * B.
 */
#include "kernels/gpu/check.h"
#include "kernels/gpu/copies.h"
#include "kernels/gpu/ranks.h"

#include <cuda_runtime_api.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { MAPPINGS = 64, WAIT_S = 5 };
static const double PASS_S = 50e-6; /* of check_stream() */

static struct {
    void *memory;
    size_t bytes;
    int fd;
} mapping[MAPPINGS];
static int device, hung;

typedef struct {
    int pid, fd;
    size_t bytes;
} handle;

/* ---- devices and memory ---- */

cudaError_t cudaGetDeviceCount(int *count)
{
    const char *gpus = getenv("STANDIN_GPUS");

    *count = gpus ? atoi(gpus) : 4;
    return *count > 0 ? cudaSuccess : cudaErrorNoDevice;
}

cudaError_t cudaSetDevice(int to)
{
    device = to;
    return cudaSuccess;
}

cudaError_t cudaDeviceCanAccessPeer(int *can, int a, int b)
{
    const char *refused = getenv("FAKE_NO_P2P");
    int from = -1, to = -1;

    if (refused)
        (void)sscanf(refused, "%d-%d", &from, &to);
    *can = !(a == from && b == to);
    return cudaSuccess;
}

cudaError_t cudaMalloc(void **out, size_t bytes)
{
    int i = 0;

    while (mapping[i].memory)
        i++;
    mapping[i].fd = memfd_create("fake", 0);
    if (ftruncate(mapping[i].fd, (off_t)bytes) != 0)
        return cudaErrorMemoryAllocation;
    mapping[i].bytes = bytes;
    mapping[i].memory = *out = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, mapping[i].fd, 0);
    return cudaSuccess;
}

cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t *out, void *memory)
{
    handle h = {getpid(), -1, 0};

    for (int i = 0; i < MAPPINGS; i++)
        if (mapping[i].memory == memory) {
            h.fd = mapping[i].fd;
            h.bytes = mapping[i].bytes;
        }
    memcpy(out, &h, sizeof h);
    return cudaSuccess;
}

cudaError_t cudaIpcOpenMemHandle(void **out, cudaIpcMemHandle_t in, unsigned flags)
{
    char path[64];
    handle h;
    int fd;

    (void)flags;
    memcpy(&h, &in, sizeof h);
    (void)snprintf(path, sizeof path, "/proc/%d/fd/%d", h.pid, h.fd);
    fd = getenv("FAKE_NO_MAPPING") ? -1 : open(path, O_RDWR);
    if (fd < 0)
        return cudaErrorMapBufferObjectFailed;
    *out = mmap(NULL, h.bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    return cudaSuccess;
}

cudaError_t cudaHostRegister(void *memory, size_t bytes, unsigned flags)
{
    (void)memory;
    (void)bytes;
    (void)flags;
    return cudaSuccess;
}

cudaError_t cudaHostGetDevicePointer(void **out, void *memory, unsigned flags)
{
    (void)flags;
    *out = memory;
    return cudaSuccess;
}

cudaError_t cudaMemset(void *to, int value, size_t bytes)
{
    memset(to, value, bytes);
    return cudaSuccess;
}

cudaError_t cudaMemsetAsync(void *to, int value, size_t bytes, cudaStream_t stream)
{
    (void)stream;
    return cudaMemset(to, value, bytes);
}

cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind)
{
    (void)kind;
    memcpy(to, from, bytes);
    return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind, cudaStream_t stream)
{
    (void)stream;
    return cudaMemcpy(to, from, bytes, kind);
}

/* ---- streams and events ---- */

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *out, unsigned flags)
{
    (void)flags;
    *out = NULL;
    return cudaSuccess;
}

cudaError_t cudaStreamQuery(cudaStream_t stream)
{
    (void)stream;
    return hung ? cudaErrorNotReady : cudaSuccess;
}

cudaError_t cudaEventCreate(cudaEvent_t *out)
{
    *out = calloc(1, sizeof(double));
    return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    free(event);
    return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
    (void)stream;
    *(double *)(void *)event = seconds_now();
    return cudaSuccess;
}

cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t from, cudaEvent_t to)
{
    *ms = (float)(1e3 * (*(double *)(void *)to - *(double *)(void *)from));
    return cudaSuccess;
}

cudaError_t cudaGetLastError(void)
{
    return cudaSuccess;
}

const char *cudaGetErrorString(cudaError_t error)
{
    return error == cudaErrorNoDevice ? "no CUDA-capable device is detected" : "a fake error";
}

const char *cudaGetErrorName(cudaError_t error)
{
    return error == cudaErrorNoDevice ? "cudaErrorNoDevice" : "cudaErrorFake";
}

/* ---- what is asked about a device ---- */

cudaError_t cudaRuntimeGetVersion(int *version)
{
    *version = 13000;
    return cudaSuccess;
}

cudaError_t cudaDriverGetVersion(int *version)
{
    return cudaRuntimeGetVersion(version);
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *properties, int of)
{
    (void)of;
    memset(properties, 0, sizeof *properties);
    return cudaSuccess;
}

cudaError_t cudaDeviceGetPCIBusId(char *out, int size, int of)
{
    (void)snprintf(out, (size_t)size, "0000:%02x:00.0", of + 1);
    return cudaSuccess;
}

cudaError_t cudaMemGetInfo(size_t *available, size_t *total)
{
    *available = *total = 1 << 30;
    return cudaSuccess;
}

/* ---- kernels ---- */

static uint32_t word(uint32_t key, uint32_t index)
{
    return (key ^ index * 0x9e3779b9u) * 0x85ebca6bu;
}

int copies_load(void)
{
    return 0;
}

int check_load(void)
{
    return 0;
}

int copies_fill(void *to, uint32_t key, size_t bytes, void *stream)
{
    (void)stream;
    for (uint32_t i = 0; i < bytes / 4; i++)
        ((volatile uint32_t *)to)[i] = word(key, i);
    return 0;
}

int copies_check(const void *from, uint32_t key, size_t bytes, int as_nan, copies_tally *tally, void *stream)
{
    (void)stream;
    for (uint32_t i = 0; i < bytes / 4; i++) {
        const uint32_t seen = as_nan ? 0x7fc00000u : ((const volatile uint32_t *)from)[i];

        if (seen != word(key, i) && tally->wrong++ == 0) {
            tally->index = i;
            tally->expected = word(key, i);
            tally->seen = seen;
        }
    }
    return 0;
}

static int await(const uint32_t *flag, uint32_t value)
{
    const double end = seconds_now() + WAIT_S;

    while (__atomic_load_n(flag, __ATOMIC_ACQUIRE) != value)
        if (seconds_now() > end || sched_yield() != 0) /* there may be fewer cores than ranks */
            return 0;
    return 1;
}

int copies_send(copies_box box, uint32_t key, size_t bytes, int rounds, int drop, copies_tally *tally, void *stream)
{
    for (uint32_t round = 1; round <= (uint32_t)rounds && tally->late == 0; round++) {
        (void)copies_fill(box.data, key + round, drop ? bytes * 3 / 4 : bytes, stream);
        __atomic_store_n(box.flag, round, __ATOMIC_RELEASE);
        tally->late = await(box.ack, round) ? 0 : round;
    }
    return 0;
}

int copies_receive(copies_box box, uint32_t key, size_t bytes, int rounds, int as_nan, copies_tally *tally,
                   void *stream)
{
    for (uint32_t round = 1; round <= (uint32_t)rounds && tally->late == 0; round++) {
        tally->late = await(box.flag, round) ? 0 : round;
        if (tally->late != 0)
            break;
        (void)copies_check(box.data, key + round, bytes, as_nan, tally, stream);
        __atomic_store_n(box.ack, round, __ATOMIC_RELEASE);
    }
    return 0;
}

int copies_hang(void *stream)
{
    (void)stream;
    hung = 1;
    return 0;
}

int check_ping_pong(uint32_t *in, uint32_t *out, int serves, int rounds, uint32_t *failed, void *stream)
{
    (void)stream;
    for (uint32_t i = 1; i <= (uint32_t)rounds && *failed == 0; i++) {
        if (serves)
            __atomic_store_n(out, i, __ATOMIC_RELEASE);
        *failed = !await(in, i);
        if (!serves)
            __atomic_store_n(out, i, __ATOMIC_RELEASE);
    }
    return 0;
}

int check_stream(void *read, void *write, size_t window, int passes, int what, uint32_t *sink, void *stream)
{
    (void)stream;
    seconds_sleep(PASS_S * passes);
    if (what & CHECK_WRITE)
        memset(write, 1, window);
    *sink ^= *(volatile uint32_t *)read;
    return 0;
}
