/*
 * A CUDA runtime and a libpar.so in plain memory, so that sgl-pcie-gpu itself can be tested without a GPU: does it pass
 * what is right, and does it find what is wrong? FAKE_GPUS is the number of GPUs (default 4; below 0:
 * no driver). FAKE_FAULT makes the all-reduce err in its 300th call, on rank 1, or from then on:
 *   element   one wrong element                guard   a byte behind the output is touched
 *   input     the input is changed             sum     the sum is taken in another order
 *   zero      -0 becomes +0                    abort   all ranks abort
 *   leak      par_close() frees nothing
 * Streams run at once; what is captured is kept as a list and run at each launch.
 */
#include "kernels/gpu/check.h"
#include "kernels/gpu/copies.h"
#include "kernels/gpu/ranks.h"
#include "kernels/gpu/reference.h"
#include "kernels/pcie_allreduce.h"

#include <cuda_runtime_api.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- streams and graphs ---------------------------------------------------------------------- */

typedef struct op {
    void (*run)(void *argument);
    void *argument;
    struct op *next;
} op;

typedef struct {
    int capturing;
    op *first, **last;
} fake_stream;
typedef struct {
    op *first;
} fake_graph;

static long long memory_used;

static void submit(void *stream, void (*run)(void *), const void *argument, size_t size)
{
    fake_stream *s = stream;
    op *o;

    if (s == NULL || !s->capturing) {
        char copy[512];
        memcpy(copy, argument, size);
        run(copy);
        return;
    }
    o = calloc(1, sizeof(*o));
    o->run = run;
    o->argument = malloc(size);
    memcpy(o->argument, argument, size);
    *s->last = o;
    s->last = &o->next;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *out, unsigned flags)
{
    (void)flags;
    *out = (cudaStream_t)calloc(1, sizeof(fake_stream));
    return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t s)
{
    free(s);
    return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t s)
{
    (void)s;
    return cudaSuccess;
}
cudaError_t cudaDeviceSynchronize(void)
{
    return cudaSuccess;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, enum cudaStreamCaptureMode mode)
{
    fake_stream *s = (fake_stream *)stream;

    (void)mode;
    if (s->capturing)
        return cudaErrorIllegalState;
    s->capturing = 1;
    s->first = NULL;
    s->last = &s->first;
    return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *out)
{
    fake_stream *s = (fake_stream *)stream;
    fake_graph *g = calloc(1, sizeof(*g));

    s->capturing = 0;
    g->first = s->first;
    *out = (cudaGraph_t)g;
    return cudaSuccess;
}

cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t *out, cudaGraph_t graph, unsigned long long flags)
{
    fake_graph *g = calloc(1, sizeof(*g));

    (void)flags;
    g->first = ((fake_graph *)graph)->first;
    *out = (cudaGraphExec_t)g;
    return cudaSuccess;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream)
{
    op *o;

    (void)stream;
    for (o = ((fake_graph *)exec)->first; o != NULL; o = o->next)
        o->run(o->argument);
    return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t g)
{
    free(g);
    return cudaSuccess;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec)
{
    op *o = ((fake_graph *)exec)->first, *next;

    for (; o != NULL; o = next) {
        next = o->next;
        free(o->argument);
        free(o);
    }
    free(exec);
    return cudaSuccess;
}

/* --- events, memory, devices ----------------------------------------------------------------- */

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *e, unsigned flags)
{
    (void)flags;
    *e = (cudaEvent_t)calloc(1, sizeof(double));
    return cudaSuccess;
}
cudaError_t cudaEventCreate(cudaEvent_t *e)
{
    return cudaEventCreateWithFlags(e, 0);
}
cudaError_t cudaEventDestroy(cudaEvent_t e)
{
    free(e);
    return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t s)
{
    (void)s;
    *(double *)(void *)e = seconds_now();
    return cudaSuccess;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t s, cudaEvent_t e, unsigned flags)
{
    (void)s;
    (void)e;
    (void)flags;
    return cudaSuccess;
}
cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t a, cudaEvent_t b)
{
    *ms = (float)(1000 * (*(double *)(void *)b - *(double *)(void *)a));
    return cudaSuccess;
}

/* Each allocation remembers its size in front of it. */
cudaError_t cudaMalloc(void **out, size_t bytes)
{
    char *p = malloc(bytes + 64);

    memcpy(p, &bytes, sizeof(bytes));
    memory_used += (long long)bytes;
    *out = p + 64;
    return cudaSuccess;
}

cudaError_t cudaFree(void *p)
{
    size_t bytes;

    if (p != NULL) {
        memcpy(&bytes, (char *)p - 64, sizeof(bytes));
        memory_used -= (long long)bytes;
        free((char *)p - 64);
    }
    return cudaSuccess;
}

