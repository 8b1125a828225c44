#include "verify/machine/openers.h"

#include <ctype.h>
#include <dirent.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static bool has_open(const char *pid, const char *path)
{
    char name[64], target[PATH_MAX];
    bool found = false;
    DIR *dir;

    (void)snprintf(name, sizeof name, "/proc/%.32s/fd", pid);
    dir = opendir(name);
    for (struct dirent *entry; dir && !found && (entry = readdir(dir)) != NULL;) {
        ssize_t len = readlinkat(dirfd(dir), entry->d_name, target, sizeof target - 1);

        target[len > 0 ? len : 0] = '\0';
        found = strcmp(target, path) == 0;
    }
    if (dir)
        closedir(dir);
    return found;
}

size_t sp_openers(int64_t *pids, size_t max, const char *path)
{
    DIR *dir = opendir("/proc");
    size_t count = 0;

    for (struct dirent *entry; dir && count < max && (entry = readdir(dir)) != NULL;)
        if (isdigit((unsigned char)entry->d_name[0]) && atoll(entry->d_name) != getpid() &&
            has_open(entry->d_name, path))
            pids[count++] = atoll(entry->d_name);
    if (dir)
        closedir(dir);
    return count;
}
