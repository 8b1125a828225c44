/*
 * fake_par.c: a libpar.so without a GPU, for tests of what is above it.
 *
 * Ranks are processes; "device pointers" are host pointers; sums go through a file in /dev/shm. It follows the contract
 * of pcie_allreduce.h where callers can see it: creation is collective and fails on all ranks together, errors have
 * texts, auto follows the profile. FAKE_PAR_FAIL=RANK makes that rank fail in creation, FAKE_PAR_LEAVE=RANK makes it
 * leave before the first round.
 */
#include "kernels/pcie_allreduce.h"

#include <fcntl.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { MOST = 4 << 20 };

typedef struct {
    unsigned arrived, left;
    char data[PAR_MAX_WORLD][MOST];
} shared;

struct par_comm {
    int rank, world, aborted, calls;
    shared *memory;
    par_choice choice[64];
    size_t choices;
};

static _Thread_local char text[256];

__attribute__((format(printf, 2, 3))) static int fail(int code, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    return code;
}

const char *par_error_name(int error)
{
    return error == 0 ? "ok" : "error";
}

const char *par_last_error(void)
{
    return text;
}

int par_abi(void)
{
    return PAR_ABI;
}

const char *par_version(void)
{
    return "0.1.0-fake";
}

static const char *const names[PAR_ALGORITHMS] = {
    "auto",          "host-one-shot",        "host-two-shot",         "host-one-shot-chunked", "host-two-shot-chunked",
    "push-one-shot", "push-two-shot",        "push-one-shot-chunked", "push-two-shot-chunked", "pull-one-shot",
    "pull-two-shot", "host-one-shot-tagged", "host-two-shot-tagged",
};

const char *par_algorithm_name(int algorithm)
{
    return algorithm >= 0 && algorithm < PAR_ALGORITHMS ? names[algorithm] : NULL;
}

const char *par_dtype_name(int dtype)
{
    static const char *const dtypes[PAR_DTYPES] = {"fp16", "bf16", "fp32"};
    return dtype >= 0 && dtype < PAR_DTYPES ? dtypes[dtype] : NULL;
}

int par_memory_bound(int world, const par_options *options, uint64_t *device_bytes, uint64_t *host_bytes)
{
    if (world < 2 || world > PAR_MAX_WORLD || options->with == 0)
        return fail(PAR_ERR_ARGUMENT, "world size %d is not in 2..%d", world, PAR_MAX_WORLD);
    *device_bytes = 2 << 20;
    *host_bytes = options->sentinel_bytes;
    return PAR_OK;
}

/* FAKE_PAR_SLEEP_MS: how long creating and closing take. */
static void take_time(void)
{
    const char *value = getenv("FAKE_PAR_SLEEP_MS");
    if (value)
        usleep((unsigned)atoi(value) * 1000u);
}

static int is_rank(const char *variable, int rank)
{
    const char *value = getenv(variable);
    return value && atoi(value) == rank;
}

