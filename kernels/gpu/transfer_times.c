/* transfer_times.c: how fast does what one GPU writes or reads at another arrive? */
#include "check.h"
#include "inject.h"
#include "transfer_rank.h"

enum {
    PASSES = 64, /* over the window, for a rate */
    SLOWER = 8,  /* times, injected */
    PINGS = 500
};

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

    rc = rc != 0 ? rc : transfer_settle(t);
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

    return rc != 0 ? rc : transfer_settle(t);
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

int step_rate(transfer *t, const step *s)
{
    const int load = s->kind == STEP_LOAD_RATE, what = load ? CHECK_READ : CHECK_WRITE;
    double rate = 0;
    char *window;
    int rc;

    if (t->me != s->a)
        return CODE_OK;
    window = load ? transfer_outbox(t->peer[s->b], s->a) : transfer_inbox(t->peer[s->b], s->a);
    rc = warm_window(t, window, what);
    rc = rc != 0 ? rc : time_window(t, window, what, !load && injected("slow", s->a, s->b) ? SLOWER : 1, &rate);
    if (rc == 0)
        board_number(t->board, s->kind, s->a, s->b, rate, "GB/s");
    return rc;
}

/* What a rank stores lies in its own window, what it loads in the next rank's. */
int step_host_rate(transfer *t, const step *s)
{
    const int load = s->kind == STEP_HOST_LOAD_RATE, what = load ? CHECK_READ : CHECK_WRITE;
    const int of = load ? (t->me + 1) % t->world : t->me;
    char *window = transfer_host_window(t->host, of, of);
    double rate = 0;
    int rc = transfer_meet(t, warm_window(t, window, what));

    rc = rc != 0 ? rc : time_window(t, window, what, 1, &rate);
    if (rc == 0)
        board_number(t->board, s->kind, t->me, 0, rate, "GB/s");
    return rc;
}

/* Where the words of a pair are that this rank looks at and that it sets. */
static void ping_words(transfer *t, const step *s, int offset, uint32_t **in, uint32_t **out)
{
    const int other = t->me == s->a ? s->b : s->a, host = s->kind == STEP_HOST_LATENCY;

    *in = transfer_word(host ? transfer_host_box(t->host, other, t->me) : transfer_box(t->own, other), offset);
    *out = transfer_word(host ? transfer_host_box(t->host, t->me, other) : transfer_box(t->peer[other], t->me), offset);
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
int step_ping(transfer *t, const step *s)
{
    const int there = t->me == s->a || t->me == s->b;
    uint32_t failed = 0;
    double us = 0;
    int turn, rc = there ? transfer_clear_boxes(t, t->me == s->a ? s->b : s->a) : CODE_OK;

    rc = rc != 0 ? rc : transfer_clear(t, t->sink, sizeof(*t->sink));
    rc = rc != 0 ? rc : transfer_settle(t);
    for (turn = 0; turn < 2 && rc == 0; turn++) {
        rc = transfer_meet(t, rc);
        if (rc == 0 && there)
            rc = ping_once(t, s, TRANSFER_PING + 128 * turn, &us);
    }
    rc = rc != 0 ? rc : CUDA(cudaMemcpy(&failed, t->sink, sizeof(failed), cudaMemcpyDeviceToHost));
    if (rc == 0 && t->me == s->b && failed != 0)
        board_put(t->board, s->kind, s->a, s->b, CHECK_FAIL, CODE_HANG, "flags to and fro: one did not come");
    else if (rc == 0 && t->me == s->b)
        board_number(t->board, s->kind, s->a, s->b, us / (2.0 * PINGS), "us");
    return transfer_meet(t, rc);
}

static int store_among_all(transfer *t, const step *s, int b)
{
    double rate = 0;
    int rc = time_window(t, transfer_inbox(t->peer[b], t->me), CHECK_WRITE, injected("collapse", t->me, b) ? SLOWER : 1, &rate);

    if (rc == 0)
        board_number(t->board, s->kind, t->me, b, rate, "GB/s");
    return rc;
}

/*
 * All store at once, each into the GPU that is so many ranks on, then so many more: among these rounds are those in which
 * neighbours on one switch store to different ways out of it, where posted writes have collapsed.
 */
int step_collapse(transfer *t, const step *s)
{
    int on, rc = CODE_OK;

    for (on = 1; on < t->world && rc == 0; on++) {
        const int b = (t->me + on) % t->world;

        rc = transfer_meet(t, rc);
        if (rc == 0 && t->board->granted[t->me][b])
            rc = store_among_all(t, s, b);
        else if (rc == 0)
            board_put(t->board, s->kind, t->me, b, CHECK_SKIP, CODE_OK, "no peer access");
    }
    return rc;
}
