#include "ranks.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* What precedes the bytes of an all-gather, both ways. */
typedef struct {
    uint32_t round;
    int32_t culprit; /* the rank for which it failed, or -1 */
    uint64_t bytes;
} frame;

static rank_state parent_state;               /* what failed outside a rank */
static rank_state *own_state = &parent_state; /* in a rank: its state in shared memory */
static volatile sig_atomic_t group;           /* in the parent: the process group that a signal must take down */

/* --- codes, clock, shared memory ------------------------------------------------------------- */

static int severity(int code)
{
    static const int order[] = {CODE_OK, CODE_UNSURE, CODE_CHECK, CODE_CANNOT, CODE_HANG, CODE_WRONG};
    int found = 1, i;

    for (i = 0; i < (int)(sizeof(order) / sizeof(order[0])); i++)
        if (order[i] == code)
            found = i;
    return found;
}

int code_worse(int a, int b)
{
    return severity(a) >= severity(b) ? a : b;
}

double seconds_now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

void seconds_sleep(double seconds)
{
    struct timespec t = {(time_t)seconds, (long)((seconds - (double)(time_t)seconds) * 1e9)};

    while (nanosleep(&t, &t) != 0 && errno == EINTR)
        ;
}

void *shared_alloc(size_t bytes)
{
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    return p == MAP_FAILED ? NULL : p;
}

void shared_free(void *memory, size_t bytes)
{
    if (memory != NULL)
        munmap(memory, bytes);
}

/* --- notes and failures of a rank ------------------------------------------------------------ */

int rank_fail(int code, const char *format, ...)
{
    va_list args;

    if (own_state->text[0] == '\0') {
        va_start(args, format);
        vsnprintf(own_state->text, sizeof(own_state->text), format, args);
        va_end(args);
    }
    return code;
}

void rank_note(const char *format, ...)
{
    va_list args;

    va_start(args, format);
    vsnprintf(own_state->note, sizeof(own_state->note), format, args);
    va_end(args);
}

void rank_clear(void)
{
    own_state->text[0] = '\0';
}

const char *rank_text(void)
{
    return own_state->text;
}

/* --- bounded transfers ----------------------------------------------------------------------- */

/* Wait until the socket is ready; 0 when it is, -1 at the deadline. */
static int await(int fd, short events, double deadline)
{
    struct pollfd p = {fd, events, 0};
    int n = 0;

    while (n <= 0) {
        double left = deadline - seconds_now();
        if (left <= 0)
            return -1;
        n = poll(&p, 1, (int)(left * 1000) + 1);
        if (n < 0 && errno != EINTR)
            return -1;
    }
    return 0;
}