cudaError_t cudaMemGetInfo(size_t *available, size_t *total)
{
    *total = (size_t)1 << 36;
    *available = *total - (size_t)memory_used;
    return cudaSuccess;
}

typedef struct {
    void *to;
    const void *from;
    size_t bytes;
    int value;
} move;
static void run_copy(void *a)
{
    move *m = a;
    memmove(m->to, m->from, m->bytes);
}
static void run_set(void *a)
{
    move *m = a;
    memset(m->to, m->value, m->bytes);
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t n, enum cudaMemcpyKind kind, cudaStream_t s)
{
    move m = {to, from, n, 0};

    (void)kind;
    submit(s, run_copy, &m, sizeof(m));
    return cudaSuccess;
}
cudaError_t cudaMemcpy(void *to, const void *from, size_t n, enum cudaMemcpyKind kind)
{
    return cudaMemcpyAsync(to, from, n, kind, NULL);
}
cudaError_t cudaMemsetAsync(void *to, int value, size_t n, cudaStream_t s)
{
    move m = {to, NULL, n, value};

    submit(s, run_set, &m, sizeof(m));
    return cudaSuccess;
}
cudaError_t cudaMemset(void *to, int value, size_t n)
{
    return cudaMemsetAsync(to, value, n, NULL);
}
cudaError_t cudaHostRegister(void *p, size_t n, unsigned flags)
{
    (void)p;
    (void)n;
    (void)flags;
    return cudaSuccess;
}
cudaError_t cudaHostUnregister(void *p)
{
    (void)p;
    return cudaSuccess;
}
cudaError_t cudaHostGetDevicePointer(void **out, void *p, unsigned flags)
{
    (void)flags;
    *out = p;
    return cudaSuccess;
}
cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t *h, void *p)
{
    (void)h;
    (void)p;
    return cudaErrorNotSupported;
}
cudaError_t cudaIpcOpenMemHandle(void **p, cudaIpcMemHandle_t h, unsigned flags)
{
    (void)p;
    (void)h;
    (void)flags;
    return cudaErrorNotSupported;
}
cudaError_t cudaIpcCloseMemHandle(void *p)
{
    (void)p;
    return cudaSuccess;
}

static int gpus(void)
{
    const char *s = getenv("FAKE_GPUS");

    return s != NULL ? atoi(s) : 4;
}

cudaError_t cudaSetDevice(int device)
{
    return device < gpus() ? cudaSuccess : cudaErrorInvalidDevice;
}
cudaError_t cudaGetDeviceCount(int *n)
{
    *n = gpus();
    return *n > 0 ? cudaSuccess : cudaErrorNoDevice;
}
cudaError_t cudaRuntimeGetVersion(int *v)
{
    *v = 13000;
    return cudaSuccess;
}
cudaError_t cudaDriverGetVersion(int *v)
{
    *v = gpus() < 0 ? 0 : 13000;
    return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *p, int device)
{
    (void)device;
    memset(p, 0, sizeof(*p));
    snprintf(p->name, sizeof(p->name), "Fake");
    return cudaSuccess;
}
cudaError_t cudaDeviceGetPCIBusId(char *out, int n, int device)
{
    snprintf(out, (size_t)n, "0000:%02x:00.0", (unsigned)device & 0xffu);
    return cudaSuccess;
}
cudaError_t cudaDeviceCanAccessPeer(int *can, int a, int b)
{
    *can = a != b && getenv("FAKE_NO_P2P") == NULL; /* no GPU is a peer of itself */
    return cudaSuccess;
}
cudaError_t cudaGetLastError(void)
{
    return cudaSuccess;
}
const char *cudaGetErrorString(cudaError_t e)
{
    return e == cudaErrorNoDevice ? "no CUDA-capable device is detected" : "fake error";
}
const char *cudaGetErrorName(cudaError_t e)
{
    (void)e;
    return "cudaErrorFake";
}

/* --- the program's kernels ------------------------------------------------------------------- */

typedef struct {
    const char *seen, *expected;
    size_t count, size, guard;
    check_tally *tally;
} comparison;

static void run_compare(void *a)
{
    comparison *c = a;
    size_t i;

    for (i = 0; i < c->count; i++)
        if (memcmp(c->seen + i * c->size, c->expected + i * c->size, c->size) != 0) {
            unsigned long long n = c->tally->wrong++;
            if (n < CHECK_SAMPLES) {
                c->tally->sample[n].index = i;
                memcpy(&c->tally->sample[n].seen, c->seen + i * c->size, c->size);
                memcpy(&c->tally->sample[n].expected, c->expected + i * c->size, c->size);
            }
        }
    for (i = 0; i < c->guard; i++)
        c->tally->guard += (unsigned char)c->seen[-1 - (long)i] != CHECK_POISON ||
                           (unsigned char)c->seen[c->count * c->size + i] != CHECK_POISON;
}

