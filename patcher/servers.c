#include "patcher/servers.h"
#include "base/err.h"
#include "base/file.h"

#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { CMDLINE_MAX = 8192, SHOWN_MAX = 60 };

/* What to look for: paths with a trailing slash, so that "/a/sglang-x" is not taken for "/a/sglang". */
struct traces {
    char package[PATH_MAX + 16];
    char kernel[PATH_MAX + 16];
    char site[PATH_MAX + 2];
    char prefix[PATH_MAX + 2]; /* of the environment: "/venv/", or "" */
};

static void make_traces(struct traces *traces, const struct sp_install *install)
{
    const char *lib = strstr(install->site, "/lib/python");
    const size_t prefix_len = lib ? (size_t)(lib - install->site) : 0;

    (void)snprintf(traces->package, sizeof traces->package, "%s/sglang/", install->root);
    (void)snprintf(traces->kernel, sizeof traces->kernel, "%s/sgl_kernel/", install->site);
    (void)snprintf(traces->site, sizeof traces->site, "%s/", install->site);
    (void)snprintf(traces->prefix, sizeof traces->prefix, "%.*s%s", (int)prefix_len, install->site, lib ? "/" : "");
}

/* *ours: something below site-packages is mapped, so the process runs on this install. */
static int has_mapped(int *ours, int proc_fd, const struct traces *traces)
{
    int fd, found = 0;
    FILE *maps = (fd = openat(proc_fd, "maps", O_RDONLY | O_CLOEXEC)) >= 0 ? fdopen(fd, "r") : NULL;
    char *line = NULL;
    size_t size = 0;

    while (maps != NULL && !found && getline(&line, &size, maps) > 0) {
        found = strstr(line, traces->package) != NULL || strstr(line, traces->kernel) != NULL;
        *ours = *ours || strstr(line, traces->site) != NULL;
    }
    free(line);
    if (maps != NULL)
        fclose(maps);
    return found;
}

static int has_open(int proc_fd, const struct traces *traces)
{
    int fd = openat(proc_fd, "fd", O_RDONLY | O_DIRECTORY | O_CLOEXEC), found = 0;
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    char target[PATH_MAX];

    for (struct dirent *entry; dir != NULL && !found && (entry = readdir(dir)) != NULL;) {
        ssize_t len = readlinkat(fd, entry->d_name, target, sizeof target - 1);

        if (len > 0) {
            target[len] = '\0';
            found = strncmp(target, traces->package, strlen(traces->package)) == 0;
        }
    }
    if (dir != NULL)
        closedir(dir);
    return found;
}

/* The command line with blanks between the arguments; "" when it cannot be read. */
static void read_cmdline(char cmdline[CMDLINE_MAX], int proc_fd)
{
    int fd = openat(proc_fd, "cmdline", O_RDONLY | O_CLOEXEC);
    ssize_t len = fd < 0 ? 0 : read(fd, cmdline, CMDLINE_MAX - 1);

    if (len < 0)
        len = 0;
    for (ssize_t i = 0; i < len; i++)
        if (cmdline[i] == '\0')
            cmdline[i] = ' ';
    cmdline[len] = '\0';
    if (fd >= 0)
        close(fd);
}

/* "-m sglang.x", "/venv/bin/sglang serve", and the titles that SGLang gives its workers: "sglang::scheduler". */
static int names_sglang(const char *cmdline)
{
    return strstr(cmdline, "-m sglang") != NULL || strstr(cmdline, "/bin/sglang") != NULL ||
           strncmp(cmdline, "sglang::", 8) == 0;
}

/* An interpreter in a virtual environment is a link, so /proc/<pid>/exe does not tell; its command line does. */
static int runs_here(const char *cmdline, const struct traces *traces)
{
    return traces->prefix[0] != '\0' && strstr(cmdline, traces->prefix) != NULL;
}

static int holds_install(const char *pid, const struct traces *traces, char cmdline[CMDLINE_MAX])
{
    char proc[64];
    int proc_fd, found, ours = 0;

    (void)snprintf(proc, sizeof proc, "/proc/%.32s", pid);
    proc_fd = open(proc, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (proc_fd < 0)
        return 0;
    read_cmdline(cmdline, proc_fd);
    found = has_mapped(&ours, proc_fd, traces) || has_open(proc_fd, traces) ||
            (names_sglang(cmdline) && (ours || runs_here(cmdline, traces)));
    close(proc_fd);
    return found;
}

static int refuse(const struct sp_install *install, const struct sp_buf *list)
{
    sp_err(SP_ECANNOT, "a running process has the SGLang in '%s' loaded:%s", install->root, list->data);
    return sp_err_hint(SP_ECANNOT, "stop it, or add --while-running and restart it afterwards");
}

int sp_servers_check(const struct sp_install *install)
{
    char cmdline[CMDLINE_MAX];
    struct sp_buf list = SP_BUF_INIT;
    struct traces traces;
    DIR *dir = opendir("/proc");
    int rc = 0;

    make_traces(&traces, install);
    for (struct dirent *entry; dir != NULL && rc == 0 && (entry = readdir(dir)) != NULL;) {
        if (!isdigit((unsigned char)entry->d_name[0]) || atoi(entry->d_name) == getpid())
            continue;
        if (holds_install(entry->d_name, &traces, cmdline))
            rc = sp_buf_printf(&list, "\n  pid %s  %.*s", entry->d_name, SHOWN_MAX, cmdline);
    }
    if (dir != NULL)
        closedir(dir);
    if (rc == 0 && list.len > 0)
        rc = refuse(install, &list);
    sp_buf_free(&list);
    return rc;
}
