/*
 * What CUDA says about peers: on some machines it is not what NVML says, and then CUDA is right.
 *
 * libcuda is loaded in a child with a time limit, because cuInit() on a machine with a wedged GPU does not return. No
 * context is made. The child answers with one character for each ordered pair: '0', '1', or '?'.
 */
#include "base/err.h"
#include "verify/gather.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { LIMIT_MS = 30000, ANSWER_MAX = SP_REC_GPUS_MAX * SP_REC_GPUS_MAX };

struct cuda {
    int (*init)(unsigned);
    int (*by_bus_id)(int *, const char *);
    int (*can_access)(int *, int, int);
};

/* ---- the child ---- */

static void bind(void *function, void *library, const char *name)
{
    void *symbol = library ? dlsym(library, name) : NULL;

    memcpy(function, &symbol, sizeof symbol);
}

static char ask_pair(const struct cuda *cuda, const struct sp_recording *recording, size_t from, size_t to)
{
    int a, b, can = 0;

    if (cuda->by_bus_id(&a, recording->gpus[from].bdf) != 0 || cuda->by_bus_id(&b, recording->gpus[to].bdf) != 0 ||
        cuda->can_access(&can, a, b) != 0)
        return '?';
    return can ? '1' : '0';
}

static void answer(char *out, const struct sp_recording *recording)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    const size_t count = recording->gpu_count;
    struct cuda cuda;

    bind(&cuda.init, library, "cuInit");
    bind(&cuda.by_bus_id, library, "cuDeviceGetByPCIBusId");
    bind(&cuda.can_access, library, "cuDeviceCanAccessPeer");
    memset(out, '?', count * count);
    if (!cuda.init || !cuda.by_bus_id || !cuda.can_access || cuda.init(0) != 0)
        return;
    for (size_t i = 0; i < count * count; i++)
        if (i / count != i % count)
            out[i] = ask_pair(&cuda, recording, i / count, i % count);
}

static _Noreturn void child(int fd, const struct sp_recording *recording)
{
    static char out[ANSWER_MAX];

    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    (void)unsetenv("CUDA_VISIBLE_DEVICES"); /* the recording is of the machine */
    answer(out, recording);
    (void)!write(fd, out, recording->gpu_count * recording->gpu_count);
    _exit(0);
}

/* ---- the parent ---- */

static int64_t now_ms(void)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* Bytes of the answer; short when the child died or the time is over. */
static size_t listen_to(char *out, size_t size, int fd)
{
    const int64_t end = now_ms() + LIMIT_MS;
    struct pollfd wait = {.fd = fd, .events = POLLIN};
    size_t len = 0;
    ssize_t got = 1;

    while (len < size && got > 0 && now_ms() < end) {
        if (poll(&wait, 1, 200) <= 0)
            continue;
        got = read(fd, out + len, size - len);
        len += got > 0 ? (size_t)got : 0;
    }
    return len;
}

/* A process that hangs in the driver may not even die: it is not waited for longer than this. */
static void end_child(pid_t pid)
{
    (void)kill(pid, SIGKILL);
    for (int tries = 0; tries < 100 && waitpid(pid, NULL, WNOHANG) == 0; tries++)
        (void)poll(NULL, 0, 10);
}

static void keep(struct sp_recording *recording, const char *answers)
{
    for (size_t i = 0; i < recording->pair_count; i++) {
        struct sp_rec_pair *pair = &recording->pairs[i];
        char can = answers[(size_t)pair->from * recording->gpu_count + (size_t)pair->to];

        if (can != '?')
            pair->cuda = can == '1';
    }
}

int sp_gather_cuda(struct sp_recording *recording)
{
    static char answers[ANSWER_MAX];
    const size_t size = recording->gpu_count * recording->gpu_count;
    int ends[2];
    pid_t pid;

    if (recording->pair_count == 0 || pipe2(ends, O_CLOEXEC) != 0)
        return SP_OK;
    pid = fork();
    if (pid == 0)
        child(ends[1], recording);
    close(ends[1]);
    if (pid > 0) {
        if (listen_to(answers, size, ends[0]) == size)
            keep(recording, answers);
        end_child(pid);
    }
    close(ends[0]);
    return SP_OK;
}
