/* transfer_steps.c: does what one GPU writes or reads at another arrive, at the right place and in order? */
#include "check.h"
#include "inject.h"
#include "transfer_rank.h"

#include <signal.h>
#include <string.h>

enum {
    LATE_S = 30, /* an injected delay */
    REPEATS = 2  /* of a test of all pairs at once */
};

/* --- judging --------------------------------------------------------------------------------- */

static int clear_tallies(transfer *t)
{
    return transfer_clear(t, t->tally, RANKS_MAX * sizeof(*t->tally));
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
        rc = transfer_settle(t);
    return rc != 0 ? rc : judge(t, kind, a, b, 0);
}

static int poison(transfer *t, int from)
{
    int rc = CUDA(cudaMemsetAsync(transfer_inbox(t->own, from), CHECK_POISON, TRANSFER_WINDOW, t->stream[0]));

    return rc != 0 ? rc : transfer_settle(t);
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

/* --- one GPU --------------------------------------------------------------------------------- */

/* This GPU by itself: its memory, host memory by stores and loads and by the copy engine. */
int step_control(transfer *t, const step *s)
{
    char *window = transfer_host_window(t->host, s->a, s->a);
    const uint32_t key = transfer_key((int)s->kind, s->a, s->a), seen = key + (uint32_t)injected("sick", s->a, -1);
    int rc;

    if (t->me != s->a)
        return CODE_OK;
    rc = CUDA(copies_fill(transfer_inbox(t->own, s->a), key, TRANSFER_WINDOW, t->stream[0]));
    rc = rc != 0 ? rc : judge_window(t, s->kind, s->a, 0, transfer_inbox(t->own, s->a), seen, 0);
    rc = rc != 0 ? rc : CUDA(copies_fill(window, key + 1, TRANSFER_WINDOW, t->stream[0]));
    rc = rc != 0 ? rc : judge_window(t, s->kind, s->a, 0, window, key + 1, 0);
    rc = rc != 0 ? rc : CUDA(cudaMemcpyAsync(window, transfer_inbox(t->own, s->a), TRANSFER_WINDOW, cudaMemcpyDeviceToHost, t->stream[0]));
    return rc != 0 ? rc : judge_window(t, s->kind, s->a, 0, window, key, 0);
}

/* --- one pair -------------------------------------------------------------------------------- */

static int put_window(transfer *t, step_kind kind, int b, uint32_t key, cudaStream_t stream)
{
    char *to = transfer_inbox(t->peer[b], t->me);
    int rc;

    if (kind == STEP_COPY || kind == STEP_COPY_ALL)
        return CUDA(cudaMemcpyAsync(to, transfer_outbox(t->own, b), TRANSFER_WINDOW, cudaMemcpyDeviceToDevice, stream));
    rc = CUDA(copies_fill(to, key, arriving(t->me, b), stream));
    return rc != 0 ? rc : spoil(t->me, b, to, stream);
}

static uint32_t written_key(step_kind kind, int a, int b)
{
    return kind == STEP_COPY || kind == STEP_COPY_ALL ? transfer_out_key(a, b) : transfer_key((int)kind, a, b);
}

int step_write(transfer *t, const step *s)
{
    const uint32_t key = written_key(s->kind, s->a, s->b);
    int rc = provoke(t, s);

    if (rc == 0 && t->me == s->b)
        rc = poison(t, s->a);
    rc = transfer_meet(t, rc);
    if (rc == 0 && t->me == s->a)
        rc = put_window(t, s->kind, s->b, key, t->stream[0]);
    rc = rc != 0 ? rc : transfer_settle(t);
    rc = transfer_meet(t, rc);
    if (rc == 0 && t->me == s->b)
        rc = judge_window(t, s->kind, s->a, s->b, transfer_inbox(t->own, s->a), key, 0);
    return rc;
}

int step_load(transfer *t, const step *s)
{
    if (t->me != s->a)
        return CODE_OK;
    return judge_window(t, s->kind, s->a, s->b, transfer_outbox(t->peer[s->b], s->a), transfer_out_key(s->b, s->a),
                        injected("nan", s->a, s->b));
}

int step_copy_read(transfer *t, const step *s)
{
    int rc;

    if (t->me != s->a)
        return CODE_OK;
    rc = poison(t, s->b);
    if (rc == 0)
        rc = CUDA(cudaMemcpyAsync(transfer_inbox(t->own, s->b), transfer_outbox(t->peer[s->b], s->a), TRANSFER_WINDOW,
                                  cudaMemcpyDeviceToDevice, t->stream[0]));
    rc = rc != 0 ? rc : transfer_settle(t);
    return rc != 0 ? rc : judge_window(t, s->kind, s->a, s->b, transfer_inbox(t->own, s->b), transfer_out_key(s->b, s->a), 0);
}

/* --- flag after data ------------------------------------------------------------------------- */

/* Where the parts of an exchange from one rank to another are. */
static copies_box exchange_box(transfer *t, const step *s, int sender, int receiver)
{
    char *at_receiver = t->me == receiver ? transfer_box(t->own, sender) : t->peer[receiver] ? transfer_box(t->peer[receiver], sender) : NULL;
    char *at_sender = t->me == sender ? transfer_box(t->own, receiver) : t->peer[sender] ? transfer_box(t->peer[sender], receiver) : NULL;
    char *shared = transfer_host_box(t->host, sender, receiver);
    char *data = s->kind == STEP_HOST_FLAG ? shared : s->kind == STEP_STORE_FLAG ? at_receiver : at_sender;
    char *flag = s->kind == STEP_HOST_FLAG ? shared : at_receiver;
    /* the way back must not depend on another pair */
    copies_box parts = {data, transfer_word(flag, TRANSFER_FLAG), transfer_word(shared, TRANSFER_ACK)};

    return parts;
}

int step_flag(transfer *t, const step *s)
{
    const int sender = s->kind == STEP_LOAD_FLAG ? s->b : s->a, receiver = s->kind == STEP_LOAD_FLAG ? s->a : s->b;
    const uint32_t key = transfer_key((int)s->kind, s->a, s->b);
    const int there = t->me == sender || t->me == receiver;
    int rc = there ? transfer_clear_boxes(t, t->me == sender ? receiver : sender) : CODE_OK;

    rc = rc != 0 ? rc : clear_tallies(t);
    rc = rc != 0 ? rc : transfer_settle(t);
    rc = transfer_meet(t, rc);
    if (rc == 0 && t->me == sender)
        rc = CUDA(copies_send(exchange_box(t, s, sender, receiver), key, TRANSFER_BOX_DATA, TRANSFER_ROUNDS,
                              s->kind == STEP_STORE_FLAG && injected("drop", s->a, s->b), t->tally, t->stream[0]));
    if (rc == 0 && t->me == receiver)
        rc = CUDA(copies_receive(exchange_box(t, s, sender, receiver), key, TRANSFER_BOX_DATA, TRANSFER_ROUNDS,
                                 s->kind == STEP_LOAD_FLAG && injected("nan", s->a, s->b), t->tally, t->stream[0]));
    rc = rc != 0 ? rc : transfer_settle(t);
    if (rc == 0 && t->me == receiver)
        rc = judge(t, s->kind, s->a, s->b, 0);
    return transfer_meet(t, rc);
}

/* --- all pairs at once ----------------------------------------------------------------------- */

static int write_all_once(transfer *t, const step *s)
{
    int p, rc = CODE_OK;

    for (p = 0; p < t->world && rc == 0; p++)
        rc = poison(t, p);
    rc = transfer_meet(t, rc);
    for (p = 0; p < t->world && rc == 0; p++)
        if (p != t->me && t->board->granted[t->me][p])
            rc = put_window(t, s->kind, p, written_key(s->kind, t->me, p), t->stream[p]);
    rc = rc != 0 ? rc : transfer_settle(t);
    rc = transfer_meet(t, rc);
    for (p = 0; p < t->world && rc == 0; p++)
        if (p != t->me && t->board->granted[p][t->me])
            rc = judge_window(t, s->kind, p, t->me, transfer_inbox(t->own, p), written_key(s->kind, p, t->me), 0);
    return transfer_meet(t, rc);
}

static int load_all_once(transfer *t, const step *s)
{
    int p, rc = clear_tallies(t);

    rc = transfer_meet(t, rc != 0 ? rc : transfer_settle(t));
    for (p = 0; p < t->world && rc == 0; p++)
        if (p != t->me && t->board->granted[t->me][p])
            rc = CUDA(copies_check(transfer_outbox(t->peer[p], t->me), transfer_out_key(p, t->me), TRANSFER_WINDOW,
                                   injected("nan", t->me, p), t->tally + p, t->stream[p]));
    rc = rc != 0 ? rc : transfer_settle(t);
    for (p = 0; p < t->world && rc == 0; p++)
        if (p != t->me && t->board->granted[t->me][p])
            rc = judge(t, s->kind, t->me, p, p);
    return transfer_meet(t, rc);
}

static int host_all_once(transfer *t, const step *s)
{
    int p, rc = CODE_OK;

    for (p = 0; p < t->world; p++)
        memset(transfer_host_window(t->host_cpu, t->me, p), CHECK_POISON, TRANSFER_WINDOW);
    rc = transfer_meet(t, rc);
    for (p = 0; p < t->world && rc == 0; p++)
        if (p != t->me)
            rc = CUDA(copies_fill(transfer_host_window(t->host, t->me, p), transfer_key((int)s->kind, t->me, p), TRANSFER_WINDOW,
                                  t->stream[p]));
    rc = rc != 0 ? rc : transfer_settle(t);
    rc = transfer_meet(t, rc);
    for (p = 0; p < t->world && rc == 0; p++)
        if (p != t->me)
            rc = judge_window(t, s->kind, p, t->me, transfer_host_window(t->host, p, t->me),
                              transfer_key((int)s->kind, p, t->me), 0);
    return transfer_meet(t, rc);
}

int step_all_pairs(transfer *t, const step *s)
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
