#include "check.h"
#include "copies.h"
#include "cuda.h"
#include "inject.h"
#include "probe.h"
#include "transfers.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

enum {
    SETTLE_S = 5,     /* what a step's kernels may take */
    COME_S = 10,      /* and a rank until it comes to the next one */
    LATE_S = 30,      /* an injected delay */
    PASSES = 64,      /* over the window, for a rate */
    SLOWER = 8,       /* times, injected */
    PINGS = 500,
    REPEATS = 2,      /* of a test of all pairs at once */
    FLAG = TRANSFER_BOX_DATA, PING = FLAG + 1024, ACK = FLAG + 2048
};

typedef struct {
    ranks *ranks;
    board *board;
    int me, world;
    char *own, *peer[RANKS_MAX]; /* inboxes, outboxes, boxes; the peer's, or null */
    char *host, *host_cpu;
    void *aside; /* where an injected lie leads */
    cudaStream_t stream[RANKS_MAX];
    copies_tally *tally; /* one for each stream */
    uint32_t *sink;
} transfer;

#define OWN_BYTES ((size_t)RANKS_MAX * (2 * TRANSFER_WINDOW + TRANSFER_BOX))

/* --- places ---------------------------------------------------------------------------------- */

static char *inbox(char *base, int from)
{
    return base + (size_t)from * TRANSFER_WINDOW;
}

static char *outbox(char *base, int reader)
{
    return base + (size_t)(RANKS_MAX + reader) * TRANSFER_WINDOW;
}

static char *box(char *base, int other)
{
    return base + (size_t)2 * RANKS_MAX * TRANSFER_WINDOW + (size_t)other * TRANSFER_BOX;
}

static char *host_window(char *host, int from, int to)
{
    return host + (size_t)(from * RANKS_MAX + to) * TRANSFER_WINDOW;
}

static char *host_box(char *host, int from, int to)
{
    return host + (size_t)RANKS_MAX * RANKS_MAX * TRANSFER_WINDOW + (size_t)(from * RANKS_MAX + to) * TRANSFER_BOX;
}

static uint32_t *word_at(char *place, int offset)
{
    return (uint32_t *)(void *)(place + offset);
}

static uint32_t key_of(int kind, int a, int b)
{
    return (uint32_t)(kind + 1) * 0x01000193u ^ (uint32_t)(a * RANKS_MAX + b + 1) * 0x9e3779b1u;
}

/* Of what a rank's outbox for a reader holds, in every test. */
static uint32_t out_key(int owner, int reader)
{
    return key_of(STEP_KINDS, owner, reader);
}

/* --- waiting --------------------------------------------------------------------------------- */

/* A kernel may never end: look, and give up in time. The process then ends without touching the GPU again. */
static int settle(transfer *t)
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

static int meet(transfer *t, int rc)
{
    return rc != 0 ? rc : ranks_barrier(t->ranks);
}

/* --- judging --------------------------------------------------------------------------------- */

/* On stream 0: what runs on another, or on another rank, must wait until this has settled. cudaMemset() would not do, it returns before it is done. */
static int clear(transfer *t, void *what, size_t bytes)
{
    return CUDA(cudaMemsetAsync(what, 0, bytes, t->stream[0]));
}

static int clear_tallies(transfer *t)
{
    return clear(t, t->tally, RANKS_MAX * sizeof(*t->tally));
}

static int judge(transfer *t, step_kind kind, int a, int b, int slot)
{
    copies_tally found;
    int rc = CUDA(cudaMemcpy(&found, t->tally + slot, sizeof(found), cudaMemcpyDeviceToHost));

    if (rc != 0)
        return rc;
    if (found.wrong != 0)
        board_put(t->board, kind, a, b, CHECK_FAIL, CODE_WRONG, "%llu words wrong, word %llu: expected %08x, seen %08x",
                  found.wrong, found.index, found.expected, found.seen);
    else if (found.late != 0)
        board_put(t->board, kind, a, b, CHECK_FAIL, CODE_HANG, "round %u: the flag did not come", found.late);
    else
        board_put(t->board, kind, a, b, CHECK_PASS, CODE_OK, "%d KiB", TRANSFER_WINDOW >> 10);
    return CODE_OK;
}

