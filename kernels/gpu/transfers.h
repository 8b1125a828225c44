/*
 * transfers.h: does what one GPU writes or reads at another arrive, at the right place, in order, and how fast?
 *
 * Checks are steps. All ranks go through the list of steps together; what a step finds is put on a board in shared memory
 * by the rank that saw it. When a step takes the processes down, by a hang or a fault of the GPU, it is marked on the board
 * and new processes go on behind it (transfers.c). What a rank does: transfer_rank.h.
 */
#ifndef GPU_TRANSFERS_H
#define GPU_TRANSFERS_H

#include "options.h"
#include "report.h"

#include <stdint.h>

typedef enum {
    STEP_CONTROL,    /* A: own memory and host memory, no peer */
    STEP_HOST,       /* all pairs at once: A stores into host memory, B loads */
    STEP_HOST_FLAG,  /* A, B: flag after data in host memory */
    STEP_COPY,       /* A, B: the copy engine writes A's memory to B */
    STEP_COPY_READ,  /* A, B: the copy engine of A reads B's memory */
    STEP_STORE,      /* A, B: A's SMs store into B's memory */
    STEP_STORE_FLAG, /* A, B: flag after data into B's memory */
    STEP_LOAD,       /* A, B: A's SMs load from B's memory */
    STEP_LOAD_FLAG,  /* A, B: B flags what it has written to itself, A loads it */
    STEP_COPY_ALL,   /* the same, all pairs at once */
    STEP_STORE_ALL,
    STEP_LOAD_ALL,
    STEP_LATENCY,    /* A, B: one way, by a flag to and fro */
    STEP_HOST_LATENCY,
    STEP_STORE_RATE, /* A, B */
    STEP_LOAD_RATE,
    STEP_HOST_STORE_RATE, /* A, all at once: to and from host memory */
    STEP_HOST_LOAD_RATE,
    STEP_COLLAPSE,   /* A, B, all at once, each into another's memory */
    STEP_KINDS
} step_kind;

typedef struct {
    step_kind kind;
    int a, b; /* ranks; -1: none in particular */
} step;

/* What is known of a kind and a pair; a result without a state was not come to. */
typedef struct {
    int known;
    check_status status;
    int code;
    double number, expected; /* with a unit; expected 0: none */
    const char *unit;
    char text[240];
} step_result;

enum { STEPS_MAX = STEP_KINDS * RANKS_MAX * RANKS_MAX };

typedef struct {
    int world, device[RANKS_MAX];
    int granted[RANKS_MAX][RANKS_MAX]; /* A may access B's memory */
    volatile int at[RANKS_MAX];        /* the step that a rank is in */
    volatile int ready;                /* set up, in steps */
    int first;                         /* where to go on */
    step steps[STEPS_MAX];
    int count;
    step_result result[STEP_KINDS][RANKS_MAX][RANKS_MAX]; /* second index 0 where there is no B */
} board;

/* The body of a rank, for ranks_run(); `host` is shared memory of TRANSFER_HOST_BYTES. */
typedef struct {
    board *board;
    void *host;
} transfer_job;

enum {
    TRANSFER_WINDOW = 1 << 20,      /* bytes of one test of a pair */
    TRANSFER_BOX = 64 << 10,        /* an exchange: data, flag and acknowledgement */
    TRANSFER_BOX_DATA = 32 << 10,
    TRANSFER_ROUNDS = 200
};

#define TRANSFER_HOST_BYTES ((size_t)RANKS_MAX * RANKS_MAX * (TRANSFER_WINDOW + TRANSFER_BOX))

int transfer_body(ranks *self, void *context);

/* Name as in a check's id: "store-flag". */
const char *step_name(step_kind kind);

/* Put what was found; the first FAIL of a step stays. */
void board_put(board *b, step_kind kind, int a, int peer, check_status status, int code, const char *format, ...)
    __attribute__((format(printf, 7, 8)));
void board_number(board *b, step_kind kind, int a, int peer, double number, const char *unit);

#endif
