#include "base/lock.h"

#include "base/err.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <time.h>
#include <unistd.h>

enum { POLL_MS = 50 };

/* A line of /proc/locks: "1: FLOCK  ADVISORY  WRITE 4711 fe:00:131 0 EOF". Pid 0 or less: in another pid namespace. */
static int pid_of_lock(const char *line, const struct stat *st)
{
    unsigned int major, minor;
    unsigned long inode;
    int pid;

    if (sscanf(line, "%*d: FLOCK %*s %*s %d %x:%x:%lu", &pid, &major, &minor, &inode) != 4)
        return 0;
    return inode == st->st_ino && makedev(major, minor) == st->st_dev && pid > 0 ? pid : 0;
}

/* The pid that holds a flock on fd, or 0. */
static int holder(int fd)
{
    char line[256];
    struct stat st;
    FILE *locks;
    int pid = 0;

    if (fstat(fd, &st) < 0)
        return 0;
    locks = fopen("/proc/locks", "re");
    if (!locks)
        return 0;
    while (!pid && fgets(line, sizeof line, locks))
        pid = pid_of_lock(line, &st);
    fclose(locks);
    return pid;
}

const char *sp_lock_who(char out[SP_LOCK_WHO], int pid)
{
    (void)snprintf(out, SP_LOCK_WHO, pid ? "process %d" : "another process", pid);
    return out;
}

int sp_lock_hint(int rc, int pid)
{
    char who[SP_LOCK_WHO];

    return sp_err_hint(rc, "wait until %s has ended, then run the command again", sp_lock_who(who, pid));
}

static int busy(int fd, const char *path, int wait_ms)
{
    char who[SP_LOCK_WHO];
    const int pid = holder(fd);

    sp_err(SP_ECANNOT, "cannot lock '%s': %s has been writing there for %d s", path, sp_lock_who(who, pid),
           wait_ms / 1000);
    return sp_lock_hint(SP_ECANNOT, pid);
}

static int lock(int fd, const char *path, int kind, int wait_ms)
{
    const struct timespec pause = {.tv_nsec = POLL_MS * 1000000L};

    for (int waited = 0;; waited += POLL_MS) {
        if (flock(fd, kind | LOCK_NB) == 0)
            return SP_OK;
        if (errno == EINTR)
            continue;
        if (errno != EWOULDBLOCK)
            return sp_err_sys(SP_ECANNOT, "cannot lock '%s'", path);
        if (waited >= wait_ms)
            return busy(fd, path, wait_ms);
        nanosleep(&pause, NULL);
    }
}

static int lock_or_close(int *fd, const char *path, int kind, int wait_ms)
{
    int rc;

    if (*fd < 0)
        return sp_err_sys(SP_ECANNOT, "cannot open '%s'", path);
    rc = lock(*fd, path, kind, wait_ms);
    if (rc < 0) {
        close(*fd);
        *fd = -1;
    }
    return rc;
}

int sp_lock_dir(int *fd, const char *path, int wait_ms)
{
    *fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return lock_or_close(fd, path, LOCK_EX, wait_ms);
}

int sp_lock_fd(int *fd, int dirfd, int kind, int wait_ms)
{
    *fd = openat(dirfd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return lock_or_close(fd, ".", kind, wait_ms);
}

int sp_lock_try(int *fd, int *pid, const char *path, int kind)
{
    int rc = SP_OK;

    *pid = 0;
    *fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (*fd < 0)
        return sp_err_sys(SP_ECANNOT, "cannot open '%s'", path);
    if (flock(*fd, kind | LOCK_NB) < 0) {
        rc = errno == EWOULDBLOCK ? 1 : sp_err_sys(SP_ECANNOT, "cannot lock '%s'", path);
        *pid = holder(*fd);
        close(*fd);
        *fd = -1;
    }
    return rc;
}

void sp_hold_signals(sigset_t *before)
{
    sigset_t held;

    sigemptyset(&held);
    sigaddset(&held, SIGHUP);
    sigaddset(&held, SIGINT);
    sigaddset(&held, SIGQUIT);
    sigaddset(&held, SIGTERM);
    sigprocmask(SIG_BLOCK, &held, before);
}

void sp_release_signals(const sigset_t *before)
{
    sigprocmask(SIG_SETMASK, before, NULL);
}
