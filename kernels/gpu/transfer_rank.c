/* transfer_rank.c: see transfer_rank.h. */
#include "transfer_rank.h"
#include "check.h"
#include "inject.h"
#include "probe.h"

#include <string.h>

enum {
    SETTLE_S = 5, /* what a step's kernels may take */
    COME_S = 10   /* and a rank until it comes to the next one */
};

#define OWN_BYTES ((size_t)RANKS_MAX * (2 * TRANSFER_WINDOW + TRANSFER_BOX))

/* --- places ---------------------------------------------------------------------------------- */

char *transfer_inbox(char *base, int from)
{
    return base + (size_t)from * TRANSFER_WINDOW;
}

char *transfer_outbox(char *base, int reader)
{
    return base + (size_t)(RANKS_MAX + reader) * TRANSFER_WINDOW;
}

char *transfer_box(char *base, int other)
{
    return base + (size_t)2 * RANKS_MAX * TRANSFER_WINDOW + (size_t)other * TRANSFER_BOX;
}

char *transfer_host_window(char *host, int from, int to)
{
    return host + (size_t)(from * RANKS_MAX + to) * TRANSFER_WINDOW;
}

char *transfer_host_box(char *host, int from, int to)
{
    return host + (size_t)RANKS_MAX * RANKS_MAX * TRANSFER_WINDOW + (size_t)(from * RANKS_MAX + to) * TRANSFER_BOX;
}

uint32_t *transfer_word(char *place, int offset)
{
    return (uint32_t *)(void *)(place + offset);
}

uint32_t transfer_key(int kind, int a, int b)
{
    return (uint32_t)(kind + 1) * 0x01000193u ^ (uint32_t)(a * RANKS_MAX + b + 1) * 0x9e3779b1u;
}

uint32_t transfer_out_key(int owner, int reader)
{
    return transfer_key(STEP_KINDS, owner, reader);
}

/* --- waiting --------------------------------------------------------------------------------- */

int transfer_settle(transfer *t)
{
    const double end = seconds_now() + SETTLE_S;
    int i = 0;

    while (i < RANKS_MAX) {
        cudaError_t is = cudaStreamQuery(t->stream[i]);

        if (is == cudaSuccess)
            i++;
        else if (is != cudaErrorNotReady)
            return CUDA(is);
        else if (seconds_now() > end)
            return rank_fail(CODE_HANG, "a kernel of rank %d did not end within %d s", t->me, SETTLE_S);
    }
    return CODE_OK;
}

int transfer_meet(transfer *t, int rc)
{
    return rc != 0 ? rc : ranks_barrier(t->ranks);
}

/* cudaMemset() would not do, it returns before it is done. */
int transfer_clear(transfer *t, void *what, size_t bytes)
{
    return CUDA(cudaMemsetAsync(what, 0, bytes, t->stream[0]));
}

int transfer_clear_boxes(transfer *t, int other)
{
    memset(transfer_host_box(t->host_cpu, t->me, other), 0, TRANSFER_BOX);
    return transfer_clear(t, transfer_box(t->own, other), TRANSFER_BOX);
}

/* --- a rank ---------------------------------------------------------------------------------- */

static int (*const runs[STEP_KINDS])(transfer *, const step *) = {
    [STEP_CONTROL] = step_control,      [STEP_HOST] = step_all_pairs,       [STEP_HOST_FLAG] = step_flag,
    [STEP_COPY] = step_write,           [STEP_COPY_READ] = step_copy_read,  [STEP_STORE] = step_write,
    [STEP_STORE_FLAG] = step_flag,      [STEP_LOAD] = step_load,            [STEP_LOAD_FLAG] = step_flag,
    [STEP_COPY_ALL] = step_all_pairs,   [STEP_STORE_ALL] = step_all_pairs,  [STEP_LOAD_ALL] = step_all_pairs,
    [STEP_LATENCY] = step_ping,         [STEP_HOST_LATENCY] = step_ping,
    [STEP_STORE_RATE] = step_rate,      [STEP_LOAD_RATE] = step_rate,
    [STEP_HOST_STORE_RATE] = step_host_rate, [STEP_HOST_LOAD_RATE] = step_host_rate,
    [STEP_COLLAPSE] = step_collapse,
};

