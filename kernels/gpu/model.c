#include "model.h"

#include "cuda.h"

#include <string.h>

enum { ROUNDS = 2000, PASSES = 40, NODES = 200, SMALL = 2048 };

/* --- timing ---------------------------------------------------------------------------------- */

typedef struct {
    cudaEvent_t begin, end;
} stopwatch;

static int stopwatch_start(stopwatch *w, cudaStream_t stream)
{
    int rc = CUDA(cudaEventCreate(&w->begin));

    rc = rc != 0 ? rc : CUDA(cudaEventCreate(&w->end));
    return rc != 0 ? rc : CUDA(cudaEventRecord(w->begin, stream));
}

static int stopwatch_stop(stopwatch *w, cudaStream_t stream, double *us)
{
    float ms = 0;
    int rc = CUDA(cudaEventRecord(w->end, stream));

    rc = rc != 0 ? rc : CUDA(cudaStreamSynchronize(stream));
    rc = rc != 0 ? rc : CUDA(cudaEventElapsedTime(&ms, w->begin, w->end));
    *us = 1000.0 * (double)ms;
    cudaEventDestroy(w->begin);
    cudaEventDestroy(w->end);
    return rc;
}

/* --- the three measurements ------------------------------------------------------------------ */

/* A graph of nodes that do nothing, or copy 2 KB. */
static int capture_nodes(fleet *f, int copies, fleet_graph *graph)
{
    cudaStream_t stream = (cudaStream_t)f->stream[0][0];
    int i, rc = fleet_capture_begin(f, 0), ended;

    for (i = 0; i < NODES && rc == 0; i++)
        rc = CUDA(copies ? check_copy(f->input[0], f->work[0][0] + FLEET_MARGIN, SMALL, stream) : check_empty(stream));
    ended = fleet_capture_end(f, 0, graph);
    return rc != 0 ? rc : ended;
}

static int measure_node(double *us, fleet *f, int copies)
{
    cudaStream_t stream = (cudaStream_t)f->stream[0][0];
    fleet_graph graph;
    stopwatch watch;
    int rc = capture_nodes(f, copies, &graph);

    if (rc == 0)
        rc = fleet_launch(f, 0, &graph);
    if (rc == 0)
        rc = CUDA(cudaStreamSynchronize(stream));
    if (rc == 0)
        rc = stopwatch_start(&watch, stream);
    if (rc == 0)
        rc = fleet_launch(f, 0, &graph);
    if (rc == 0)
        rc = stopwatch_stop(&watch, stream, us);
    *us /= NODES;
    fleet_graph_free(f, &graph);
    return rc;
}

/* Ranks 0 and 1 play; each word has 128 bytes to itself. Twice, the first to warm up. */
static int measure_latency(double *us, fleet *f, uint32_t *in, uint32_t *out)
{
    cudaStream_t stream = (cudaStream_t)f->stream[0][0];
    uint32_t *failed = (uint32_t *)(void *)f->tally[0], seen = 0;
    double all[RANKS_MAX] = {0};
    stopwatch watch;
    int turn, rc = CODE_OK;

    *us = 0;
    for (turn = 0; turn < 2 && rc == 0; turn++) {
        rc = ranks_barrier(f->ranks);
        if (rc != 0 || f->first > 1)
            continue;
        rc = CUDA(cudaMemsetAsync(failed, 0, sizeof(*failed), stream));
        rc = rc != 0 ? rc : stopwatch_start(&watch, stream);
        rc = rc != 0 ? rc
                     : CUDA(check_ping_pong(in + 64 * turn, out + 64 * turn, f->first == 0, ROUNDS, failed, stream));
        rc = rc != 0 ? rc : stopwatch_stop(&watch, stream, us);
        rc = rc != 0 ? rc : CUDA(cudaMemcpy(&seen, failed, sizeof(seen), cudaMemcpyDeviceToHost));
        if (rc == 0 && seen != 0)
            rc = rank_fail(CODE_HANG, "the ping-pong between ranks 0 and 1 did not end");
        *us /= 2.0 * ROUNDS;
    }
    rc = ranks_agree(f->ranks, rc);
    if (rc == 0)
        rc = ranks_allgather(f->ranks, us, all, sizeof(*us));
    *us = all[1]; /* its clock starts when it is there; rank 0's may include waiting for it */
    return rc;
}

