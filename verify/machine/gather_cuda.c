/*
 * What CUDA says about peers: on some machines it is not what NVML says, and then CUDA is right.
 *
 * cuInit() on a machine with a wedged GPU does not return, so a child asks. No context is made. It answers with one
 * character for each ordered pair: '0', '1', or '?'.
 */
#include "base/err.h"
#include "verify/machine/child.h"
#include "verify/machine/gather.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LIMIT_S = 30, ANSWER_MAX = SP_REC_GPUS_MAX * SP_REC_GPUS_MAX };

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

static void ask(int fd, const void *context)
{
    static char out[ANSWER_MAX];
    const struct sp_recording *recording = context;

    (void)unsetenv("CUDA_VISIBLE_DEVICES"); /* the recording is of the machine */
    answer(out, recording);
    (void)!write(fd, out, recording->gpu_count * recording->gpu_count);
}

/* ---- the parent ---- */

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
    struct sp_buf answers = SP_BUF_INIT;

    if (recording->pair_count == 0)
        return SP_OK;
    /* Whatever becomes of the child, what CUDA says is then absent. */
    if (sp_child_ask(&answers, LIMIT_S, ask, recording) == SP_OK &&
        answers.len == recording->gpu_count * recording->gpu_count)
        keep(recording, answers.data);
    sp_err_clear();
    sp_buf_free(&answers);
    return SP_OK;
}