/* Compare a window with the pattern, and say so. */
static int judge_window(transfer *t, step_kind kind, int a, int b, const char *window, uint32_t key, int as_nan)
{
    int rc = clear_tallies(t);

    if (rc == 0)
        rc = CUDA(copies_check(window, key, TRANSFER_WINDOW, as_nan, t->tally, t->stream[0]));
    if (rc == 0)
        rc = settle(t);
    return rc != 0 ? rc : judge(t, kind, a, b, 0);
}

static int poison(transfer *t, int from)
{
    int rc = CUDA(cudaMemsetAsync(inbox(t->own, from), CHECK_POISON, TRANSFER_WINDOW, t->stream[0]));

    return rc != 0 ? rc : settle(t);
}

/* --- faults that the test makes itself ------------------------------------------------------- */

static int provoke(transfer *t, const step *s)
{
    if (s->kind != STEP_STORE || t->me != s->a)
        return CODE_OK;
    if (injected("delay", s->a, s->b))
        seconds_sleep(LATE_S);
    if (injected("die", s->a, s->b))
        raise(SIGKILL);
    return injected("hang", s->a, s->b) ? CUDA(copies_hang(t->stream[1])) : CODE_OK;
}

static size_t arriving(int a, int b)
{
    return injected("drop", a, b) ? TRANSFER_WINDOW * 3 / 4 : TRANSFER_WINDOW;
}

static int spoil(int a, int b, char *window, cudaStream_t stream)
{
    return injected("corrupt", a, b) ? CUDA(copies_fill(window + TRANSFER_WINDOW / 2, 1, 16, stream)) : CODE_OK;
}

/* --- one pair -------------------------------------------------------------------------------- */

static int put_window(transfer *t, step_kind kind, int b, uint32_t key, cudaStream_t stream)
{
    char *to = inbox(t->peer[b], t->me);
    int rc;

    if (kind == STEP_COPY || kind == STEP_COPY_ALL)
        return CUDA(cudaMemcpyAsync(to, outbox(t->own, b), TRANSFER_WINDOW, cudaMemcpyDeviceToDevice, stream));
    rc = CUDA(copies_fill(to, key, arriving(t->me, b), stream));
    return rc != 0 ? rc : spoil(t->me, b, to, stream);
}

static uint32_t written_key(step_kind kind, int a, int b)
{
    return kind == STEP_COPY || kind == STEP_COPY_ALL ? out_key(a, b) : key_of((int)kind, a, b);
}

static int write_pair(transfer *t, const step *s)
{
    const uint32_t key = written_key(s->kind, s->a, s->b);
    int rc = provoke(t, s);

    if (rc == 0 && t->me == s->b)
        rc = poison(t, s->a);
    rc = meet(t, rc);
    if (rc == 0 && t->me == s->a)
        rc = put_window(t, s->kind, s->b, key, t->stream[0]);
    rc = rc != 0 ? rc : settle(t);
    rc = meet(t, rc);
    if (rc == 0 && t->me == s->b)
        rc = judge_window(t, s->kind, s->a, s->b, inbox(t->own, s->a), key, 0);
    return rc;
}

static int load_pair(transfer *t, const step *s)
{
    if (t->me != s->a)
        return CODE_OK;
    return judge_window(t, s->kind, s->a, s->b, outbox(t->peer[s->b], s->a), out_key(s->b, s->a),
                        injected("nan", s->a, s->b));
}

