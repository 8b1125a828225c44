/*
 * ranks.h: rank processes with a bootstrap all-gather, time limits and nothing left behind.
 *
 * ranks_run() forks `world` processes in a process group of their own. The parent must not have called CUDA: a CUDA
 * context does not survive fork. Each child runs `body`; what it returns is the rank's result code. Every child dies
 * with the parent (PR_SET_PDEATHSIG); at the time limit the whole group is killed, and the report says what each rank
 * was doing, from the note that it left in shared memory.
 *
 *     static int body(ranks *r, void *context) { ... rank_note("..."); ... return rank_fail(CODE_WRONG, "..."); }
 *     ranks_outcome outcome;
 *     code = ranks_run(&outcome, 4, 60.0, body, context);
 *
 * The all-gather goes over socket pairs, through rank 0. Its waits are bounded; a rank that does not come is named on
 * every other rank. Memory from shared_alloc() before ranks_run() is seen by parent and ranks alike.
 */
#ifndef GPU_RANKS_H
#define GPU_RANKS_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum { RANKS_MAX = 8 };

/* Exit codes of the program; of several results the worst counts: see code_worse(). */
enum { CODE_OK = 0, CODE_CHECK = 1, CODE_USAGE = 2, CODE_CANNOT = 5, CODE_WRONG = 7, CODE_HANG = 8, CODE_UNSURE = 9 };

/* The worse of two codes: wrong data, hang, could not, failed check, inconclusive. */
int code_worse(int a, int b);

typedef struct {
    int code;       /* what the body returned; CODE_HANG when killed at the limit */
    int signal;     /* the signal that ended it, or 0 */
    char text[512]; /* first failure, empty if none */
    char note[160]; /* what it did last */
} rank_state;

typedef struct {
    rank_state rank[RANKS_MAX];
    int code; /* the worst, deaths by a signal as CODE_CANNOT unless told to expect them */
    int timed_out;
    int stray; /* processes of the group that outlived their rank and had to be killed */
    double seconds;
} ranks_outcome;

typedef struct {
    int rank, world;
    int socket[RANKS_MAX]; /* rank 0: one per other rank; others: [0] */
    double limit_s;        /* of one all-gather; default 60 */
    uint32_t round;
    int broken; /* an all-gather failed: the ranks are out of step, all that follow fail at once */
} ranks;

typedef int (*ranks_body)(ranks *self, void *context);

/* Run the ranks and wait. expected_dead: bits of ranks whose death by SIGKILL is no failure. Returns outcome->code. */
int ranks_run(ranks_outcome *outcome, int world, double limit_s, unsigned expected_dead, ranks_body body,
              void *context);

/* What the first rank that failed says; "" where none did. */
const char *ranks_failure(const ranks_outcome *outcome);

/* All-gather with the signature that par_create() wants; `self` is a ranks. 0 or CODE_HANG. */
int ranks_allgather(void *self, const void *mine, void *all, size_t bytes);

/* All ranks have come. */
int ranks_barrier(ranks *self);

/* The worst code of all ranks, on all ranks; a failed all-gather counts as CODE_HANG. */
int ranks_agree(ranks *self, int code);

/* Record the first failure of this rank, or of the parent; returns code. */
int rank_fail(int code, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Say what this rank is about to do. */
void rank_note(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Forget this rank's failure, which has been dealt with. */
void rank_clear(void);

/* The text of this rank's first failure. */
const char *rank_text(void);

/* Zeroed memory that survives fork and is shared; null if there is none. */
void *shared_alloc(size_t bytes);
void shared_free(void *memory, size_t bytes);

/* Seconds on a clock that all processes share. */
double seconds_now(void);
void seconds_sleep(double seconds);

#endif
