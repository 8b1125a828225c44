#include "model.h"

#include "cuda.h"

#include <string.h>

enum {
    ROUNDS = 2000,
    PASSES = 40,
    NODES = 200,
    SMALL = 2048,
    TURNS_AT = 32,  /* word of the tally that counts an exchange's turns; the first says that it failed */
    WORDS_AT = 4096 /* where an exchange's words begin, behind those of the ping-pong; 128 bytes each */
};

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

/* --- what is measured ------------------------------------------------------------------------ */

/* What a node of a graph does: nothing, copy 2 KB, or exchange words. */
typedef struct {
    int copies;
    const check_words *words; /* null: no exchange */
} node;

static int enqueue_node(fleet *f, const node *n)
{
    uint32_t *state = (uint32_t *)(void *)f->tally[0];
    void *stream = f->stream[0][0];
    int rc;

    if (n->words != NULL)
        rc = CUDA(check_exchange(n->words, f->first, f->world, state + TURNS_AT, state, stream));
    else if (n->copies)
        rc = CUDA(check_copy(f->input[0], f->work[0][0] + FLEET_MARGIN, SMALL, stream));
    else
        rc = CUDA(check_empty(stream));
    return rc;
}

/* Twice in a row, the second timed: when it begins, the ranks of an exchange are in step. */
static int measure_node(double *us, fleet *f, const node *n)
{
    cudaStream_t stream = (cudaStream_t)f->stream[0][0];
    fleet_graph graph;
    stopwatch watch;
    int i, rc = fleet_capture_begin(f, 0), ended;

    for (i = 0; i < NODES && rc == 0; i++)
        rc = enqueue_node(f, n);
    ended = fleet_capture_end(f, 0, &graph);
    rc = ranks_agree(f->ranks, rc != 0 ? rc : ended);
    rc = rc != 0 ? rc : fleet_launch(f, 0, &graph);
    rc = rc != 0 ? rc : stopwatch_start(&watch, stream);
    rc = rc != 0 ? rc : fleet_launch(f, 0, &graph);
    rc = rc != 0 ? rc : stopwatch_stop(&watch, stream, us);
    *us /= NODES;
    fleet_graph_free(f, &graph);
    return ranks_agree(f->ranks, rc);
}

