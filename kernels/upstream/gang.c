#include "gang.h"

#include "overlay.h"

#include "../gpu/check.h"
#include "../gpu/cuda.h"
#include "values.h"

#include <stdlib.h>
#include <string.h>

enum { TABLE_BYTES = 1 << 16, CALLS = 50, WARM = 4, REPEATS = 21, POISON = 0xc5 };

static int on_device(const gang *g, int h)
{
    return CUDA(cudaSetDevice(g->device[g->first + h]));
}

static int upstream_failed(const char *what)
{
    return rank_fail(CODE_CANNOT, "%s: %s", what, upstream_last_error());
}

/* --- buffers --------------------------------------------------------------------------------- */

static int allocate(gang *g, int h)
{
    const size_t shared = (size_t)upstream_meta_size() + g->room;
    int kind, rc = on_device(g, h);

    if (rc == 0)
        rc = CUDA(cudaMalloc((void **)&g->shared[h], shared));
    if (rc == 0)
        rc = CUDA(cudaMemset(g->shared[h], 0, shared));
    if (rc == 0)
        rc = CUDA(cudaMalloc((void **)&g->staging[h], g->room));
    if (rc == 0)
        rc = CUDA(cudaMalloc((void **)&g->input[h], g->room));
    if (rc == 0)
        rc = CUDA(cudaMalloc((void **)&g->output[h], g->room));
    for (kind = 0; kind < GANG_KINDS && rc == 0; kind++)
        rc = CUDA(cudaMalloc((void **)&g->table[kind][h], TABLE_BYTES));
    if (rc == 0)
        rc = CUDA(cudaStreamCreateWithFlags((cudaStream_t *)&g->stream[h], cudaStreamNonBlocking));
    if (rc == 0)
        rc = CUDA(check_load());
    return rc == 0 ? CUDA(cudaDeviceSynchronize()) : rc;
}

/* All ranks here: pointers are good everywhere once the GPUs may see each other. */
static int share_locally(gang *g)
{
    int a, b, rc = CODE_OK;

    for (a = 0; a < g->world && rc == 0; a++)
        for (b = 0; b < g->world && rc == 0; b++) {
            g->shared_of[a][b] = g->shared[b];
            g->staging_of[a][b] = g->staging[b];
            if (g->device[a] != g->device[b]) {
                cudaError_t error;
                rc = on_device(g, a);
                error = cudaDeviceEnablePeerAccess(g->device[b], 0);
                if (error == cudaErrorPeerAccessAlreadyEnabled)
                    (void)cudaGetLastError();
                else if (rc == 0)
                    rc = cuda_ok(error, "cudaDeviceEnablePeerAccess");
            }
        }
    return rc;
}

static int share_one(gang *g, char *mine, void *view[RANKS_MAX])
{
    cudaIpcMemHandle_t own, all[RANKS_MAX];
    int r, rc = CUDA(cudaIpcGetMemHandle(&own, mine));

    rc = ranks_agree(g->ranks, rc);
    if (rc == 0)
        rc = ranks_allgather(g->ranks, &own, all, sizeof(own));
    for (r = 0; r < g->world && rc == 0; r++) {
        if (r == g->first)
            view[r] = mine;
        else
            rc = CUDA(cudaIpcOpenMemHandle(&view[r], all[r], cudaIpcMemLazyEnablePeerAccess));
    }
    return ranks_agree(g->ranks, rc);
}

int gang_open(gang *g, ranks *r, int world, int local, const int *device, size_t room)
{
    int h, rc = CODE_OK;

    memset(g, 0, sizeof(*g));
    g->ranks = r;
    g->world = world;
    g->local = local;
    g->first = local ? 0 : r->rank;
    g->held = local ? world : 1;
    g->room = room;
    memcpy(g->device, device, sizeof(int) * (size_t)world);
    rank_note("allocating buffers");
    for (h = 0; h < g->held && rc == 0; h++)
        rc = allocate(g, h);
    rc = ranks_agree(r, rc);
    rank_note("sharing buffers");
    if (rc == 0 && local)
        rc = share_locally(g);
    if (rc == 0 && !local)
        rc = share_one(g, g->shared[0], g->shared_of[0]);
    if (rc == 0 && !local)
        rc = share_one(g, g->staging[0], g->staging_of[0]);
    return rc;
}

