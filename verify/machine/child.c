#include "verify/machine/child.h"
#include "base/err.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { ANSWER_MAX = 8 << 20, STEP_MS = 100, REAP_MS = 1000 };

static int64_t now_ms(void)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static _Noreturn void run_child(int fd, sp_child_work *work, const void *context)
{
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    work(fd, context);
    _exit(0);
}

/* Until the child closes its end. */
static int read_answer(struct sp_buf *answer, int fd, int64_t end)
{
    struct pollfd wait = {.fd = fd, .events = POLLIN};
    char part[4096];
    ssize_t got = 1;
    int rc = SP_OK;

    while (got > 0 && rc == SP_OK) {
        if (now_ms() >= end || answer->len > ANSWER_MAX)
            return sp_err(SP_EHANG, "no answer in time");
        if (poll(&wait, 1, STEP_MS) <= 0)
            continue;
        got = read(fd, part, sizeof part);
        if (got > 0)
            rc = sp_buf_append(answer, part, (size_t)got);
    }
    return rc;
}

/* One that hangs in the driver may not even die: it is not waited for longer than this. */
static int reap(pid_t pid, int rc)
{
    int status = -1;

    if (rc < 0)
        (void)kill(pid, SIGKILL);
    for (int waited = 0; waited < REAP_MS && waitpid(pid, &status, WNOHANG) == 0; waited += 10)
        (void)poll(NULL, 0, 10);
    if (rc == SP_OK && !(WIFEXITED(status) && WEXITSTATUS(status) == 0))
        rc = sp_err(SP_ECANNOT, "the process that asked died");
    return rc;
}

int sp_child_ask(struct sp_buf *answer, int seconds, sp_child_work *work, const void *context)
{
    const int64_t end = now_ms() + (int64_t)seconds * 1000;
    int ends[2], rc;
    pid_t pid;

    if (pipe2(ends, O_CLOEXEC) != 0)
        return sp_err_sys(SP_ECANNOT, "cannot make a pipe");
    pid = fork();
    if (pid == 0)
        run_child(ends[1], work, context);
    close(ends[1]);
    rc = pid < 0 ? sp_err_sys(SP_ECANNOT, "cannot start a process") : read_answer(answer, ends[0], end);
    if (pid > 0)
        rc = reap(pid, rc);
    close(ends[0]);
    return rc;
}
