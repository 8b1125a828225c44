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

enum { CMDLINE_MAX = 8192, SHOWN_MAX = 60, ANCESTORS_MAX = 64 };

/* What to look for: paths with a trailing slash, so that "/a/sglang-x" is not taken for "/a/sglang". */
struct traces {
    char package[PATH_MAX + 16];
    char kernel[PATH_MAX + 16];
    char site[PATH_MAX + 2];
    char prefix[PATH_MAX + 2]; /* of the environment: "/venv/", or "" */
};

static void make_traces(struct traces *traces, const struct sp_install *install)
{
    const char *lib = NULL;
    size_t prefix_len;

    for (const char *next = install->site; (next = strstr(next, "/lib/python")) != NULL; next++)
        lib = next; /* the last one: an environment may lie below another */
    prefix_len = lib ? (size_t)(lib - install->site) : 0;

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

/* A command line as the kernel gives it: each argument ends in NUL. Cut at CMDLINE_MAX. */
struct command {
    char text[CMDLINE_MAX + 1];
    size_t len;
};

/* Empty when it cannot be read. */
static void read_command(struct command *command, int proc_fd)
{
    int fd = openat(proc_fd, "cmdline", O_RDONLY | O_CLOEXEC);
    ssize_t len = fd < 0 ? 0 : read(fd, command->text, CMDLINE_MAX);

    command->len = len < 0 ? 0 : (size_t)len;
    command->text[command->len] = '\0';
    if (fd >= 0)
        close(fd);
}

/* "" (the NUL at the end) beyond the last one. */
static const char *next_argument(const struct command *command, const char *argument)
{
    const char *end = command->text + command->len, *next = argument + strlen(argument) + 1;

    return next < end ? next : end;
}

static int starts_with(const char *text, const char *start)
{
    return strncmp(text, start, strlen(start)) == 0;
}

static int is_sglang_program(const char *path)
{
    static const char end[] = "/bin/sglang";
    size_t len = strlen(path);

    return len >= sizeof end - 1 && strcmp(path + len - (sizeof end - 1), end) == 0;
}

static int is_sglang_module(const char *name)
{
    return strcmp(name, "sglang") == 0 || starts_with(name, "sglang.");
}

/* The module of "-m NAME", "-mNAME" and "-umNAME"; "" for another word. */
static const char *module_of(const struct command *command, const char *word)
{
    const char *letter = word + (*word == '-');

    letter += strspn(letter, "bBdEiIOPqsSuvx"); /* switches, which may stand before it in one word */
    if (*word != '-' || *letter != 'm')
        return "";
    return letter[1] != '\0' ? letter + 1 : next_argument(command, word);
}

/* "python -m sglang.x", "[python] /venv/bin/sglang serve", and the titles that SGLang gives its workers:
 * "sglang::scheduler". Arguments are looked at one by one, and only those of an interpreter: a shell whose script
 * starts a server later, an editor and a grep name SGLang too. */
static int names_sglang(const struct command *command)
{
    const char *program = command->text, *slash = strrchr(program, '/'), *end = program + command->len;
    const char *second = next_argument(command, program);
    int found = starts_with(program, "sglang::") || is_sglang_program(program);

    if (starts_with(slash ? slash + 1 : program, "python")) {
        found = found || is_sglang_program(second);
        for (const char *word = second; word < end && !found; word = next_argument(command, word))
            found = is_sglang_module(module_of(command, word));
    }
    return found;
}

/* An interpreter in a virtual environment is a link, so /proc/<pid>/exe does not tell; its command line does. */
static int runs_here(const struct command *command, const struct traces *traces)
{
    return traces->prefix[0] != '\0' && (starts_with(command->text, traces->prefix) ||
                                         starts_with(next_argument(command, command->text), traces->prefix));
}

/* 0 when it has none, or cannot be read. */
static int parent_of(int pid)
{
    char path[64], line[256];
    int parent = 0;
    FILE *status;

    (void)snprintf(path, sizeof path, "/proc/%d/status", pid);
    status = fopen(path, "re");
    while (status != NULL && parent == 0 && fgets(line, sizeof line, status) != NULL)
        if (starts_with(line, "PPid:"))
            parent = atoi(line + 5);
    if (status != NULL)
        fclose(status);
    return parent;
}

/* We and those who started us: a script that patches and then serves is no server yet. Ends in 0. */
static void find_family(int family[ANCESTORS_MAX + 1])
{
    int count = 0;

    for (int pid = getpid(); pid > 0 && count < ANCESTORS_MAX; pid = parent_of(pid))
        family[count++] = pid;
    family[count] = 0;
}

static int is_family(const int *family, int pid)
{
    while (*family != 0 && *family != pid)
        family++;
    return *family != 0;
}

static int holds_install(const char *pid, const struct traces *traces, struct command *command)
{
    char proc[64];
    int proc_fd, found, ours = 0;

    (void)snprintf(proc, sizeof proc, "/proc/%.32s", pid);
    proc_fd = open(proc, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (proc_fd < 0)
        return 0;
    read_command(command, proc_fd);
    found = has_mapped(&ours, proc_fd, traces) || has_open(proc_fd, traces) ||
            (names_sglang(command) && (ours || runs_here(command, traces)));
    close(proc_fd);
    return found;
}

/* Its line in the list, with blanks between the arguments. */
static int add_line(struct sp_buf *list, const char *pid, struct command *command)
{
    for (size_t i = 0; i < command->len; i++)
        if (command->text[i] == '\0')
            command->text[i] = ' ';
    return sp_buf_printf(list, "\n  pid %s  %.*s", pid, SHOWN_MAX, command->text);
}

static int refuse(const struct sp_install *install, const struct sp_buf *list)
{
    sp_err(SP_ECANNOT, "a running process has the SGLang in '%s' loaded:%s", install->root, list->data);
    return sp_err_hint(SP_ECANNOT, "stop it, or add --while-running and restart it afterwards");
}

int sp_servers_check(const struct sp_install *install)
{
    int family[ANCESTORS_MAX + 1];
    struct command command;
    struct sp_buf list = SP_BUF_INIT;
    struct traces traces;
    DIR *dir = opendir("/proc");
    int rc = 0;

    make_traces(&traces, install);
    find_family(family);
    for (struct dirent *entry; dir != NULL && rc == 0 && (entry = readdir(dir)) != NULL;) {
        if (!isdigit((unsigned char)entry->d_name[0]) || is_family(family, atoi(entry->d_name)))
            continue;
        if (holds_install(entry->d_name, &traces, &command))
            rc = add_line(&list, entry->d_name, &command);
    }
    if (dir != NULL)
        closedir(dir);
    if (rc == 0 && list.len > 0)
        rc = refuse(install, &list);
    sp_buf_free(&list);
    return rc;
}