/* Handles close what they imported; memory goes with the process, which ends now. */
void gang_close(gang *g)
{
    int h, kind;

    for (kind = 0; kind < GANG_KINDS; kind++)
        for (h = 0; h < g->held; h++)
            if (g->handle[kind][h] != NULL)
                (void)upstream_dispose(g->device[g->first + h], g->handle[kind][h]);
}

/* --- upstream's communicators ---------------------------------------------------------------- */

static void set_limits(gang_kind kind, const char *given)
{
    static const char *const limits[GANG_KINDS] = {"18446744073709551615,0", "0,18446744073709551615", NULL, "0,0"};
    const char *value = kind == GANG_GIVEN ? given : limits[kind];

    if (value != NULL)
        setenv(GANG_LIMITS, value, 1);
    else
        unsetenv(GANG_LIMITS);
}

int gang_make(gang *g, gang_kind kind, const char *given)
{
    int h, rc = CODE_OK;

    rank_note("making upstream's communicator");
    set_limits(kind, given);
    for (h = 0; h < g->held && rc == 0; h++) {
        int device = g->device[g->first + h];
        void **handle = &g->handle[kind][h];
        *handle =
            upstream_init_custom_ar(device, g->shared_of[h], g->world, g->first + h, g->table[kind][h], TABLE_BYTES, 0);
        if (*handle == NULL)
            rc = upstream_failed("init_custom_ar");
        else if (upstream_register_buffer(device, *handle, g->staging_of[h], g->world) != 0)
            rc = upstream_failed("register_buffer");
    }
    return ranks_agree(g->ranks, rc);
}

int gang_call(gang *g, gang_kind kind, size_t count, int dtype, int staged)
{
    int h, rc = CODE_OK;

    for (h = 0; h < g->held && rc == 0; h++) {
        const char *in = g->local && !staged ? g->staging[h] : g->input[h]; /* what a staged call left there */
        if (upstream_all_reduce(g->device[g->first + h], g->handle[kind][h], in, g->output[h], count, dtype,
                                staged ? g->staging[h] : NULL, g->room, g->stream[h]) != 0)
            rc = upstream_failed("all_reduce");
    }
    return rc;
}

int gang_register(gang *g, gang_kind kind)
{
    enum { PART = CALLS * (UPSTREAM_HANDLE_BYTES + 8) };
    unsigned char *mine = calloc(1, PART), *all = calloc(RANKS_MAX, PART), *handles = calloc(RANKS_MAX, PART);
    int64_t *offsets = calloc((size_t)RANKS_MAX * CALLS, sizeof(*offsets)), count = -1;
    int device = g->device[g->first], r, rc = CODE_OK;

    if (mine == NULL || all == NULL || handles == NULL || offsets == NULL)
        rc = rank_fail(CODE_CANNOT, "no memory");
    if (rc == 0)
        count = upstream_get_graph_buffer_ipc_meta(device, g->handle[kind][0], mine,
                                                   (int64_t *)(void *)(mine + CALLS * UPSTREAM_HANDLE_BYTES), CALLS);
    if (rc == 0 && count != CALLS)
        rc = count < 0 ? upstream_failed("get_graph_buffer_ipc_meta")
                       : rank_fail(CODE_WRONG, "%lld buffers for %d captured calls", (long long)count, CALLS);
    rc = ranks_agree(g->ranks, rc);
    if (rc == 0)
        rc = ranks_allgather(g->ranks, mine, all, PART);
    for (r = 0; r < g->world && rc == 0; r++) {
        memcpy(handles + (size_t)r * CALLS * UPSTREAM_HANDLE_BYTES, all + (size_t)r * PART,
               CALLS * UPSTREAM_HANDLE_BYTES);
        memcpy(offsets + (size_t)r * CALLS, all + (size_t)r * PART + CALLS * UPSTREAM_HANDLE_BYTES, CALLS * 8);
    }
    if (rc == 0 && upstream_register_graph_buffers(device, g->handle[kind][0], handles, offsets, CALLS, g->world) != 0)
        rc = upstream_failed("register_graph_buffers");
    free(mine);
    free(all);
    free(handles);
    free(offsets);
    return ranks_agree(g->ranks, rc);
}

