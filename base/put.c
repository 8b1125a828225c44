#include "base/put.h"
#include "base/err.h"
#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void folder_of(char out[PATH_MAX], const char *path)
{
    const char *slash = strrchr(path, '/');

    if (!slash)
        (void)snprintf(out, PATH_MAX, ".");
    else
        (void)snprintf(out, PATH_MAX, "%.*s", slash == path ? 1 : (int)(slash - path), path);
}

int sp_put_check(const char *path)
{
    char folder[PATH_MAX];
    struct stat st;
    int rc = SP_OK;

    folder_of(folder, path);
    if (stat(path, &st) == 0 && S_ISDIR(st.st_mode)) {
        errno = EISDIR;
        rc = sp_err_sys(SP_ECANNOT, "cannot write '%s'", path);
    } else if (access(path, F_OK) == 0 ? access(path, W_OK) != 0 : access(folder, W_OK | X_OK) != 0) {
        rc = sp_err_sys(SP_ECANNOT, "cannot write '%s'", path);
    }
    return rc;
}

static int adopt(int fd, const char *path)
{
    char folder[PATH_MAX];
    int dir, rc;

    folder_of(folder, path);
    dir = open(folder, O_PATH | O_DIRECTORY | O_CLOEXEC);
    rc = dir < 0 ? sp_err_sys(SP_ECANNOT, "cannot open '%s'", folder) : sp_adopt(fd, dir, path);
    if (dir >= 0)
        close(dir);
    return rc;
}

/* ---- beside ---- */

/* Is it to be written in place? What cannot be made or renamed there has not been touched. */
static bool must_stay(int error)
{
    return error == EACCES || error == EPERM || error == EROFS || error == EBUSY || error == EXDEV ||
           error == ENAMETOOLONG || error == ENOENT;
}

/* 0, or -1 with errno: as the old one is. */
static int become(int fd, const struct stat *old)
{
    struct stat now;

    if (fstat(fd, &now) != 0)
        return -1;
    if ((now.st_uid != old->st_uid || now.st_gid != old->st_gid) && fchown(fd, old->st_uid, old->st_gid) != 0)
        return -1;
    return fchmod(fd, old->st_mode & 0777);
}

static int finish(int fd, const void *data, size_t len, const char *path)
{
    int rc = sp_write_all(fd, data, len, path);

    /* file systems that write later may only now see that they are full; some cannot be asked */
    if (rc == SP_OK && fsync(fd) != 0 && errno != EINVAL && errno != ENOTSUP)
        rc = sp_err_sys(SP_ECANNOT, "cannot write '%s'", path);
    return rc;
}

/* path: as the user has it; real: the file itself. *stays: nothing was done, as it must be written in place. */
static int put_beside(bool *stays, const char *path, const char *real, const struct stat *old, const void *data,
                      size_t len)
{
    char folder[PATH_MAX], beside[PATH_MAX + 32];
    int fd, rc = SP_OK;

    folder_of(folder, real);
    (void)snprintf(beside, sizeof beside, "%s/.sgl-pcie.XXXXXX", folder);
    fd = mkostemp(beside, O_CLOEXEC);
    *stays = fd < 0 ? must_stay(errno) : become(fd, old) != 0;
    if (fd < 0)
        return *stays ? SP_OK : sp_err_sys(SP_ECANNOT, "cannot write '%s'", path);
    if (!*stays)
        rc = finish(fd, data, len, path);
    if (close(fd) != 0 && rc == SP_OK)
        rc = sp_err_sys(SP_ECANNOT, "cannot write '%s'", path);
    if (rc == SP_OK && !*stays && rename(beside, real) == 0)
        return SP_OK;
    if (rc == SP_OK && !*stays) {
        *stays = must_stay(errno);
        rc = *stays ? SP_OK : sp_err_sys(SP_ECANNOT, "cannot write '%s'", path);
    }
    unlink(beside);
    return rc;
}

/* ---- in place ---- */

/* Nothing is written over before all of it has room. */
static int reserve(int fd, size_t len, const struct stat *old, const char *path)
{
    int error = len > 0 ? posix_fallocate(fd, 0, (off_t)len) : 0;

    if (error != ENOSPC && error != EDQUOT && error != EFBIG)
        return SP_OK;
    if (ftruncate(fd, old->st_size) == 0)
        errno = error;
    return sp_write_failed(path);
}

static int put_in_place(const char *path, const struct stat *old, const void *data, size_t len)
{
    const bool regular = S_ISREG(old->st_mode);
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    int rc = fd < 0 ? sp_err_sys(SP_ECANNOT, "cannot write '%s'", path) : SP_OK;

    if (rc == SP_OK && regular)
        rc = reserve(fd, len, old, path);
    if (rc == SP_OK)
        rc = sp_write_all(fd, data, len, path);
    if (rc == SP_OK && regular && ftruncate(fd, (off_t)len) != 0)
        rc = sp_err_sys(SP_ECANNOT, "cannot write '%s'", path);
    if (fd >= 0 && close(fd) != 0 && rc == SP_OK)
        rc = sp_err_sys(SP_ECANNOT, "cannot write '%s'", path);
    return rc;
}

/* ---- one that is there, and one that is not ---- */

/* The file that a name leads to. Not what is named as a descriptor: whoever has it open would write on into the old
 * one. */
static bool find_real(char real[PATH_MAX], const char *path, const struct stat *old)
{
    struct stat st;

    return strncmp(path, "/dev/", 5) != 0 && strncmp(path, "/proc/", 6) != 0 && realpath(path, real) &&
           stat(real, &st) == 0 && st.st_dev == old->st_dev && st.st_ino == old->st_ino;
}

static int replace(const char *path, const struct stat *old, const void *data, size_t len)
{
    char real[PATH_MAX];
    bool stays = !S_ISREG(old->st_mode) || old->st_nlink > 1 || !find_real(real, path, old);
    int rc = SP_OK;

    if (faccessat(AT_FDCWD, path, W_OK, AT_EACCESS) != 0) /* renaming asks the folder alone */
        return sp_err_sys(SP_ECANNOT, "cannot write '%s'", path);
    if (!stays)
        rc = put_beside(&stays, path, real, old, data, len);
    return rc == SP_OK && stays ? put_in_place(path, old, data, len) : rc;
}

/* Through a link that leads nowhere yet, too. */
static int make(const char *path, const void *data, size_t len)
{
    struct stat st;
    const bool link = lstat(path, &st) == 0;
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC | (link ? 0 : O_EXCL), 0644);
    int rc = fd < 0 ? sp_err_sys(SP_ECANNOT, "cannot write '%s'", path) : SP_OK;

    if (rc == SP_OK && !link)
        rc = adopt(fd, path);
    if (rc == SP_OK)
        rc = sp_write_all(fd, data, len, path);
    if (fd >= 0 && close(fd) != 0 && rc == SP_OK)
        rc = sp_err_sys(SP_ECANNOT, "cannot write '%s'", path);
    if (rc < 0 && fd >= 0 && !link)
        unlink(path);
    return rc;
}

int sp_put_file(const char *path, const void *data, size_t len)
{
    struct stat st;

    return stat(path, &st) == 0 ? replace(path, &st, data, len) : make(path, data, len);
}