static int open_own(transfer *t, void *host)
{
    int i, rc = CUDA(cudaSetDevice(t->board->device[t->me]));

    rc = rc != 0 ? rc : CUDA(cudaMalloc((void **)&t->own, OWN_BYTES));
    rc = rc != 0 ? rc : CUDA(cudaMalloc(&t->aside, OWN_BYTES));
    rc = rc != 0 ? rc : CUDA(cudaMalloc((void **)&t->tally, RANKS_MAX * sizeof(*t->tally)));
    rc = rc != 0 ? rc : CUDA(cudaMalloc((void **)&t->sink, 256));
    rc = rc != 0 ? rc : CUDA(cudaHostRegister(host, TRANSFER_HOST_BYTES, cudaHostRegisterMapped | cudaHostRegisterPortable));
    rc = rc != 0 ? rc : CUDA(cudaHostGetDevicePointer((void **)&t->host, host, 0));
    for (i = 0; i < RANKS_MAX && rc == 0; i++)
        rc = CUDA(cudaStreamCreateWithFlags(&t->stream[i], cudaStreamNonBlocking));
    rc = rc != 0 ? rc : CUDA(copies_load());
    rc = rc != 0 ? rc : CUDA(check_load());
    for (i = 0; i < t->world && rc == 0; i++)
        rc = CUDA(copies_fill(transfer_outbox(t->own, i), transfer_out_key(t->me, i), TRANSFER_WINDOW, t->stream[0]));
    return rc != 0 ? rc : transfer_settle(t);
}

/* A grant that cannot be used is a failure of all that needs it. */
static void put_refusal(transfer *t, int p)
{
    int kind;

    t->board->granted[t->me][p] = 0;
    for (kind = STEP_COPY; kind < STEP_LATENCY; kind++)
        board_put(t->board, (step_kind)kind, t->me, p, CHECK_FAIL, CODE_CHECK, "peer access is granted, but: %s", rank_text());
    rank_clear();
}

static int open_peers(transfer *t)
{
    cudaIpcMemHandle_t mine, all[RANKS_MAX];
    int p, can = 0, rc = CUDA(cudaIpcGetMemHandle(&mine, t->own));

    rc = rc != 0 ? rc : ranks_allgather(t->ranks, &mine, all, sizeof(mine));
    for (p = 0; p < t->world && rc == 0; p++) {
        if (p == t->me)
            continue;
        rc = probe_reaches(&can, t->board->device[t->me], t->board->device[p]);
        t->board->granted[t->me][p] = rc == 0 && can;
        if (rc == 0 && can && CUDA(cudaIpcOpenMemHandle((void **)&t->peer[p], all[p], cudaIpcMemLazyEnablePeerAccess)) != 0)
            put_refusal(t, p);
        if (injected("lie", t->me, p))
            t->peer[p] = t->aside;
    }
    return transfer_meet(t, rc);
}

/* Can this step be done with the grants that there are? If not, whoever is A says so. */
static int possible(transfer *t, const step *s)
{
    const int one_way = s->kind >= STEP_COPY && s->kind <= STEP_LOAD_FLAG, rate = s->kind == STEP_STORE_RATE || s->kind == STEP_LOAD_RATE;
    const int both = s->kind == STEP_LOAD_FLAG || s->kind == STEP_LATENCY;
    int yes = 1;

    if (one_way || rate || both)
        yes = t->board->granted[s->a][s->b] && (!both || t->board->granted[s->b][s->a]);
    if (!yes && t->me == s->a)
        board_put(t->board, s->kind, s->a, s->b, CHECK_SKIP, CODE_OK, "no peer access");
    return yes;
}

static int run_steps(transfer *t)
{
    int i, rc = CODE_OK;

    for (i = t->board->first; i < t->board->count && rc == 0; i++) {
        const step *s = &t->board->steps[i];

        t->board->at[t->me] = i;
        rank_note("%s %d %d", step_name(s->kind), s->a, s->b);
        rc = transfer_meet(t, rc);
        if (rc == 0 && possible(t, s))
            rc = runs[s->kind](t, s);
    }
    if (rc == 0)
        t->board->at[t->me] = t->board->count;
    return transfer_meet(t, rc);
}

/* Memory and mappings go with the process: after a hang nothing here may wait for the GPU. */
int transfer_body(ranks *self, void *context)
{
    transfer_job *job = context;
    transfer t = {.ranks = self, .board = job->board, .me = self->rank, .world = self->world, .host_cpu = job->host};
    int rc;

    self->limit_s = COME_S;
    rank_note("setting up");
    rc = open_own(&t, job->host);
    rc = rc != 0 ? rc : open_peers(&t);
    if (rc == 0)
        t.board->ready = 1;
    return rc != 0 ? rc : run_steps(&t);
}