static shared *map(const char *name, int create)
{
    int fd = open(name, O_RDWR | (create ? O_CREAT | O_EXCL : 0), 0600);
    void *memory = MAP_FAILED;
    if (fd >= 0 && ftruncate(fd, sizeof(shared)) == 0)
        memory = mmap(NULL, sizeof(shared), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (fd >= 0)
        close(fd);
    return memory == MAP_FAILED ? NULL : memory;
}

typedef struct {
    int error;
    char name[60];
} hello;

/* One round; the first failing rank's error is everybody's. */
static int round_of(struct par_comm *comm, par_allgather_fn allgather, void *context, hello *mine, hello *all)
{
    if (allgather(context, mine, all, sizeof *mine) != 0)
        return fail(PAR_ERR_BOOTSTRAP, "the all-gather callback failed");
    for (int r = 0; r < comm->world; r++)
        if (all[r].error)
            return fail(PAR_ERR_BOOTSTRAP, "rank %d: told to fail", r);
    return PAR_OK;
}

int par_create(par_comm **out, int rank, int world, int device, par_allgather_fn allgather, void *context,
               const par_options *options)
{
    struct par_comm *comm = calloc(1, sizeof *comm);
    hello mine = {0}, all[PAR_MAX_WORLD];
    int error;
    *out = NULL;
    take_time();
    if (!comm || world < 2 || world > PAR_MAX_WORLD || device < 0 || options->with == 0 ||
        is_rank("FAKE_PAR_LEAVE", rank)) {
        free(comm);
        return fail(PAR_ERR_ARGUMENT, "world size %d is not in 2..%d, or told to leave", world, PAR_MAX_WORLD);
    }
    comm->rank = rank;
    comm->world = world;
    snprintf(mine.name, sizeof mine.name, "/dev/shm/fake-par-%d-%d", (int)getpid(), comm->calls);
    if (rank == 0)
        comm->memory = map(mine.name, 1);
    mine.error = is_rank("FAKE_PAR_FAIL", rank);
    error = round_of(comm, allgather, context, &mine, all);
    if (!error && rank != 0)
        comm->memory = map(all[0].name, 0);
    if (!error)
        error = round_of(comm, allgather, context, &mine, all);
    if (rank == 0)
        unlink(mine.name);
    if (!error && !comm->memory)
        error = fail(PAR_ERR_SYSTEM, "no shared memory");
    if (error)
        par_close(comm);
    else
        *out = comm;
    return error;
}

void par_close(par_comm *comm)
{
    take_time();
    if (comm && comm->memory)
        munmap(comm->memory, sizeof(shared));
    free(comm);
}

int par_rank(const par_comm *comm)
{
    return comm->rank;
}

int par_world(const par_comm *comm)
{
    return comm->world;
}

static void barrier(struct par_comm *comm, unsigned *counter)
{
    unsigned target = (unsigned)(++comm->calls) * (unsigned)comm->world;
    __atomic_add_fetch(counter, 1, __ATOMIC_SEQ_CST);
    while (__atomic_load_n(counter, __ATOMIC_SEQ_CST) < target)
        sched_yield();
    comm->calls--;
}

static float widen(const char *at, par_dtype dtype)
{
    uint32_t bits = 0;
    float value;
    memcpy((char *)&bits + (dtype == PAR_BF16 ? 2 : 0), at, dtype == PAR_BF16 ? 2 : 4);
    memcpy(&value, &bits, sizeof value);
    return value;
}

static void narrow(char *at, float value, par_dtype dtype)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    if (dtype == PAR_BF16)
        bits += 0x7fff + (bits >> 16 & 1); /* nearest even */
    memcpy(at, (char *)&bits + (dtype == PAR_BF16 ? 2 : 0), dtype == PAR_BF16 ? 2 : 4);
}

int par_all_reduce(par_comm *comm, const void *in, void *out, size_t count, par_dtype dtype, par_algorithm algorithm,
                   void *stream)
{
    size_t size = dtype == PAR_FP32 ? 4 : 2, bytes = count * size;
    (void)stream;
    if (count == 0)
        return PAR_OK;
    if (dtype == PAR_FP16 || bytes > MOST)
        return fail(PAR_ERR_UNSUPPORTED, "the fake has no fp16 and %d bytes", MOST);
    if (comm->aborted)
        return fail(PAR_ERR_ABORTED, "the communicator was aborted");
    if (algorithm == PAR_AUTO && par_choose(comm, bytes) == PAR_AUTO)
        return fail(PAR_ERR_UNSUPPORTED, "the profile serves no message of %zu bytes", bytes);
    memcpy(comm->memory->data[comm->rank], in, bytes);
    barrier(comm, &comm->memory->arrived);
    for (size_t i = 0; i < bytes; i += size) {
        float sum = 0;
        for (int r = 0; r < comm->world; r++)
            sum += widen(comm->memory->data[r] + i, dtype);
        narrow((char *)out + i, sum, dtype);
    }
    barrier(comm, &comm->memory->left);
    comm->calls++;
    return PAR_OK;
}

size_t par_max_bytes(const par_comm *comm, par_algorithm algorithm)
{
    return algorithm == PAR_AUTO && comm->choices ? comm->choice[comm->choices - 1].max_bytes : MOST;
}

int par_set_profile(par_comm *comm, const par_choice *choices, size_t n)
{
    for (size_t i = 1; i < n; i++)
        if (choices[i - 1].max_bytes >= choices[i].max_bytes)
            return fail(PAR_ERR_ARGUMENT, "profile entry %zu: max_bytes does not rise", i);
    memcpy(comm->choice, choices, n * sizeof *choices);
    comm->choices = n;
    return PAR_OK;
}

par_algorithm par_choose(const par_comm *comm, size_t bytes)
{
    for (size_t i = 0; i < comm->choices; i++)
        if (bytes <= comm->choice[i].max_bytes)
            return (par_algorithm)comm->choice[i].algorithm;
    return PAR_AUTO;
}

int par_status(const par_comm *comm)
{
    return comm->aborted ? PAR_ERR_ABORTED : PAR_OK;
}

int par_last_report(const par_comm *comm, par_report *out)
{
    memset(out, 0, sizeof *out);
    if (comm->aborted) {
        out->error = PAR_ERR_ABORTED;
        out->rank = comm->rank;
        snprintf(out->text, sizeof out->text, "%s", "aborted by the test");
    }
    return PAR_OK;
}

void par_abort(par_comm *comm, const char *why)
{
    (void)why;
    comm->aborted = 1;
}