static int measure_rate(double *rate, fleet *f, void *read, void *write, int what)
{
    cudaStream_t stream = (cudaStream_t)f->stream[0][0];
    uint32_t *sink = (uint32_t *)(void *)f->tally[0];
    double us = 1, all[RANKS_MAX], bytes = (double)MODEL_WINDOW * PASSES * (what == 3 ? 2 : 1);
    stopwatch watch;
    int r, rc = CUDA(check_stream(read, write, MODEL_WINDOW, 4, what, sink, stream));

    rc = rc != 0 ? rc : CUDA(cudaStreamSynchronize(stream));
    rc = ranks_agree(f->ranks, rc);
    rc = rc != 0 ? rc : stopwatch_start(&watch, stream);
    rc = rc != 0 ? rc : CUDA(check_stream(read, write, MODEL_WINDOW, PASSES, what, sink, stream));
    rc = rc != 0 ? rc : stopwatch_stop(&watch, stream, &us);
    rc = ranks_agree(f->ranks, rc);
    if (rc == 0)
        rc = ranks_allgather(f->ranks, &us, all, sizeof(us));
    *rate = 0;
    for (r = 0; r < f->world && rc == 0; r++)
        *rate = r == 0 || bytes / all[r] < *rate ? bytes / all[r] : *rate;
    return rc;
}

/* --- host and peer --------------------------------------------------------------------------- */

static int measure_host(link_rates *out, fleet *f, void *shared)
{
    char *base = NULL, *read, *write;
    uint32_t *flag;
    int rc = CUDA(cudaHostRegister(shared, MODEL_SHARED, cudaHostRegisterMapped | cudaHostRegisterPortable));

    rc = rc != 0 ? rc : CUDA(cudaHostGetDevicePointer((void **)&base, shared, 0));
    rc = ranks_agree(f->ranks, rc);
    flag = (uint32_t *)(void *)base;
    if (rc == 0)
        rc = measure_latency(&out->host_us, f, flag + 256 * (1 - f->first), flag + 256 * f->first);
    write = base + MODEL_FLAGS + (size_t)f->first * MODEL_WINDOW;
    read = base + MODEL_FLAGS + (size_t)((f->first + 1) % f->world) * MODEL_WINDOW;
    rc = rc != 0 ? rc : measure_rate(&out->host_read, f, read, write, CHECK_READ);
    rc = rc != 0 ? rc : measure_rate(&out->host_write, f, read, write, CHECK_WRITE);
    rc = rc != 0 ? rc : measure_rate(&out->host_both, f, read, write, CHECK_READ | CHECK_WRITE);
    cudaHostUnregister(shared);
    return rc;
}

static int open_peers(fleet *f, void *own, void **peer)
{
    cudaIpcMemHandle_t mine, all[RANKS_MAX];
    int r, rc = CUDA(cudaIpcGetMemHandle(&mine, own));

    rc = ranks_agree(f->ranks, rc);
    if (rc == 0)
        rc = ranks_allgather(f->ranks, &mine, all, sizeof(mine));
    for (r = 0; r < f->world && rc == 0; r++) {
        peer[r] = own;
        if (r != f->first)
            rc = CUDA(cudaIpcOpenMemHandle(&peer[r], all[r], cudaIpcMemLazyEnablePeerAccess));
    }
    return ranks_agree(f->ranks, rc);
}

