#include "build/scratch.h"
#include "base/err.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* How often, and how long apart, removing is tried again: a compiler whose parent was killed may write a moment longer.
 */
enum { TRIES = 100, PAUSE_MS = 100, WALK_FDS = 16 };

const char *sp_scratch_parent(void)
{
    const char *parent = getenv("TMPDIR");

    return parent && *parent ? parent : "/tmp";
}

static int remove_one(const char *path, const struct stat *st, int kind, struct FTW *where)
{
    (void)st;
    (void)kind;
    (void)where;
    (void)remove(path);
    return 0;
}

static void remove_tree(const char *path)
{
    const struct timespec pause = {.tv_nsec = PAUSE_MS * 1000000L};

    for (int i = 0; i < TRIES; i++) {
        (void)nftw(path, remove_one, WALK_FDS, FTW_DEPTH | FTW_PHYS);
        if (access(path, F_OK) != 0 && errno == ENOENT)
            break;
        (void)nanosleep(&pause, NULL);
    }
}

/* Nothing of ours may stay open in the keeper, or whoever waits for our output would wait for it, too. */
static void close_all_but(int fd)
{
    int high = fcntl(fd, F_DUPFD, 10), null = open("/dev/null", O_RDWR);

    for (int i = 0; i < 3; i++)
        (void)dup2(null, i);
    (void)dup2(high, 3);
    (void)syscall(SYS_close_range, 4U, ~0U, 0U);
}

static _Noreturn void keep(const char *path, int fd)
{
    char byte;

    (void)setsid(); /* a Ctrl-C is for the others */
    (void)signal(SIGHUP, SIG_IGN);
    (void)signal(SIGINT, SIG_IGN);
    (void)signal(SIGTERM, SIG_IGN);
    close_all_but(fd);
    while (read(3, &byte, 1) < 0 && errno == EINTR)
        ;
    remove_tree(path);
    _exit(0);
}

int sp_scratch_hint(int rc)
{
    return sp_err_hint(rc, "name a folder with some free space with TMPDIR");
}

static int no_room(void)
{
    const char *parent = sp_scratch_parent(), *named = getenv("TMPDIR");

    (void)sp_err_sys(SP_ECANNOT, "cannot make a folder in %s'%s'", parent == named ? "$TMPDIR " : "", parent);
    return sp_scratch_hint(SP_ECANNOT);
}

int sp_scratch_check(void)
{
    const int parent = open(sp_scratch_parent(), O_PATH | O_DIRECTORY | O_CLOEXEC);
    const int rc = parent >= 0 && faccessat(parent, ".", W_OK | X_OK, AT_EACCESS) == 0 ? 0 : no_room();

    if (parent >= 0)
        close(parent);
    return rc;
}

/* An absolute path: the compilers run elsewhere. */
static int make_folder(char **out)
{
    char *path = NULL;
    int rc = 0;

    if (asprintf(&path, "%s/sgl-pcie-build-XXXXXX", sp_scratch_parent()) < 0) {
        path = NULL;
        rc = sp_err(SP_ECANNOT, "out of memory");
    } else if (mkdtemp(path) == NULL || (*out = realpath(path, NULL)) == NULL) {
        rc = no_room();
    }
    free(path);
    return rc;
}

int sp_scratch_make(struct sp_scratch *out)
{
    int ends[2] = {-1, -1}, rc;

    *out = (struct sp_scratch)SP_SCRATCH_INIT;
    rc = make_folder(&out->path);
    if (rc < 0)
        return rc;
    if (pipe2(ends, O_CLOEXEC) == 0 && (out->keeper = fork()) == 0) {
        close(ends[1]);
        keep(out->path, ends[0]);
    }
    if (ends[0] >= 0)
        close(ends[0]);
    out->pipe = ends[1];
    return out->keeper > 0 ? 0 : sp_err_sys(SP_ECANNOT, "cannot start a child");
}

void sp_scratch_free(struct sp_scratch *scratch)
{
    if (scratch->path != NULL)
        remove_tree(scratch->path);
    if (scratch->pipe >= 0)
        close(scratch->pipe);
    while (scratch->keeper > 0 && waitpid(scratch->keeper, NULL, 0) < 0 && errno == EINTR)
        ;
    free(scratch->path);
    *scratch = (struct sp_scratch)SP_SCRATCH_INIT;
}