int check_compare(const void *seen, const void *expected, size_t count, size_t size, size_t guard, check_tally *tally,
                  void *stream)
{
    comparison c = {seen, expected, count, size, guard, tally};

    submit(stream, run_compare, &c, sizeof(c));
    return 0;
}
int check_load(void)
{
    return 0;
}
int check_delay(uint64_t ns, void *stream)
{
    (void)ns;
    (void)stream;
    return 0;
}
int check_layer(void *data, size_t bytes, void *stream)
{
    (void)data;
    (void)bytes;
    (void)stream;
    return 0;
}
int check_empty(void *stream)
{
    (void)stream;
    return 0;
}
int check_copy(const void *in, void *out, size_t bytes, void *stream)
{
    return (int)cudaMemcpyAsync(out, in, bytes, cudaMemcpyDeviceToDevice, (cudaStream_t)stream);
}
int check_ping_pong(uint32_t *in, uint32_t *out, int serves, int rounds, uint32_t *failed, void *stream)
{
    (void)in;
    (void)out;
    (void)serves;
    (void)rounds;
    (void)failed;
    (void)stream;
    return 0;
}
int check_exchange(const check_words *words, int rank, int world, uint32_t *turns, uint32_t *failed, void *stream)
{
    (void)words;
    (void)rank;
    (void)world;
    (void)turns;
    (void)failed;
    (void)stream;
    return 0;
}
int check_stream(void *read, void *write, size_t window, int passes, int what, uint32_t *sink, void *stream)
{
    (void)read;
    (void)write;
    (void)window;
    (void)passes;
    (void)what;
    (void)sink;
    (void)stream;
    return 0;
}

/* --- libpar.so; what things are called is the real names.c
 * ------------------------------------------------------------------------------- */

struct par_comm {
    int rank, world, aborted, calls;
    par_allgather_fn gather;
    void *context;
    void *memory;
};

const char *par_last_error(void)
{
    return "fake";
}

static const char *fault(void)
{
    const char *s = getenv("FAKE_FAULT");

    return s != NULL ? s : "";
}

enum { AT = 300 };

/* Is it this call, or this call and all that follow, that errs so? */
static int once(const par_comm *c, const char *name)
{
    return strcmp(fault(), name) == 0 && c->calls == AT;
}

static int since(const par_comm *c, const char *name)
{
    return strcmp(fault(), name) == 0 && c->calls >= AT;
}

int par_memory_bound(int world, const par_options *o, uint64_t *device, uint64_t *host)
{
    (void)world;
    (void)o;
    *device = 20 << 20;
    *host = 0;
    return 0;
}

int par_create(par_comm **out, int rank, int world, int device, par_allgather_fn gather, void *context,
               const par_options *o)
{
    int all[PAR_MAX_WORLD];

    (void)device;
    (void)o;
    if (gather != NULL && gather(context, &rank, all, sizeof(rank)) != 0)
        return PAR_ERR_BOOTSTRAP;
    *out = calloc(1, sizeof(**out));
    **out = (par_comm){rank, world, 0, 0, gather, context, NULL};
    return cudaMalloc(&(*out)->memory, 16 << 20) == cudaSuccess ? 0 : PAR_ERR_CUDA;
}

int par_create_local(par_comm **out, int world, const int *devices, const par_options *o)
{
    int r;

    for (r = 0; r < world; r++)
        par_create(&out[r], r, world, devices[r], NULL, NULL, o);
    return 0;
}

void par_close(par_comm *c)
{
    if (c != NULL && strcmp(fault(), "leak") != 0)
        cudaFree(c->memory);
    free(c);
}

int par_status(const par_comm *c)
{
    return c->aborted ? PAR_ERR_ABORTED : 0;
}
int par_debug(par_comm *c, int what, uint64_t value)
{
    (void)c;
    (void)what;
    (void)value;
    return 0;
}
void par_abort(par_comm *c, const char *why)
{
    (void)why;
    c->aborted = 1;
}
int par_last_report(const par_comm *c, par_report *r)
{
    memset(r, 0, sizeof(*r));
    if (c->aborted) {
        r->error = PAR_ERR_TIMEOUT;
        r->algorithm = c->aborted;
        snprintf(r->text, sizeof(r->text), "fake rank 2 did not come");
    }
    return 0;
}

size_t par_max_bytes(const par_comm *c, par_algorithm a)
{
    (void)c;
    return strstr(par_algorithm_name((int)a), "chunked") != NULL || par_algorithm_transport((int)a) == PAR_PULL
               ? SIZE_MAX
               : 65536;
}

typedef struct {
    par_comm *comm[PAR_MAX_WORLD];
    const void *in[PAR_MAX_WORLD];
    void *out[PAR_MAX_WORLD];
    size_t count;
    int dtype, held;
} reduction;

