#include "base/proc.h"

#include "base/err.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* SLICE_MS: how often to look whether the child has ended while something else holds its pipes open. GRACE_MS: how long
 * one that is asked to end has for it. */
enum { SLICE_MS = 20, RUNNING_MAX = 64, GRACE_MS = 2000 };

struct stream {
    int fd; /* -1: closed */
    struct sp_buf *buf;
    size_t max;
    bool *cut;
    sp_proc_seen *seen;
    void *context;
};

static int64_t now_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static void close_fd(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

/* ---- the child's side: only async-signal-safe calls, errors go through the pipe ---- */

static void move_fd(int from, int to)
{
    if (dup2(from, to) < 0)
        _exit(127);
}

static void run_child(const char *const *argv, const struct sp_proc_options *options, pid_t parent, int in, int out,
                      int err, int failure)
{
    sigset_t none;
    int why;

    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(127);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    signal(SIGPIPE, SIG_DFL);
    signal(SIGXFSZ, SIG_DFL);
    move_fd(in >= 0 ? in : open("/dev/null", O_RDONLY), STDIN_FILENO);
    move_fd(out, STDOUT_FILENO);
    move_fd(err, STDERR_FILENO);
    if (options->dir && chdir(options->dir) < 0)
        goto fail;
    if (options->env)
        execvpe(argv[0], (char *const *)(uintptr_t)argv, (char *const *)(uintptr_t)options->env);
    else
        execvp(argv[0], (char *const *)(uintptr_t)argv);
fail:
    why = errno;
    if (write(failure, &why, sizeof why) != sizeof why)
        _exit(126);
    _exit(127);
}

/* ---- a signal that ends us: only async-signal-safe calls ---- */

static _Atomic pid_t running[RUNNING_MAX];
static atomic_bool ending;

/* True when it has ended; it stays a zombie, so that its process group cannot be anybody else's. */
static bool has_ended(pid_t child)
{
    siginfo_t info = {0};

    return waitid(P_PID, (id_t)child, &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid == child;
}

/* One that finds no room is not ended in time, but with us. */
static void remember(pid_t child)
{
    pid_t none = 0;

    for (size_t i = 0; i < RUNNING_MAX && !atomic_compare_exchange_strong(&running[i], &none, child); i++)
        none = 0;
}

/* Nobody is to act on how a child ended that we have ended ourselves. */
static void forget(pid_t child)
{
    for (size_t i = 0; i < RUNNING_MAX; i++) {
        pid_t is = child;

        (void)atomic_compare_exchange_strong(&running[i], &is, 0);
    }
    while (atomic_load(&ending))
        pause();
}

/* How many have not ended yet. */
static size_t send_all(int number)
{
    size_t left = 0;

    for (size_t i = 0; i < RUNNING_MAX; i++) {
        const pid_t child = atomic_load(&running[i]);

        if (child > 0 && number)
            kill(-child, number);
        left += child > 0 && !has_ended(child);
    }
    return left;
}

static void end_all(int number)
{
    const struct timespec slice = {.tv_nsec = SLICE_MS * 1000000L};

    atomic_store(&ending, true);
    (void)send_all(SIGTERM);
    for (int waited = 0; waited < GRACE_MS && send_all(0); waited += SLICE_MS)
        nanosleep(&slice, NULL);
    (void)send_all(SIGKILL);
    signal(number, SIG_DFL);
    raise(number); /* it comes when this returns */
}

void sp_proc_catch_signals(void)
{
    static const int numbers[] = {SIGHUP, SIGINT, SIGQUIT, SIGTERM};
    struct sigaction action = {.sa_handler = end_all}, before;

    sigemptyset(&action.sa_mask);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        sigaddset(&action.sa_mask, numbers[i]);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        if (sigaction(numbers[i], NULL, &before) == 0 && before.sa_handler != SIG_IGN)
            (void)sigaction(numbers[i], &action, NULL);
}

/* ---- our side ---- */

/* Pipes above 2, so that the child's dup2() never overwrites an end that it still needs. */
static int make_pipe(int ends[2])
{
    if (pipe2(ends, O_CLOEXEC) < 0)
        return -1;
    for (int i = 0; i < 2; i++) {
        if (ends[i] <= STDERR_FILENO) {
            int moved = fcntl(ends[i], F_DUPFD_CLOEXEC, STDERR_FILENO + 1);

            if (moved < 0)
                return -1;
            close(ends[i]);
            ends[i] = moved;
        }
    }
    return 0;
}

/* The input lies in memory, with no pipe to fill: a child that does not read it cannot hold us up. */
static int make_input(int *fd, const struct sp_proc_options *options)
{
    int file, rc;

    *fd = -1;
    if (!options->input)
        return SP_OK;
    file = memfd_create("input", MFD_CLOEXEC);
    *fd = file < 0 ? -1 : fcntl(file, F_DUPFD_CLOEXEC, STDERR_FILENO + 1); /* as make_pipe() */
    if (file >= 0)
        close(file);
    if (*fd < 0)
        return sp_err_sys(SP_ECANNOT, "cannot make the input of a child");
    rc = sp_write_all(*fd, options->input, options->input_len, "the input of a child");
    if (rc == SP_OK && lseek(*fd, 0, SEEK_SET) < 0)
        rc = sp_err_sys(SP_ECANNOT, "cannot rewind the input of a child");
    if (rc < 0)
        close_fd(fd);
    return rc;
}

static int read_failure(int fd)
{
    int why = 0;
    ssize_t got;

    do
        got = read(fd, &why, sizeof why);
    while (got < 0 && errno == EINTR);
    return got == (ssize_t)sizeof why ? why : 0;
}

/* Fork and wait until exec has succeeded or failed. */
static int start(pid_t *child, int *out, int *err, const char *const *argv, const struct sp_proc_options *options)
{
    int pipes[3][2] = {{-1, -1}, {-1, -1}, {-1, -1}};
    pid_t parent = getpid();
    int input = -1, rc = make_input(&input, options), why;

    *child = -1;
    for (int i = 0; i < 3 && rc == SP_OK; i++)
        if (make_pipe(pipes[i]) < 0) {
            rc = sp_err_sys(SP_ECANNOT, "cannot run '%s'", argv[0]);
            goto out;
        }
    if (rc < 0)
        goto out;
    *child = fork();
    if (*child < 0) {
        rc = sp_err_sys(SP_ECANNOT, "cannot run '%s'", argv[0]);
        goto out;
    }
    if (*child == 0)
        run_child(argv, options, parent, input, pipes[0][1], pipes[1][1], pipes[2][1]);
    setpgid(*child, *child); /* both sides, whichever is first: a kill of the group must not miss */
    remember(*child);
    close_fd(&pipes[2][1]);
    why = read_failure(pipes[2][0]);
    if (why) {
        waitpid(*child, NULL, 0);
        forget(*child);
        errno = why;
        rc = sp_err_sys(SP_ECANNOT, "cannot run '%s'", argv[0]);
        goto out;
    }
    *out = pipes[0][0];
    *err = pipes[1][0];
    pipes[0][0] = pipes[1][0] = -1;
out:
    close_fd(&input);
    for (int i = 0; i < 3; i++) {
        close_fd(&pipes[i][0]);
        close_fd(&pipes[i][1]);
    }
    return rc;
}

static int drain(struct stream *stream)
{
    char chunk[16384];
    ssize_t got = read(stream->fd, chunk, sizeof chunk);
    size_t keep;

    if (got < 0 && (errno == EINTR || errno == EAGAIN))
        return SP_OK;
    if (got <= 0) {
        close_fd(&stream->fd);
        return SP_OK;
    }
    if (stream->seen)
        stream->seen(stream->context, chunk, (size_t)got);
    keep = stream->max - stream->buf->len;
    if ((size_t)got > keep)
        *stream->cut = true;
    else
        keep = (size_t)got;
    return keep ? sp_buf_append(stream->buf, chunk, keep) : SP_OK;
}

static int poll_streams(struct stream streams[2], int timeout)
{
    struct pollfd fds[2] = {{.fd = streams[0].fd, .events = POLLIN}, {.fd = streams[1].fd, .events = POLLIN}};
    int ready = poll(fds, 2, timeout), rc = SP_OK;

    if (ready <= 0)
        return ready < 0 && errno != EINTR ? sp_err_sys(SP_ECANNOT, "cannot read from a child") : 0;
    for (int i = 0; i < 2 && rc >= 0; i++)
        if (fds[i].revents)
            rc = drain(&streams[i]);
    return rc < 0 ? rc : 1;
}

/* Until both pipes are closed, or the child has ended and nothing more is in them, or time is up. */
static int collect(bool *timed_out, struct stream streams[2], pid_t child, double seconds)
{
    int64_t deadline = seconds > 0 ? now_ms() + (int64_t)(seconds * 1000) : INT64_MAX;
    bool ended = false;

    for (;;) {
        int64_t left = deadline - now_ms();
        int got = poll_streams(streams, ended ? 0 : left < SLICE_MS ? (left > 0 ? (int)left : 0) : SLICE_MS);

        if (got < 0)
            return got;
        if (got == 0 && ended)
            return SP_OK;
        ended = ended || has_ended(child);
        if (streams[0].fd < 0 && streams[1].fd < 0 && ended)
            return SP_OK;
        if (!ended && left <= 0) {
            *timed_out = true;
            return SP_OK;
        }
    }
}

static void reap(struct sp_proc_result *result, pid_t child)
{
    int status;

    kill(-child, SIGKILL);
    while (waitpid(child, &status, 0) < 0 && errno == EINTR)
        ;
    forget(child);
    result->status = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    result->signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

int sp_proc_run(struct sp_proc_result *result, const char *const *argv, const struct sp_proc_options *options)
{
    struct stream streams[2] = {
        {.fd = -1, .buf = &result->out, .max = options->output_max, .cut = &result->out_cut},
        {.fd = -1,
         .buf = &result->err,
         .max = options->output_max,
         .cut = &result->err_cut,
         .seen = options->seen,
         .context = options->context},
    };
    pid_t child;
    int rc;

    memset(result, 0, sizeof *result);
    rc = sp_buf_set(&result->out, "", 0);
    if (rc >= 0)
        rc = sp_buf_set(&result->err, "", 0);
    if (rc >= 0)
        rc = start(&child, &streams[0].fd, &streams[1].fd, argv, options);
    if (rc < 0) {
        sp_proc_free(result);
        return rc;
    }
    rc = collect(&result->timed_out, streams, child, options->seconds);
    reap(result, child);
    close_fd(&streams[0].fd);
    close_fd(&streams[1].fd);
    if (rc < 0)
        sp_proc_free(result);
    return rc;
}

/* The last line that is not empty: where Python and most tools say what is wrong. */
static const char *last_line(char *text)
{
    size_t len = strlen(text);
    char *line;

    while (len && (text[len - 1] == '\n' || text[len - 1] == '\r' || text[len - 1] == ' '))
        text[--len] = '\0';
    line = strrchr(text, '\n');
    return line ? line + 1 : text;
}

int sp_proc_run_ok(struct sp_proc_result *result, const char *const *argv, const struct sp_proc_options *options)
{
    int rc = sp_proc_run(result, argv, options);
    struct sp_buf copy = SP_BUF_INIT;

    if (rc < 0 || (result->status == 0 && !result->timed_out))
        return rc;
    if (result->timed_out)
        return sp_err(SP_EHANG, "'%s' did not end within %g seconds", argv[0], options->seconds);
    rc = sp_buf_set(&copy, result->err.data, result->err.len);
    if (rc < 0)
        return rc;
    if (result->signal)
        rc = sp_err(SP_ECANNOT, "'%s' was ended by signal %d (%s)", argv[0], result->signal, strsignal(result->signal));
    else
        rc = sp_err(SP_ECANNOT, "'%s' failed with exit status %d%s%s", argv[0], result->status,
                    copy.data[0] ? ": " : "", last_line(copy.data));
    sp_buf_free(&copy);
    return rc;
}

void sp_proc_free(struct sp_proc_result *result)
{
    sp_buf_free(&result->out);
    sp_buf_free(&result->err);
}