static int copy_read_pair(transfer *t, const step *s)
{
    int rc;

    if (t->me != s->a)
        return CODE_OK;
    rc = poison(t, s->b);
    if (rc == 0)
        rc = CUDA(cudaMemcpyAsync(inbox(t->own, s->b), outbox(t->peer[s->b], s->a), TRANSFER_WINDOW,
                                  cudaMemcpyDeviceToDevice, t->stream[0]));
    rc = rc != 0 ? rc : settle(t);
    return rc != 0 ? rc : judge_window(t, s->kind, s->a, s->b, inbox(t->own, s->b), out_key(s->b, s->a), 0);
}

/* --- flag after data ------------------------------------------------------------------------- */

/* Where the parts of an exchange from one rank to another are. */
static copies_box exchange_box(transfer *t, const step *s, int sender, int receiver)
{
    char *at_receiver = t->me == receiver ? box(t->own, sender) : t->peer[receiver] ? box(t->peer[receiver], sender) : NULL;
    char *at_sender = t->me == sender ? box(t->own, receiver) : t->peer[sender] ? box(t->peer[sender], receiver) : NULL;
    char *shared = host_box(t->host, sender, receiver);
    char *data = s->kind == STEP_HOST_FLAG ? shared : s->kind == STEP_STORE_FLAG ? at_receiver : at_sender;
    char *flag = s->kind == STEP_HOST_FLAG ? shared : at_receiver;
    copies_box parts = {data, word_at(flag, FLAG), word_at(shared, ACK)}; /* the way back must not depend on another pair */

    return parts;
}

static int clear_boxes(transfer *t, int other)
{
    memset(host_box(t->host_cpu, t->me, other), 0, TRANSFER_BOX);
    return clear(t, box(t->own, other), TRANSFER_BOX);
}

static int flag_pair(transfer *t, const step *s)
{
    const int sender = s->kind == STEP_LOAD_FLAG ? s->b : s->a, receiver = s->kind == STEP_LOAD_FLAG ? s->a : s->b;
    const uint32_t key = key_of((int)s->kind, s->a, s->b);
    const int there = t->me == sender || t->me == receiver;
    int rc = there ? clear_boxes(t, t->me == sender ? receiver : sender) : CODE_OK;

    rc = rc != 0 ? rc : clear_tallies(t);
    rc = rc != 0 ? rc : settle(t);
    rc = meet(t, rc);
    if (rc == 0 && t->me == sender)
        rc = CUDA(copies_send(exchange_box(t, s, sender, receiver), key, TRANSFER_BOX_DATA, TRANSFER_ROUNDS,
                              s->kind == STEP_STORE_FLAG && injected("drop", s->a, s->b), t->tally, t->stream[0]));
    if (rc == 0 && t->me == receiver)
        rc = CUDA(copies_receive(exchange_box(t, s, sender, receiver), key, TRANSFER_BOX_DATA, TRANSFER_ROUNDS,
                                 s->kind == STEP_LOAD_FLAG && injected("nan", s->a, s->b), t->tally, t->stream[0]));
    rc = rc != 0 ? rc : settle(t);
    if (rc == 0 && t->me == receiver)
        rc = judge(t, s->kind, s->a, s->b, 0);
    return meet(t, rc);
}

/* --- all pairs at once ----------------------------------------------------------------------- */

static int write_all_once(transfer *t, const step *s)
{
    int p, rc = CODE_OK;

    for (p = 0; p < t->world && rc == 0; p++)
        rc = poison(t, p);
    rc = meet(t, rc);
    for (p = 0; p < t->world && rc == 0; p++)
        if (p != t->me && t->board->granted[t->me][p])
            rc = put_window(t, s->kind, p, written_key(s->kind, t->me, p), t->stream[p]);
    rc = rc != 0 ? rc : settle(t);
    rc = meet(t, rc);
    for (p = 0; p < t->world && rc == 0; p++)
        if (p != t->me && t->board->granted[p][t->me])
            rc = judge_window(t, s->kind, p, t->me, inbox(t->own, p), written_key(s->kind, p, t->me), 0);
    return meet(t, rc);
}

