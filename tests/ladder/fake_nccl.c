/*
 * As much of NCCL as the control arm uses, over shared memory of processes, so that the arm's own logic runs without a
 * GPU. FAKE_NCCL=ARM:HOW breaks it: ARM is host (NCCL_P2P_DISABLE=1) or default, HOW is wrong, hang or error.
 */
#include <fcntl.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { RANKS = 8, LONGEST = 4 << 20, BF16 = 9 };

struct ncclUniqueId {
    char bytes[128];
};

struct common {
    uint32_t arrived, round;
    unsigned char slot[RANKS][LONGEST];
};

static struct {
    struct common *common;
    int rank, world;
} self;

int ncclGetVersion(int *version);
int ncclGetUniqueId(struct ncclUniqueId *out);
int ncclCommInitRank(void **comm, int world, struct ncclUniqueId id, int rank);
int ncclAllReduce(const void *in, void *out, size_t count, int type, int operation, void *comm, void *stream);
int ncclCommDestroy(void *comm);
const char *ncclGetErrorString(int result);

static int told(const char *how)
{
    const char *fault = getenv("FAKE_NCCL"), *arm = getenv("NCCL_P2P_DISABLE") != NULL ? "host:" : "default:";

    return fault != NULL && strncmp(fault, arm, strlen(arm)) == 0 && strcmp(fault + strlen(arm), how) == 0;
}

int ncclGetVersion(int *version)
{
    *version = 22809;
    return 0;
}

int ncclGetUniqueId(struct ncclUniqueId *out)
{
    int fd = memfd_create("fake-nccl", 0);

    (void)snprintf(out->bytes, sizeof out->bytes, "/proc/%d/fd/%d", getpid(), fd);
    return ftruncate(fd, sizeof(struct common)) == 0 ? 0 : 2;
}

int ncclCommInitRank(void **comm, int world, struct ncclUniqueId id, int rank)
{
    int fd = told("error") ? -1 : open(id.bytes, O_RDWR);

    if (fd < 0)
        return 2;
    self.common = mmap(NULL, sizeof(struct common), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    self.rank = rank;
    self.world = world;
    close(fd);
    *comm = &self;
    return 0;
}

static void barrier(void)
{
    struct common *c = self.common;
    const uint32_t round = __atomic_load_n(&c->round, __ATOMIC_ACQUIRE);

    if (__atomic_add_fetch(&c->arrived, 1, __ATOMIC_ACQ_REL) == (uint32_t)self.world) {
        __atomic_store_n(&c->arrived, 0, __ATOMIC_RELEASE);
        __atomic_store_n(&c->round, round + 1, __ATOMIC_RELEASE);
    }
    while (__atomic_load_n(&c->round, __ATOMIC_ACQUIRE) == round)
        (void)sched_yield();
}

static float number(const void *from, int type, size_t index)
{
    uint32_t bits = type == BF16 ? (uint32_t)((const uint16_t *)from)[index] << 16 : ((const uint32_t *)from)[index];
    float value;

    memcpy(&value, &bits, sizeof value);
    return value;
}

static void put(void *to, int type, size_t index, float value)
{
    uint32_t bits;

    memcpy(&bits, &value, sizeof bits);
    if (type == BF16)
        ((uint16_t *)to)[index] = (uint16_t)(bits >> 16);
    else
        ((uint32_t *)to)[index] = bits;
}

int ncclAllReduce(const void *in, void *out, size_t count, int type, int operation, void *comm, void *stream)
{
    (void)operation;
    (void)comm;
    (void)stream;
    memcpy(self.common->slot[self.rank], in, count * (type == BF16 ? 2 : 4));
    if (told("hang"))
        for (;;)
            (void)pause();
    barrier();
    for (size_t i = 0; i < count; i++) {
        float sum = 0;

        for (int r = 0; r < self.world; r++)
            sum += number(self.common->slot[r], type, i);
        put(out, type, i, told("wrong") && self.rank == 1 && i == 17 ? sum + 1 : sum);
    }
    barrier();
    return 0;
}

int ncclCommDestroy(void *comm)
{
    (void)comm;
    return 0;
}

const char *ncclGetErrorString(int result)
{
    return result == 2 ? "unhandled system error" : "no error";
}