/* --- data ------------------------------------------------------------------------------------ */

static size_t size_of(int dtype)
{
    return dtype == UPSTREAM_FP32 ? 4 : 2;
}

int gang_load(gang *g, size_t count, int dtype, unsigned seed)
{
    void *data = malloc(g->room);
    int h, rc = data == NULL ? rank_fail(CODE_CANNOT, "no memory") : CODE_OK;

    for (h = 0; h < g->held && rc == 0; h++) {
        values_fill(data, g->first + h, dtype, count, seed);
        rc = on_device(g, h);
        if (rc == 0)
            rc = CUDA(cudaMemcpy(g->input[h], data, count * size_of(dtype), cudaMemcpyHostToDevice));
        if (rc == 0)
            rc = CUDA(cudaMemset(g->output[h], POISON, g->room));
        if (rc == 0)
            rc = CUDA(cudaDeviceSynchronize());
    }
    free(data);
    return ranks_agree(g->ranks, rc); /* nobody reads a peer's input before it is there */
}

int gang_finish(gang *g)
{
    int h, rc = CODE_OK;

    for (h = 0; h < g->held && rc == 0; h++) {
        rc = on_device(g, h);
        if (rc == 0)
            rc = CUDA(cudaStreamSynchronize((cudaStream_t)g->stream[h]));
    }
    return rc;
}

static size_t poisoned(const unsigned char *data, size_t count, size_t size)
{
    size_t found = 0;

    for (size_t i = 0; i < count; i++) {
        size_t same = 0;
        while (same < size && data[i * size + same] == POISON)
            same++;
        found += same == size;
    }
    return found;
}

int gang_compare(gang *g, size_t count, int dtype, unsigned seed, size_t *wrong, size_t *untouched)
{
    size_t mine[2] = {0, 0}, all[RANKS_MAX][2], first = 0;
    void *data = malloc(g->room);
    int h, r, rc = data == NULL ? rank_fail(CODE_CANNOT, "no memory") : gang_finish(g);

    for (h = 0; h < g->held && rc == 0; h++) {
        rc = on_device(g, h);
        if (rc == 0)
            rc = CUDA(cudaMemcpy(data, g->output[h], count * size_of(dtype), cudaMemcpyDeviceToHost));
        if (rc == 0) {
            mine[0] += values_wrong(data, g->world, dtype, count, seed, &first);
            mine[1] += poisoned(data, count, size_of(dtype));
        }
    }
    free(data);
    rc = ranks_agree(g->ranks, rc);
    if (rc == 0)
        rc = ranks_allgather(g->ranks, mine, all, sizeof(mine));
    *wrong = *untouched = 0;
    for (r = 0; r < g->ranks->world && rc == 0; r++) {
        *wrong += all[r][0];
        *untouched += all[r][1];
    }
    return rc;
}

/* --- time ------------------------------------------------------------------------------------ */

static int rising(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return x < y ? -1 : x > y;
}

static int capture(gang *g, gang_enqueue *enqueue, gang_enqueue *captured, void *context, cudaGraphExec_t *out)
{
    cudaStream_t stream = (cudaStream_t)g->stream[0];
    cudaGraph_t graph = NULL;
    int i, ended, rc = CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed));

    for (i = 0; i < CALLS && rc == 0; i++)
        rc = enqueue(g, context);
    ended = CUDA(cudaStreamEndCapture(stream, &graph));
    rc = ranks_agree(g->ranks, rc != 0 ? rc : ended);
    if (rc == 0 && captured != NULL)
        rc = captured(g, context);
    if (rc == 0)
        rc = CUDA(cudaGraphInstantiateWithFlags(out, graph, 0));
    if (graph != NULL)
        cudaGraphDestroy(graph);
    return ranks_agree(g->ranks, rc);
}

