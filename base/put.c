#include "base/put.h"
#include "base/err.h"
#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static int open_file(int *fd, bool *made, const char *path)
{
    *fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    *made = *fd >= 0;
    if (*fd < 0 && errno == EEXIST)
        *fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    return *fd < 0 ? sp_err_sys(SP_ECANNOT, "cannot write '%s'", path) : SP_OK;
}

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

int sp_put_file(const char *path, const void *data, size_t len)
{
    bool made;
    int fd, rc = open_file(&fd, &made, path);

    if (rc == SP_OK && made)
        rc = adopt(fd, path);
    if (rc == SP_OK)
        rc = sp_write_all(fd, data, len, path);
    if (fd >= 0 && close(fd) != 0 && rc == SP_OK)
        rc = sp_err_sys(SP_ECANNOT, "cannot write '%s'", path);
    if (rc < 0 && fd >= 0 && made)
        unlink(path);
    return rc;
}
