/*
 * transfer_rank.h: a rank among those that test transfers: its memory and its peers', as the steps see them. What
 * arrives is tested in transfer_steps.c, how fast in transfer_times.c.
 *
 * A step that all ranks take part in meets before what another rank must find done, and settles before it meets. One that
 * fails is not gone on with: the code goes up to transfer_body(), and with it the process ends.
 */
#ifndef GPU_TRANSFER_RANK_H
#define GPU_TRANSFER_RANK_H

#include "copies.h"
#include "cuda.h"
#include "transfers.h"

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

/* In a box: data, flag, the words of a ping and the acknowledgement. */
enum { TRANSFER_FLAG = TRANSFER_BOX_DATA, TRANSFER_PING = TRANSFER_FLAG + 1024, TRANSFER_ACK = TRANSFER_FLAG + 2048 };

/* Places in a rank's own memory, by its base as mapped here, and in host memory. */
char *transfer_inbox(char *base, int from);
char *transfer_outbox(char *base, int reader);
char *transfer_box(char *base, int other);
char *transfer_host_window(char *host, int from, int to);
char *transfer_host_box(char *host, int from, int to);
uint32_t *transfer_word(char *place, int offset);

/* Of the pattern in a window; and of what a rank's outbox for a reader holds, in every test. */
uint32_t transfer_key(int kind, int a, int b);
uint32_t transfer_out_key(int owner, int reader);

/* A kernel may never end: look, and give up in time. The process then ends without touching the GPU again. */
int transfer_settle(transfer *t);
int transfer_meet(transfer *t, int rc);

/* On stream 0: what runs on another, or on another rank, must wait until this has settled. */
int transfer_clear(transfer *t, void *what, size_t bytes);
int transfer_clear_boxes(transfer *t, int other);

/* Steps, by what they do; which does what kind: transfer_rank.c. */
int step_control(transfer *t, const step *s);
int step_write(transfer *t, const step *s);
int step_copy_read(transfer *t, const step *s);
int step_load(transfer *t, const step *s);
int step_flag(transfer *t, const step *s);
int step_all_pairs(transfer *t, const step *s);
int step_ping(transfer *t, const step *s);
int step_rate(transfer *t, const step *s);
int step_host_rate(transfer *t, const step *s);
int step_collapse(transfer *t, const step *s);

#endif