/* base[r]: where the words that rank r reads lie, as this rank sees them. */
static int measure_exchange(double *us, fleet *f, char *const *base)
{
    uint32_t *state = (uint32_t *)(void *)f->tally[0], failed = 0;
    check_words words = {{NULL}, {NULL}};
    double all[RANKS_MAX];
    node n = {0, &words};
    int r, rc = CUDA(cudaMemset(state, 0, (TURNS_AT + 1) * sizeof(*state)));

    for (r = 0; r < f->world; r++) {
        words.out[r] = (uint32_t *)(void *)(base[r] + WORDS_AT + 128 * (f->first * PAR_MAX_WORLD + r));
        words.in[r] = (uint32_t *)(void *)(base[f->first] + WORDS_AT + 128 * (r * PAR_MAX_WORLD + f->first));
    }
    rc = ranks_agree(f->ranks, rc != 0 ? rc : CUDA(cudaDeviceSynchronize()));
    rc = rc != 0 ? rc : measure_node(us, f, &n);
    rc = rc != 0 ? rc : CUDA(cudaMemcpy(&failed, state, sizeof(failed), cudaMemcpyDeviceToHost));
    if (rc == 0 && failed)
        rc = rank_fail(CODE_HANG, "the ranks did not see each other's words");
    rc = ranks_agree(f->ranks, rc);
    if (rc == 0)
        rc = ranks_allgather(f->ranks, us, all, sizeof(*us));
    for (r = 0; r < f->world && rc == 0; r++)
        *us = all[r] > *us ? all[r] : *us;
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
    char *base = NULL, *read, *write, *all[RANKS_MAX];
    uint32_t *flag;
    int r, rc = CUDA(cudaHostRegister(shared, MODEL_SHARED, cudaHostRegisterMapped | cudaHostRegisterPortable));

    rc = rc != 0 ? rc : CUDA(cudaHostGetDevicePointer((void **)&base, shared, 0));
    rc = ranks_agree(f->ranks, rc);
    flag = (uint32_t *)(void *)base;
    if (rc == 0)
        rc = measure_latency(&out->host_us, f, flag + 256 * (1 - f->first), flag + 256 * f->first);
    for (r = 0; r < f->world; r++)
        all[r] = base;
    if (rc == 0)
        rc = measure_exchange(&out->host_exchange_us, f, all);
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

/* All ranks at once, each with a peer so many ranks on: an all-reduce meets all of these patterns, and the slowest of them. */
static int measure_slower(double *slowest, fleet *f, char *window, int what)
{
    double rate = 0;
    int rc = measure_rate(&rate, f, window, window, what);

    *slowest = *slowest <= 0 || rate < *slowest ? rate : *slowest;
    return rc;
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
    rc = rc != 0 ? rc : measure_exchange(&out->peer_exchange_us, f, (char *const *)peer);
    for (r = 1; r < f->world && rc == 0; r++) {
        next = (char *)peer[(f->first + r) % f->world] + MODEL_FLAGS;
        rc = measure_slower(&out->peer_read, f, next, CHECK_READ);
        rc = rc != 0 ? rc : measure_slower(&out->peer_write, f, next, CHECK_WRITE);
    }
    for (r = 0; r < f->world; r++)
        if (r != f->first && peer[r] != NULL)
            cudaIpcCloseMemHandle(peer[r]);
    (void)ranks_barrier(f->ranks); /* all have closed it before it goes */
    cudaFree(own);
    return rc;
}

/* Its own memory, the two windows of a buffer. */
static int measure_own(link_rates *out, fleet *f)
{
    char *own = NULL;
    int rc = ranks_agree(f->ranks, CUDA(cudaMalloc((void **)&own, 2 * MODEL_WINDOW)));

    if (rc == 0)
        rc = measure_rate(&out->own, f, own, own + MODEL_WINDOW, CHECK_READ | CHECK_WRITE);
    cudaFree(own);
    return rc;
}

int model_measure(link_rates *out, fleet *f, void *shared, int peer)
{
    const node nothing = {0, NULL}, copy = {1, NULL};
    int rc;

    memset(out, 0, sizeof(*out));
    rank_note("measuring latency and rates");
    rc = measure_node(&out->node_us, f, &nothing);
    rc = rc != 0 ? rc : measure_node(&out->local_us, f, &copy);
    rc = rc != 0 ? rc : measure_own(out, f);
    rc = rc != 0 ? rc : measure_host(out, f, shared);
    if (rc == 0 && peer)
        rc = measure_peer(out, f);
    return rc;
}

/* --- what they amount to ----------------------------------------------------------------------- */

/* Bytes that leave a GPU, that it fetches, and that pass between it and its own memory. */
typedef struct {
    double writes, reads, own;
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

/*
 * One-shot: everybody gets the whole message of all others. Two-shot: parts, then sums of parts. Through the host a
 * message is written once, whoever reads it. Plain messages are followed by a reset of as many bytes where they lay.
 * Input and output are read and written in any case; push also reads what arrived, and pull first lays its input out.
 */
static traffic traffic_of(const family *f, int world, double bytes)
{
    double others = world - 1, all = f->two_shot ? 2 * others / world * bytes : others * bytes;
    int plain = !f->chunked && !f->tagged;
    traffic t = {0, 0, 2 * bytes};

    if (f->transport == PAR_HOST) {
        t.writes = plain ? 2 * bytes : bytes;
        t.reads = all;
    } else if (f->transport == PAR_PUSH) {
        t.writes = all;
        t.own += plain ? 2 * all : all;
    } else {
        t.reads = all;
        t.own += bytes;
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

/* Directions are bounded each; through the host also both together. A thread fetches, sends and stores one after the
 * other, so its own memory comes on top. */
static double traffic_us(const link_rates *l, const family *f, const traffic *t)
{
    double link = larger(over(t->writes, l->peer_write), over(t->reads, l->peer_read));

    if (f->transport == PAR_HOST)
        link = larger(over(t->writes + t->reads, l->host_both),
                      larger(over(t->writes, l->host_write), over(t->reads, l->host_read)));
    return link + over(t->own, l->own);
}

/* One way a phase; where a flag follows the data, another that the fence waits; a load goes there and back. */
static int hops_of(const family *f)
{
    int each = f->transport == PAR_PULL ? 3 : f->chunked ? 2 : 1;

    return f->two_shot ? 2 * each : each;
}

/* The first hop is that of the exchange; what a copy costs more than nothing is reading input and writing output. */
double model_us(const link_rates *rates, int algorithm, int world, double bytes)
{
    family f = family_of(algorithm);
    traffic t = traffic_of(&f, world, bytes);
    int host = f.transport == PAR_HOST;

    return (host ? rates->host_exchange_us : rates->peer_exchange_us) + larger(rates->local_us - rates->node_us, 0) +
           (hops_of(&f) - 1) * (host ? rates->host_us : rates->peer_us) + traffic_us(rates, &f, &t);
}