static int replay(gang *g, cudaGraphExec_t graph, cudaEvent_t from, cudaEvent_t to, double *us)
{
    cudaStream_t stream = (cudaStream_t)g->stream[0];
    double all[RANKS_MAX];
    float ms = 0;
    int r, rc = CUDA(cudaEventRecord(from, stream));

    if (rc == 0)
        rc = CUDA(cudaGraphLaunch(graph, stream));
    if (rc == 0)
        rc = CUDA(cudaEventRecord(to, stream));
    if (rc == 0)
        rc = CUDA(cudaStreamSynchronize(stream));
    if (rc == 0)
        rc = CUDA(cudaEventElapsedTime(&ms, from, to));
    *us = 1000.0 * (double)ms / CALLS;
    rc = ranks_agree(g->ranks, rc);
    if (rc == 0)
        rc = ranks_allgather(g->ranks, us, all, sizeof(*us));
    for (r = 0; r < g->world && rc == 0; r++)
        *us = all[r] > *us ? all[r] : *us;
    return rc;
}

static int time_in_graph(gang *g, gang_enqueue *enqueue, gang_enqueue *captured, void *context, double *sample)
{
    cudaGraphExec_t graph = NULL;
    cudaEvent_t from = NULL, to = NULL;
    int i, rc = capture(g, enqueue, captured, context, &graph);

    if (rc == 0)
        rc = CUDA(cudaEventCreate(&from));
    if (rc == 0)
        rc = CUDA(cudaEventCreate(&to));
    rc = ranks_agree(g->ranks, rc);
    for (i = -WARM; i < REPEATS && rc == 0; i++)
        rc = replay(g, graph, from, to, &sample[i < 0 ? 0 : i]);
    if (graph != NULL)
        cudaGraphExecDestroy(graph);
    if (from != NULL)
        cudaEventDestroy(from);
    if (to != NULL)
        cudaEventDestroy(to);
    return rc;
}

static int record(gang *g, cudaEvent_t event[])
{
    int h, rc = CODE_OK;

    for (h = 0; h < g->held && rc == 0; h++) {
        rc = on_device(g, h);
        if (rc == 0)
            rc = CUDA(cudaEventRecord(event[h], (cudaStream_t)g->stream[h]));
    }
    return rc;
}

static int burst(gang *g, gang_enqueue *enqueue, void *context, cudaEvent_t from[], cudaEvent_t to[], double *us)
{
    int h, i, rc = CODE_OK;

    for (h = 0; h < g->held && rc == 0; h++) {
        rc = on_device(g, h);
        if (rc == 0)
            rc = CUDA(check_delay(5000000, g->stream[h]));
    }
    rc = rc != 0 ? rc : record(g, from);
    for (i = 0; i < CALLS && rc == 0; i++)
        rc = enqueue(g, context);
    rc = rc != 0 ? rc : record(g, to);
    rc = rc != 0 ? rc : gang_finish(g);
    *us = 0;
    for (h = 0; h < g->held && rc == 0; h++) {
        float ms = 0;
        rc = CUDA(cudaEventElapsedTime(&ms, from[h], to[h]));
        *us = 1000.0 * (double)ms / CALLS > *us ? 1000.0 * (double)ms / CALLS : *us;
    }
    return rc;
}

static int time_in_bursts(gang *g, gang_enqueue *enqueue, void *context, double *sample)
{
    cudaEvent_t from[RANKS_MAX] = {NULL}, to[RANKS_MAX] = {NULL};
    int h, i, rc = CODE_OK;

    for (h = 0; h < g->held && rc == 0; h++) {
        rc = on_device(g, h);
        if (rc == 0)
            rc = CUDA(cudaEventCreate(&from[h]));
        if (rc == 0)
            rc = CUDA(cudaEventCreate(&to[h]));
    }
    for (i = -1; i < REPEATS && rc == 0; i++)
        rc = burst(g, enqueue, context, from, to, &sample[i < 0 ? 0 : i]);
    for (h = 0; h < g->held; h++) {
        if (from[h] != NULL)
            cudaEventDestroy(from[h]);
        if (to[h] != NULL)
            cudaEventDestroy(to[h]);
    }
    return rc;
}

int gang_time(gang *g, gang_enqueue *enqueue, gang_enqueue *captured, void *context, double *us)
{
    double sample[REPEATS] = {0};
    int rc =
        g->local ? time_in_bursts(g, enqueue, context, sample) : time_in_graph(g, enqueue, captured, context, sample);

    qsort(sample, REPEATS, sizeof(*sample), rising);
    *us = rc == 0 ? sample[REPEATS / 2] : 0;
    return rc;
}