static int load_all_once(transfer *t, const step *s)
{
    int p, rc = clear_tallies(t);

    rc = meet(t, rc != 0 ? rc : settle(t));
    for (p = 0; p < t->world && rc == 0; p++)
        if (p != t->me && t->board->granted[t->me][p])
            rc = CUDA(copies_check(outbox(t->peer[p], t->me), out_key(p, t->me), TRANSFER_WINDOW,
                                   injected("nan", t->me, p), t->tally + p, t->stream[p]));
    rc = rc != 0 ? rc : settle(t);
    for (p = 0; p < t->world && rc == 0; p++)
        if (p != t->me && t->board->granted[t->me][p])
            rc = judge(t, s->kind, t->me, p, p);
    return meet(t, rc);
}

static int host_all_once(transfer *t, const step *s)
{
    int p, rc = CODE_OK;

    for (p = 0; p < t->world; p++)
        memset(host_window(t->host_cpu, t->me, p), CHECK_POISON, TRANSFER_WINDOW);
    rc = meet(t, rc);
    for (p = 0; p < t->world && rc == 0; p++)
        if (p != t->me)
            rc = CUDA(copies_fill(host_window(t->host, t->me, p), key_of((int)s->kind, t->me, p), TRANSFER_WINDOW,
                                  t->stream[p]));
    rc = rc != 0 ? rc : settle(t);
    rc = meet(t, rc);
    for (p = 0; p < t->world && rc == 0; p++)
        if (p != t->me)
            rc = judge_window(t, s->kind, p, t->me, host_window(t->host, p, t->me), key_of((int)s->kind, p, t->me), 0);
    return meet(t, rc);
}

static int all_pairs(transfer *t, const step *s)
{
    int (*once)(transfer *, const step *) = s->kind == STEP_HOST       ? host_all_once
                                            : s->kind == STEP_LOAD_ALL ? load_all_once
                                                                       : write_all_once;
    int i, rc = CODE_OK;

    for (i = 0; i < t->world && s->kind != STEP_HOST; i++)
        if (i != t->me && !t->board->granted[t->me][i])
            board_put(t->board, s->kind, t->me, i, CHECK_SKIP, CODE_OK, "no peer access");
    for (i = 0; i < REPEATS && rc == 0; i++)
        rc = once(t, s);
    return rc;
}

/* --- times ----------------------------------------------------------------------------------- */

typedef struct {
    cudaEvent_t begin, end;
} stopwatch;

static int start_watch(stopwatch *w, cudaStream_t stream)
{
    int rc = CUDA(cudaEventCreate(&w->begin));

    rc = rc != 0 ? rc : CUDA(cudaEventCreate(&w->end));
    return rc != 0 ? rc : CUDA(cudaEventRecord(w->begin, stream));
}

static int stop_watch(transfer *t, stopwatch *w, double *us)
{
    float ms = 0;
    int rc = CUDA(cudaEventRecord(w->end, t->stream[0]));

    rc = rc != 0 ? rc : settle(t);
    rc = rc != 0 ? rc : CUDA(cudaEventElapsedTime(&ms, w->begin, w->end));
    *us = 1000.0 * (double)ms;
    cudaEventDestroy(w->begin);
    cudaEventDestroy(w->end);
    return rc;
}

static int stream_window(transfer *t, char *window, int what, int passes)
{
    return CUDA(check_stream(window, window, TRANSFER_WINDOW, passes, what, t->sink, t->stream[0]));
}

static int warm_window(transfer *t, char *window, int what)
{
    int rc = stream_window(t, window, what, 4);

    return rc != 0 ? rc : settle(t);
}