static int measure_peer(link_rates *out, fleet *f)
{
    void *peer[RANKS_MAX] = {NULL};
    char *own = NULL, *next;
    int other = f->first == 0 ? 1 : 0, r, rc = CUDA(cudaMalloc((void **)&own, MODEL_FLAGS + MODEL_WINDOW));

    rc = rc != 0 ? rc : CUDA(cudaMemset(own, 0, MODEL_FLAGS));
    rc = ranks_agree(f->ranks, rc != 0 ? rc : CUDA(cudaDeviceSynchronize()));
    rc = rc != 0 ? rc : open_peers(f, own, peer);
    if (rc == 0)
        rc = measure_latency(&out->peer_us, f, (uint32_t *)(void *)own, (uint32_t *)peer[other]);
    next = (char *)peer[(f->first + 1) % f->world] + MODEL_FLAGS;
    rc = rc != 0 ? rc : measure_rate(&out->peer_read, f, next, next, CHECK_READ);
    rc = rc != 0 ? rc : measure_rate(&out->peer_write, f, next, next, CHECK_WRITE);
    for (r = 0; r < f->world; r++)
        if (r != f->first && peer[r] != NULL)
            cudaIpcCloseMemHandle(peer[r]);
    (void)ranks_barrier(f->ranks); /* all have closed it before it goes */
    cudaFree(own);
    return rc;
}

int model_measure(link_rates *out, fleet *f, void *shared, int peer)
{
    int rc;

    memset(out, 0, sizeof(*out));
    rank_note("measuring latency and rates");
    rc = ranks_agree(f->ranks, measure_node(&out->node_us, f, 0));
    rc = rc != 0 ? rc : ranks_agree(f->ranks, measure_node(&out->local_us, f, 1));
    rc = rc != 0 ? rc : measure_host(out, f, shared);
    if (rc == 0 && peer)
        rc = measure_peer(out, f);
    return rc;
}

/* --- what they amount to ----------------------------------------------------------------------- */

/* Bytes that leave a GPU and bytes that it fetches. */
typedef struct {
    double writes, reads;
} traffic;

typedef struct {
    int transport, two_shot, chunked, tagged;
} family;

static family family_of(int algorithm)
{
    const char *name = par_algorithm_name(algorithm);
    int transport = par_algorithm_transport(algorithm);
    family f = {transport, strstr(name, "two-shot") != NULL,
                transport == PAR_PULL || strstr(name, "chunked") != NULL, strstr(name, "tagged") != NULL};

    return f;
}

/* A message that everybody else gets is written once to host memory, and to each peer by push. Two-shot: parts, then
 * sums of parts. Plain messages through the host are followed by a reset of as many bytes. */
static traffic traffic_of(const family *f, int world, double bytes)
{
    double others = world - 1, parts = 2 * others / world * bytes;
    traffic t = {0, 0};

    if (f->transport == PAR_HOST) {
        t.writes = f->chunked || f->tagged ? bytes : 2 * bytes;
        t.reads = f->two_shot ? parts : others * bytes;
    } else if (f->transport == PAR_PUSH) {
        t.writes = f->two_shot ? parts : others * bytes;
    } else {
        t.reads = f->two_shot ? parts : others * bytes;
    }
    return t;
}

static double over(double bytes, double rate)
{
    return rate > 0 ? bytes / rate : 0;
}

static double larger(double a, double b)
{
    return a > b ? a : b;
}

/* Directions are bounded each; through the host also both together. */
static double traffic_us(const link_rates *l, const family *f, const traffic *t)
{
    if (f->transport == PAR_HOST)
        return larger(over(t->writes + t->reads, l->host_both),
                      larger(over(t->writes, l->host_write), over(t->reads, l->host_read)));
    return larger(over(t->writes, l->peer_write), over(t->reads, l->peer_read));
}

/* One way a phase; where a flag follows the data, another that the fence waits; a load goes there and back. */
static int hops_of(const family *f)
{
    int each = f->transport == PAR_PULL ? 3 : f->chunked ? 2 : 1;

    return f->two_shot ? 2 * each : each;
}

double model_us(const link_rates *rates, int algorithm, int world, double bytes)
{
    family f = family_of(algorithm);
    traffic t = traffic_of(&f, world, bytes);

    return rates->local_us + hops_of(&f) * (f.transport == PAR_HOST ? rates->host_us : rates->peer_us) +
           traffic_us(rates, &f, &t);
}