static int send_all(int fd, const void *data, size_t bytes, double deadline)
{
    const char *p = data;

    while (bytes > 0) {
        ssize_t n = send(fd, p, bytes, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (n > 0) {
            p += n;
            bytes -= (size_t)n;
        } else if (n < 0 && errno != EAGAIN && errno != EINTR) {
            return -1;
        } else if (await(fd, POLLOUT, deadline) != 0) {
            return -1;
        }
    }
    return 0;
}

static int receive_all(int fd, void *data, size_t bytes, double deadline)
{
    char *p = data;

    while (bytes > 0) {
        ssize_t n = recv(fd, p, bytes, MSG_DONTWAIT);
        if (n > 0) {
            p += n;
            bytes -= (size_t)n;
        } else if (n == 0 || (errno != EAGAIN && errno != EINTR)) {
            return -1;
        } else if (await(fd, POLLIN, deadline) != 0) {
            return -1;
        }
    }
    return 0;
}

/* --- all-gather ------------------------------------------------------------------------------ */

static int receive_part(ranks *self, int from, void *data, size_t bytes, double deadline)
{
    frame f;

    if (receive_all(self->socket[from], &f, sizeof(f), deadline) != 0 || f.round != self->round || f.bytes != bytes)
        return -1;
    return receive_all(self->socket[from], data, bytes, deadline);
}

/* Rank 0: collect, then hand out, or tell everybody for whom it failed. */
static int gather_root(ranks *self, const void *mine, char *all, size_t bytes, double deadline)
{
    frame f = {self->round, -1, bytes * (size_t)self->world};
    int r;

    memcpy(all, mine, bytes);
    for (r = 1; r < self->world && f.culprit < 0; r++)
        if (receive_part(self, r, all + (size_t)r * bytes, bytes, deadline) != 0)
            f.culprit = r;
    deadline = seconds_now() + self->limit_s;
    for (r = 1; r < self->world; r++) {
        if (r == f.culprit || send_all(self->socket[r], &f, sizeof(f), deadline) != 0)
            continue; /* it will notice by itself; the others must still be served */
        if (f.culprit < 0)
            (void)send_all(self->socket[r], all, bytes * (size_t)self->world, deadline);
    }
    return f.culprit;
}

static int gather_leaf(ranks *self, const void *mine, char *all, size_t bytes, double deadline)
{
    frame f = {self->round, -1, bytes};

    if (send_all(self->socket[0], &f, sizeof(f), deadline) != 0 ||
        send_all(self->socket[0], mine, bytes, deadline) != 0)
        return 0;
    deadline += self->limit_s; /* rank 0 may need its own limit before it can name somebody */
    if (receive_all(self->socket[0], &f, sizeof(f), deadline) != 0 || f.round != self->round)
        return 0;
    if (f.culprit < 0 &&
        (f.bytes != bytes * (size_t)self->world || receive_all(self->socket[0], all, f.bytes, deadline) != 0))
        return 0;
    return f.culprit;
}

int ranks_allgather(void *context, const void *mine, void *all, size_t bytes)
{
    ranks *self = context;
    double deadline = seconds_now() + self->limit_s;
    int culprit;

    if (self->broken)
        return CODE_HANG;
    self->round++;
    if (self->rank == 0)
        culprit = gather_root(self, mine, all, bytes, deadline);
    else
        culprit = gather_leaf(self, mine, all, bytes, deadline);
    if (culprit < 0)
        return 0;
    self->broken = 1;
    return rank_fail(CODE_HANG, "rank %d did not come to all-gather %u within %.0f s", culprit, self->round,
                     self->limit_s);
}

int ranks_barrier(ranks *self)
{
    char mine = 0, all[RANKS_MAX];

    return ranks_allgather(self, &mine, all, 1);
}

int ranks_agree(ranks *self, int code)
{
    int all[RANKS_MAX], r;

    if (ranks_allgather(self, &code, all, sizeof(code)) != 0)
        return code_worse(code, CODE_HANG);
    for (r = 0; r < self->world; r++)
        code = code_worse(code, all[r]);
    return code;
}

/* --- processes ------------------------------------------------------------------------------- */

static void take_down(int number)
{
    pid_t leader = (pid_t)group;

    if (leader > 0)
        kill(-leader, SIGKILL);
    signal(number, SIG_DFL);
    raise(number);
}

static void watch_signals(void)
{
    static const int numbers[] = {SIGINT, SIGTERM, SIGHUP};
    struct sigaction action;
    size_t i;

    memset(&action, 0, sizeof(action));
    action.sa_handler = take_down;
    for (i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++)
        sigaction(numbers[i], &action, NULL);
}

static void close_sockets(int pair[RANKS_MAX][2])
{
    int r;

    for (r = 1; r < RANKS_MAX; r++) {
        if (pair[r][0] >= 0)
            close(pair[r][0]);
        if (pair[r][1] >= 0)
            close(pair[r][1]);
        pair[r][0] = pair[r][1] = -1;
    }
}

static int open_sockets(int pair[RANKS_MAX][2], int world)
{
    int r, rc = 0;

    for (r = 0; r < RANKS_MAX; r++)
        pair[r][0] = pair[r][1] = -1;
    for (r = 1; r < world && rc == 0; r++)
        rc = socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair[r]);
    return rc;
}

/* Keep this rank's ends and close all others, so that a dead rank is seen as the end of the stream. */
static void keep_ends(ranks *self, int pair[RANKS_MAX][2])
{
    int r;

    for (r = 0; r < RANKS_MAX; r++)
        self->socket[r] = -1;
    for (r = 1; r < self->world; r++) {
        int *kept = self->rank == 0 ? &pair[r][0] : self->rank == r ? &pair[r][1] : NULL;
        if (kept != NULL) {
            self->socket[self->rank == 0 ? r : 0] = *kept;
            *kept = -1;
        }
    }
    close_sockets(pair);
}