/* Decimal GB/s of one kernel over a window; `slower`: an injected fault, so much longer for as many bytes. */
static int time_window(transfer *t, char *window, int what, int slower, double *rate)
{
    stopwatch watch;
    double us = 0;
    int rc = start_watch(&watch, t->stream[0]);

    rc = rc != 0 ? rc : stream_window(t, window, what, PASSES * slower);
    rc = rc != 0 ? rc : stop_watch(t, &watch, &us);
    *rate = us > 0 ? (double)TRANSFER_WINDOW * PASSES / us * 1e-3 : 0;
    return rc;
}

static int rate_pair(transfer *t, const step *s)
{
    const int load = s->kind == STEP_LOAD_RATE, what = load ? CHECK_READ : CHECK_WRITE;
    double rate = 0;
    char *window;
    int rc;

    if (t->me != s->a)
        return CODE_OK;
    window = load ? outbox(t->peer[s->b], s->a) : inbox(t->peer[s->b], s->a);
    rc = warm_window(t, window, what);
    rc = rc != 0 ? rc : time_window(t, window, what, !load && injected("slow", s->a, s->b) ? SLOWER : 1, &rate);
    if (rc == 0)
        board_number(t->board, s->kind, s->a, s->b, rate, "GB/s");
    return rc;
}

/* What a rank stores lies in its own window, what it loads in the next rank's. */
static int rate_host(transfer *t, const step *s)
{
    const int load = s->kind == STEP_HOST_LOAD_RATE, what = load ? CHECK_READ : CHECK_WRITE;
    const int of = load ? (t->me + 1) % t->world : t->me;
    char *window = host_window(t->host, of, of);
    double rate = 0;
    int rc = meet(t, warm_window(t, window, what));

    rc = rc != 0 ? rc : time_window(t, window, what, 1, &rate);
    if (rc == 0)
        board_number(t->board, s->kind, t->me, 0, rate, "GB/s");
    return rc;
}

/* Where the words of a pair are that this rank looks at and that it sets. */
static void ping_words(transfer *t, const step *s, int offset, uint32_t **in, uint32_t **out)
{
    const int other = t->me == s->a ? s->b : s->a, host = s->kind == STEP_HOST_LATENCY;

    *in = word_at(host ? host_box(t->host, other, t->me) : box(t->own, other), offset);
    *out = word_at(host ? host_box(t->host, t->me, other) : box(t->peer[other], t->me), offset);
}

static int ping_once(transfer *t, const step *s, int offset, double *us)
{
    uint32_t *in, *out;
    stopwatch watch;
    int rc = start_watch(&watch, t->stream[0]);

    ping_words(t, s, offset, &in, &out);
    if (rc == 0)
        rc = CUDA(check_ping_pong(in, out, t->me == s->a, PINGS, t->sink, t->stream[0]));
    return rc != 0 ? rc : stop_watch(t, &watch, us);
}

/* Twice, the first to warm up. B's clock counts: it starts when A is there or just before. */
static int ping_pair(transfer *t, const step *s)
{
    const int there = t->me == s->a || t->me == s->b;
    uint32_t failed = 0;
    double us = 0;
    int turn, rc = there ? clear_boxes(t, t->me == s->a ? s->b : s->a) : CODE_OK;

    rc = rc != 0 ? rc : clear(t, t->sink, sizeof(*t->sink));
    rc = rc != 0 ? rc : settle(t);
    for (turn = 0; turn < 2 && rc == 0; turn++) {
        rc = meet(t, rc);
        if (rc == 0 && there)
            rc = ping_once(t, s, PING + 128 * turn, &us);
    }
    rc = rc != 0 ? rc : CUDA(cudaMemcpy(&failed, t->sink, sizeof(failed), cudaMemcpyDeviceToHost));
    if (rc == 0 && t->me == s->b && failed != 0)
        board_put(t->board, s->kind, s->a, s->b, CHECK_FAIL, CODE_HANG, "flags to and fro: one did not come");
    else if (rc == 0 && t->me == s->b)
        board_number(t->board, s->kind, s->a, s->b, us / (2.0 * PINGS), "us");
    return meet(t, rc);
}

