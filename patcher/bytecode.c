#include "patcher/bytecode.h"
#include "base/err.h"
#include "base/file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static int is_bytecode_of(const char *entry, const char *stem, size_t stem_len)
{
    size_t len = strlen(entry);

    return len > stem_len + 4 && strncmp(entry, stem, stem_len) == 0 && entry[stem_len] == '.' &&
           strcmp(entry + len - 4, ".pyc") == 0;
}

/* Takes the descriptor over. */
static int remove_in(size_t *removed, int dirfd, const char *stem, size_t stem_len, const char *shown)
{
    DIR *dir = fdopendir(dirfd);
    int rc = 0;

    if (dir == NULL) {
        close(dirfd);
        return sp_err_sys(SP_ECANNOT, "cannot read '%s'", shown);
    }
    for (struct dirent *entry; rc == 0 && (entry = readdir(dir)) != NULL;) {
        if (!is_bytecode_of(entry->d_name, stem, stem_len))
            continue;
        if (unlinkat(dirfd, entry->d_name, 0) == 0)
            (*removed)++;
        else if (errno != ENOENT)
            rc = sp_err_sys(SP_ECANNOT, "cannot remove stale bytecode '%s/%s'", shown, entry->d_name);
    }
    closedir(dir);
    return rc;
}

/* ENOENT is what one hopes for. */
static int absent(int rc)
{
    if (rc < 0 && (errno == ENOENT || errno == ENOTDIR)) {
        sp_err_clear();
        return 1;
    }
    return 0;
}

int sp_bytecode_remove(size_t *removed, const struct sp_install *install, const char *path)
{
    const char *slash = strrchr(path, '/');
    const char *name = slash ? slash + 1 : path;
    const size_t stem_len = strcspn(name, ".");
    char folder[2 * PATH_MAX];
    int fd, rc;

    (void)snprintf(folder, sizeof folder, "%.*s__pycache__", (int)(name - path), path);
    rc = sp_open_beneath(&fd, install->root_fd, folder, O_RDONLY | O_DIRECTORY, 0);
    if (rc == 0)
        rc = remove_in(removed, fd, name, stem_len, folder);
    else if (absent(rc))
        rc = 0;
    if (rc < 0 || install->pycache_prefix == NULL)
        return rc;
    /* The cache prefix mirrors absolute paths, without __pycache__; it is the user's own folder. */
    (void)snprintf(folder, sizeof folder, "%s%s/%.*s", install->pycache_prefix, install->root, (int)(name - path),
                   path);
    fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return fd < 0 ? 0 : remove_in(removed, fd, name, stem_len, folder);
}
