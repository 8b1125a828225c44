#include "verify/doctor/around.h"
#include "base/err.h"
#include "verify/machine/pseudo.h"
#include "verify/machine/record.h"

#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

enum { PROC_MAX = 1 << 18, SERVERS_MAX = 64 };

extern char **environ;

/* ---- lists ---- */

static void free_list(char **list)
{
    for (size_t i = 0; list && list[i]; i++)
        free(list[i]);
    free(list);
}

/* NUL-separated text, as a NULL-terminated list. */
static int split(char ***out, const char *data, size_t len)
{
    size_t count = 0, at = 0;

    for (size_t i = 0; i < len; i++)
        count += data[i] == '\0';
    *out = calloc(count + 2, sizeof **out);
    for (size_t i = 0; *out && i < len; i += strnlen(data + i, len - i) + 1) {
        (*out)[at] = strndup(data + i, len - i);
        if (!(*out)[at])
            break;
        at++;
    }
    return *out ? SP_OK : sp_err(SP_ECANNOT, "out of memory");
}

const char *sp_env_value(char *const *env, const char *name)
{
    const size_t len = strlen(name);

    for (; env && *env; env++)
        if (strncmp(*env, name, len) == 0 && (*env)[len] == '=')
            return *env + len + 1;
    return NULL;
}

const char *sp_argv_value(char *const *argv, const char *option)
{
    const size_t len = strlen(option);

    for (; argv && *argv; argv++) {
        if (strncmp(*argv, option, len) != 0)
            continue;
        if ((*argv)[len] == '=')
            return *argv + len + 1;
        if ((*argv)[len] == '\0')
            return argv[1] && argv[1][0] != '-' ? argv[1] : "";
    }
    return NULL;
}

/* "python -m sglang.launch_server …", "sglang serve …": what has the options. Workers have a title instead. */
bool sp_argv_is_server(char *const *argv)
{
    for (size_t i = 0; argv && argv[i]; i++) {
        const char *name = strrchr(argv[i], '/') ? strrchr(argv[i], '/') + 1 : argv[i];

        const char *module = strncmp(argv[i], "-m", 2) == 0 ? argv[i] + 2 : argv[i]; /* "-msglang.x" is one word */

        if (strcmp(module, "sglang.launch_server") == 0 || strcmp(module, "sglang.bench_one_batch") == 0)
            return true;
        if (strcmp(name, "sglang") == 0 && argv[i + 1] && strcmp(argv[i + 1], "serve") == 0)
            return true;
        if (i > 4)
            break;
    }
    return false;
}

/* ---- servers ---- */

static int add_server(struct sp_around *out, int64_t pid, char **argv, char *buffer)
{
    struct sp_server *grown = realloc(out->server, (out->server_count + 1) * sizeof *grown);
    size_t len;
    int rc = SP_OK;

    if (!grown) {
        free_list(argv);
        return sp_err(SP_ECANNOT, "out of memory");
    }
    out->server = grown;
    grown[out->server_count] = (struct sp_server){.pid = pid, .argv = argv};
    len = sp_pseudo_read(buffer, PROC_MAX, "/proc/%jd/environ", (intmax_t)pid);
    if (len > 0)
        rc = split(&grown[out->server_count].env, buffer, len);
    out->server_count++;
    return rc;
}

static int look_at(struct sp_around *out, int64_t pid, char *buffer)
{
    size_t len = sp_pseudo_read(buffer, PROC_MAX, "/proc/%jd/cmdline", (intmax_t)pid);
    char **argv;
    int rc = SP_OK;

    if (len == 0 || !memmem(buffer, len, "sglang", 6))
        return SP_OK;
    rc = split(&argv, buffer, len);
    if (rc == SP_OK && sp_argv_is_server(argv))
        return add_server(out, pid, argv, buffer);
    free_list(argv);
    return rc;
}

static int read_servers(struct sp_around *out)
{
    char *buffer = malloc(PROC_MAX);
    DIR *dir = opendir("/proc");
    int rc = buffer ? SP_OK : sp_err(SP_ECANNOT, "out of memory");

    for (struct dirent *entry; rc == SP_OK && dir && out->server_count < SERVERS_MAX && (entry = readdir(dir)) != NULL;)
        if (isdigit((unsigned char)entry->d_name[0]))
            rc = look_at(out, atoll(entry->d_name), buffer);
    if (dir)
        closedir(dir);
    free(buffer);
    return rc;
}

/* ---- this process and its machine ---- */

static char *find_container(void)
{
    char text[SP_PSEUDO_MAX];

    if (access("/run/.containerenv", F_OK) == 0)
        return strdup("podman");
    if (access("/.dockerenv", F_OK) == 0)
        return strdup("docker");
    if (getenv("KUBERNETES_SERVICE_HOST"))
        return strdup("kubernetes");
    if (sp_pseudo_read(text, sizeof text, "/proc/1/cgroup") > 0 && (strstr(text, "docker") || strstr(text, "kubepods")))
        return strdup("docker");
    return NULL;
}

/* The control device decides; it is opened, because a container's device rules do not show in its mode. */
static void read_devices(struct sp_around *out)
{
    int fd = open("/dev/nvidiactl", O_RDWR | O_CLOEXEC);

    out->devices = access("/dev/nvidiactl", F_OK) == 0;
    out->may_open = fd >= 0;
    if (fd >= 0)
        close(fd);
}

static int copy_env(struct sp_around *out)
{
    size_t count = 0;

    while (environ && environ[count])
        count++;
    out->env = calloc(count + 1, sizeof *out->env);
    for (size_t i = 0; out->env && i < count; i++) {
        out->env[i] = strdup(environ[i]);
        if (!out->env[i])
            break;
    }
    return out->env ? SP_OK : sp_err(SP_ECANNOT, "out of memory");
}

int sp_around_read(struct sp_around *out)
{
    struct statvfs shm;
    struct rlimit limit;
    int rc;

    memset(out, 0, sizeof *out);
    out->shm_bytes = statvfs("/dev/shm", &shm) == 0 ? (int64_t)(shm.f_blocks * shm.f_frsize) : SP_ABSENT;
    out->memlock = SP_UNLIMITED;
    if (getrlimit(RLIMIT_MEMLOCK, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY)
        out->memlock = (int64_t)(limit.rlim_cur & INT64_MAX);
    out->container = find_container();
    read_devices(out);
    rc = copy_env(out);
    return rc < 0 ? rc : read_servers(out);
}

void sp_around_free(struct sp_around *around)
{
    for (size_t i = 0; i < around->server_count; i++) {
        free_list(around->server[i].argv);
        free_list(around->server[i].env);
    }
    free(around->server);
    free(around->container);
    free_list(around->env);
    free(around->nvcc);
    free(around->no_nvcc);
    free(around->get_nvcc);
    memset(around, 0, sizeof *around);
}