static int store_among_all(transfer *t, const step *s, int b)
{
    double rate = 0;
    int rc = time_window(t, inbox(t->peer[b], t->me), CHECK_WRITE, injected("collapse", t->me, b) ? SLOWER : 1, &rate);

    if (rc == 0)
        board_number(t->board, s->kind, t->me, b, rate, "GB/s");
    return rc;
}

/*
 * All store at once, each into the GPU that is so many ranks on, then so many more: among these rounds are those in which
 * neighbours on one switch store to different ways out of it, where posted writes have collapsed.
 */
static int collapse(transfer *t, const step *s)
{
    int on, rc = CODE_OK;

    for (on = 1; on < t->world && rc == 0; on++) {
        const int b = (t->me + on) % t->world;

        rc = meet(t, rc);
        if (rc == 0 && t->board->granted[t->me][b])
            rc = store_among_all(t, s, b);
        else if (rc == 0)
            board_put(t->board, s->kind, t->me, b, CHECK_SKIP, CODE_OK, "no peer access");
    }
    return rc;
}

/* --- control --------------------------------------------------------------------------------- */

/* This GPU by itself: its memory, host memory by stores and loads and by the copy engine. */
static int control(transfer *t, const step *s)
{
    char *window = host_window(t->host, s->a, s->a);
    const uint32_t key = key_of((int)s->kind, s->a, s->a), seen = key + (uint32_t)injected("sick", s->a, -1);
    int rc;

    if (t->me != s->a)
        return CODE_OK;
    rc = CUDA(copies_fill(inbox(t->own, s->a), key, TRANSFER_WINDOW, t->stream[0]));
    rc = rc != 0 ? rc : judge_window(t, s->kind, s->a, 0, inbox(t->own, s->a), seen, 0);
    rc = rc != 0 ? rc : CUDA(copies_fill(window, key + 1, TRANSFER_WINDOW, t->stream[0]));
    rc = rc != 0 ? rc : judge_window(t, s->kind, s->a, 0, window, key + 1, 0);
    rc = rc != 0 ? rc : CUDA(cudaMemcpyAsync(window, inbox(t->own, s->a), TRANSFER_WINDOW, cudaMemcpyDeviceToHost, t->stream[0]));
    return rc != 0 ? rc : judge_window(t, s->kind, s->a, 0, window, key, 0);
}

/* --- a rank ---------------------------------------------------------------------------------- */

static int (*const runs[STEP_KINDS])(transfer *, const step *) = {
    [STEP_CONTROL] = control,       [STEP_HOST] = all_pairs,        [STEP_HOST_FLAG] = flag_pair,
    [STEP_COPY] = write_pair,       [STEP_COPY_READ] = copy_read_pair, [STEP_STORE] = write_pair,
    [STEP_STORE_FLAG] = flag_pair,  [STEP_LOAD] = load_pair,        [STEP_LOAD_FLAG] = flag_pair,
    [STEP_COPY_ALL] = all_pairs,    [STEP_STORE_ALL] = all_pairs,   [STEP_LOAD_ALL] = all_pairs,
    [STEP_LATENCY] = ping_pair,     [STEP_HOST_LATENCY] = ping_pair,
    [STEP_STORE_RATE] = rate_pair,  [STEP_LOAD_RATE] = rate_pair,
    [STEP_HOST_STORE_RATE] = rate_host, [STEP_HOST_LOAD_RATE] = rate_host,
    [STEP_COLLAPSE] = collapse,
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
        rc = CUDA(copies_fill(outbox(t->own, i), out_key(t->me, i), TRANSFER_WINDOW, t->stream[0]));
    return rc != 0 ? rc : settle(t);
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
    return meet(t, rc);
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
        rc = meet(t, rc);
        if (rc == 0 && possible(t, s))
            rc = runs[s->kind](t, s);
    }
    if (rc == 0)
        t->board->at[t->me] = t->board->count;
    return meet(t, rc);
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