static _Noreturn void child(int rank, int world, pid_t leader, pid_t parent, rank_state *state, int pair[RANKS_MAX][2],
                            ranks_body body, void *context)
{
    ranks self = {rank, world, {0}, 60.0, 0, 0};

    setpgid(0, leader);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(CODE_CANNOT); /* it died before we asked to die with it */
    signal(SIGINT, SIG_DFL);
    signal(SIGTERM, SIG_DFL);
    signal(SIGHUP, SIG_DFL);
    own_state = state;
    keep_ends(&self, pair);
    state->code = body(&self, context);
    fflush(NULL);
    _exit(state->code);
}

/* Fork the ranks; returns how many there are. */
static int start(pid_t pid[], int world, rank_state *state, int pair[RANKS_MAX][2], ranks_body body, void *context)
{
    pid_t parent = getpid();
    int r;

    fflush(NULL);
    for (r = 0; r < world; r++) {
        pid[r] = fork();
        if (pid[r] < 0)
            break;
        if (pid[r] == 0)
            child(r, world, r == 0 ? 0 : pid[0], parent, &state[r], pair, body, context);
        setpgid(pid[r], pid[0]); /* whoever of the two comes first */
        if (r == 0)
            group = (sig_atomic_t)pid[0];
    }
    return r;
}

static int reap(pid_t pid[], int world, rank_state *state)
{
    int r, status, left = 0;

    for (r = 0; r < world; r++) {
        if (pid[r] <= 0)
            continue;
        if (waitpid(pid[r], &status, WNOHANG) == 0) {
            left++;
            continue;
        }
        state[r].signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
        if (WIFEXITED(status))
            state[r].code = WEXITSTATUS(status);
        pid[r] = 0;
    }
    return left;
}

/* Wait for all until the limit, then kill and wait a little for the kernel to clean up. */
static void wait_ranks(ranks_outcome *out, pid_t pid[], int world, rank_state *state, double limit)
{
    double end = seconds_now() + limit;
    pid_t leader = pid[0];
    int r, left;

    while ((left = reap(pid, world, state)) > 0 && seconds_now() < end)
        seconds_sleep(0.002);
    if (left > 0) {
        out->timed_out = 1;
        for (r = 0; r < world; r++)
            if (pid[r] > 0)
                state[r].code = CODE_HANG;
    }
    out->stray = kill(-leader, SIGKILL) == 0 && left == 0;
    end = seconds_now() + 10;
    while (left > 0 && seconds_now() < end) {
        left = reap(pid, world, state);
        seconds_sleep(0.002);
    }
    group = 0;
}

static void judge(ranks_outcome *out, int world, rank_state *state, unsigned expected_dead)
{
    int r;

    for (r = 0; r < world; r++) {
        rank_state *s = &state[r];
        int expected = (expected_dead >> r & 1u) != 0;
        if (out->timed_out && s->signal == SIGKILL && s->code == CODE_HANG && s->text[0] == '\0')
            snprintf(s->text, sizeof(s->text), "killed at the time limit; last: %s", s->note);
        else if (s->signal != 0 && !expected && s->text[0] == '\0')
            snprintf(s->text, sizeof(s->text), "ended by signal %d; last: %s", s->signal, s->note);
        if (s->signal != 0 && s->code == CODE_OK && !expected)
            s->code = CODE_CANNOT;
        out->code = code_worse(out->code, s->code);
        out->rank[r] = *s;
    }
}

int ranks_run(ranks_outcome *outcome, int world, double limit_s, unsigned expected_dead, ranks_body body, void *context)
{
    rank_state *state = shared_alloc(RANKS_MAX * sizeof(*state));
    int pair[RANKS_MAX][2], started = 0;
    pid_t pid[RANKS_MAX] = {0};
    double begin = seconds_now();

    memset(outcome, 0, sizeof(*outcome));
    watch_signals();
    if (open_sockets(pair, world) == 0 && state != NULL)
        started = start(pid, world, state, pair, body, context);
    close_sockets(pair);
    if (started < world) {
        if (started > 0)
            kill(-pid[0], SIGKILL);
        outcome->code = rank_fail(CODE_CANNOT, "cannot start %d processes: %s", world, strerror(errno));
    }
    if (started > 0) {
        wait_ranks(outcome, pid, started, state, limit_s);
        judge(outcome, started, state, expected_dead);
    }
    outcome->seconds = seconds_now() - begin;
    shared_free(state, RANKS_MAX * sizeof(*state));
    return outcome->code;
}

const char *ranks_failure(const ranks_outcome *outcome)
{
    int r = 0;

    while (r + 1 < RANKS_MAX && outcome->rank[r].text[0] == '\0')
        r++;
    return outcome->rank[r].text;
}