static void spoil(const reduction *x, int h, size_t bytes)
{
    par_comm *c = x->comm[h];
    char *out = x->out[h];

    if (c->rank == 1 && once(c, "element"))
        out[bytes / 2] = (char)(out[bytes / 2] ^ 1);
    if (c->rank == 1 && once(c, "guard"))
        out[bytes] = 1;
    if (c->rank == 1 && once(c, "input"))
        *(char *)(size_t)x->in[h] = (char)(*(const char *)x->in[h] ^ 1);
}

static void run_reduce(void *a)
{
    reduction *x = a;
    par_comm *c = x->comm[0];
    size_t bytes = x->count * par_dtype_size(x->dtype), i;
    char *all = malloc(bytes * PAR_MAX_WORLD), *sum = malloc(bytes);
    const void *in[PAR_MAX_WORLD];
    int r, h;

    if (c->gather != NULL)
        c->gather(c->context, x->in[0], all, bytes);
    for (r = 0; r < c->world; r++) {
        if (c->gather == NULL)
            memcpy(all + (size_t)r * bytes, x->in[r], bytes);
        in[r] = all + (size_t)(since(c, "sum") ? c->world - 1 - r : r) * bytes;
    }
    reference_sum(sum, in, c->world, x->dtype, 0, x->count);
    for (i = 0; i < x->count && since(c, "zero") && x->dtype == PAR_BF16; i++)
        if (((uint16_t *)(void *)sum)[i] == 0x8000)
            ((uint16_t *)(void *)sum)[i] = 0;
    for (h = 0; h < x->held; h++) {
        memcpy(x->out[h], sum, bytes);
        spoil(x, h, bytes);
        x->comm[h]->calls++;
    }
    free(all);
    free(sum);
}

static int reduce(par_comm *const *comms, const void *const *in, void *const *out, size_t count, par_dtype dtype,
                  par_algorithm a, void *stream, int held)
{
    reduction x;
    int h;

    if (comms[0]->aborted)
        return PAR_ERR_ABORTED;
    if (count * par_dtype_size((int)dtype) > par_max_bytes(comms[0], a))
        return PAR_ERR_UNSUPPORTED;
    if (once(comms[0], "abort"))
        for (h = 0; h < held; h++)
            comms[h]->aborted = (int)a;
    memset(&x, 0, sizeof(x));
    memcpy(x.comm, comms, sizeof(x.comm[0]) * (size_t)held);
    memcpy(x.in, in, sizeof(x.in[0]) * (size_t)held);
    memcpy(x.out, out, sizeof(x.out[0]) * (size_t)held);
    x.count = count;
    x.dtype = (int)dtype;
    x.held = held;
    submit(stream, run_reduce, &x, sizeof(x));
    return 0;
}

int par_all_reduce(par_comm *c, const void *in, void *out, size_t count, par_dtype dtype, par_algorithm a, void *stream)
{
    return reduce(&c, &in, &out, count, dtype, a, stream, 1);
}

/* Streams of different GPUs are captured apart; the last one's graph does the work, when all others have run. */
int par_all_reduce_local(par_comm *const *comms, const void *const *in, void *const *out, size_t count, par_dtype dtype,
                         par_algorithm a, void *const *streams)
{
    return reduce(comms, in, out, count, dtype, a, streams[0], comms[0]->world);
}

/* --- the transfer test, which tests/ladder runs over a fake of its own ----------------------- */

cudaError_t cudaStreamQuery(cudaStream_t s)
{
    (void)s;
    return cudaSuccess;
}
int copies_load(void)
{
    return cudaErrorNotSupported;
}
int copies_fill(void *to, uint32_t key, size_t bytes, void *stream)
{
    (void)to;
    (void)key;
    (void)bytes;
    (void)stream;
    return cudaErrorNotSupported;
}
int copies_check(const void *from, uint32_t key, size_t bytes, int as_nan, copies_tally *tally, void *stream)
{
    (void)as_nan;
    (void)tally;
    return copies_fill((void *)(uintptr_t)from, key, bytes, stream);
}
int copies_send(copies_box box, uint32_t key, size_t bytes, int rounds, int drop, copies_tally *tally, void *stream)
{
    (void)rounds;
    (void)drop;
    (void)tally;
    return copies_fill(box.data, key, bytes, stream);
}
int copies_receive(copies_box box, uint32_t key, size_t bytes, int rounds, int as_nan, copies_tally *tally,
                   void *stream)
{
    (void)rounds;
    (void)as_nan;
    (void)tally;
    return copies_fill(box.data, key, bytes, stream);
}
int copies_hang(void *stream)
{
    (void)stream;
    return cudaErrorNotSupported;
}
