#include "nccl.h"

#include "../pcie_allreduce.h"

#include <dlfcn.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

typedef struct {
    char bytes[128];
} unique_id;

/* The entry points that are used, by NCCL's stable C interface. */
static struct {
    int (*get_version)(int *version);
    int (*get_unique_id)(unique_id *out);
    int (*init_rank)(void **comm, int world, unique_id id, int rank);
    int (*all_reduce)(const void *in, void *out, size_t count, int type, int operation, void *comm, void *stream);
    int (*destroy)(void *comm);
    const char *(*error_string)(int result);
} api;

static const int type_of[PAR_DTYPES] = {[PAR_FP16] = 6, [PAR_BF16] = 9, [PAR_FP32] = 7};

extern char **environ;

static int check(int result, const char *what)
{
    if (result == 0)
        return CODE_OK;
    return rank_fail(CODE_CANNOT, "NCCL: %s: %s", what, api.error_string(result));
}

static int symbol(void *library, const char *name, void *function)
{
    void *found = dlsym(library, name);

    memcpy(function, &found, sizeof(found)); /* a function pointer, which C does not convert from void * */
    return found != NULL ? CODE_OK : rank_fail(CODE_CANNOT, "NCCL: no symbol %s", name);
}

/* What SGLang would load: the one it is told to; that of the environment that we were built into, whose site-packages
 * holds the folder of this program; the linker's. */
static void *open_usual(void)
{
    static const char beside[] = "/nvidia/nccl/lib/libnccl.so.2";
    const char *told = getenv("SGLANG_NCCL_SO_PATH");
    char path[4096];
    void *library = told != NULL && told[0] != '\0' ? dlopen(told, RTLD_NOW | RTLD_LOCAL) : NULL;
    ssize_t n = readlink("/proc/self/exe", path, sizeof(path) - sizeof(beside));
    int slashes = 0;

    while (n > 0 && slashes < 2)
        slashes += path[--n] == '/';
    if (library == NULL && slashes == 2) {
        memcpy(path + n, beside, sizeof(beside));
        library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    }
    return library != NULL ? library : dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
}

static int load(nccl *n, const char *path)
{
    struct link_map *map = NULL;
    int rc;

    n->library = path != NULL ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : open_usual();
    if (n->library == NULL)
        return rank_fail(CODE_CANNOT, "NCCL: %s; name it with --nccl PATH or leave it out with --no-nccl", dlerror());
    if (dlinfo(n->library, RTLD_DI_LINKMAP, &map) == 0)
        snprintf(n->path, sizeof(n->path), "%s", map->l_name);
    rc = symbol(n->library, "ncclGetVersion", &api.get_version);
    rc = rc != 0 ? rc : symbol(n->library, "ncclGetUniqueId", &api.get_unique_id);
    rc = rc != 0 ? rc : symbol(n->library, "ncclCommInitRank", &api.init_rank);
    rc = rc != 0 ? rc : symbol(n->library, "ncclAllReduce", &api.all_reduce);
    rc = rc != 0 ? rc : symbol(n->library, "ncclCommDestroy", &api.destroy);
    rc = rc != 0 ? rc : symbol(n->library, "ncclGetErrorString", &api.error_string);
    return rc != 0 ? rc : check(api.get_version(&n->version), "version");
}

/* NCCL tells the number of channels and their kind only in its log: give it one in memory, unless the user has his. */
static void keep_log(nccl *n)
{
    char path[64];

    n->log = getenv("NCCL_DEBUG") == NULL ? memfd_create("nccl-log", MFD_CLOEXEC) : -1;
    if (n->log >= 0) {
        snprintf(path, sizeof(path), "/proc/self/fd/%d", n->log);
        setenv("NCCL_DEBUG", "INFO", 1);
        setenv("NCCL_DEBUG_SUBSYS", "INIT,P2P,SHM", 0);
        setenv("NCCL_DEBUG_FILE", path, 1);
    }
}

static void read_log(nccl *n)
{
    char *log = calloc(1, 1 << 20), *at;

    if (log != NULL && n->log >= 0 && pread(n->log, log, (1 << 20) - 1, 0) > 0) {
        if ((at = strstr(log, " coll channels")) != NULL) {
            while (at > log && at[-1] >= '0' && at[-1] <= '9')
                at--;
            n->channels = atoi(at);
        }
        if ((at = strstr(log, " via ")) != NULL)
            snprintf(n->via, sizeof(n->via), "%.*s", (int)strcspn(at + 5, " \n"), at + 5);
    }
    free(log);
}

int nccl_open(nccl *n, ranks *r, const char *path)
{
    unique_id mine, all[RANKS_MAX];
    int rc;

    memset(n, 0, sizeof(*n));
    memset(&mine, 0, sizeof(mine));
    keep_log(n);
    rank_note("loading NCCL");
    rc = load(n, path);
    if (rc == 0 && r->rank == 0)
        rc = check(api.get_unique_id(&mine), "unique id");
    rc = ranks_agree(r, rc);
    if (rc == 0)
        rc = ranks_allgather(r, &mine, all, sizeof(mine));
    rank_note("connecting NCCL");
    if (rc == 0)
        rc = ranks_agree(r, check(api.init_rank(&n->comm, r->world, all[0], r->rank), "ncclCommInitRank"));
    return rc;
}

void nccl_close(nccl *n)
{
    if (n->comm != NULL)
        api.destroy(n->comm);
    n->comm = NULL;
}

int nccl_all_reduce(nccl *n, const void *in, void *out, size_t count, int dtype, void *stream)
{
    int rc = check(api.all_reduce(in, out, count, type_of[dtype], 0, n->comm, stream), "ncclAllReduce");

    if (n->log >= 0 && n->via[0] == '\0')
        read_log(n);
    return rc;
}

void nccl_set_up(int no_p2p)
{
    setenv("NCCL_CUMEM_ENABLE", "0", 0);
    setenv("NCCL_NVLS_ENABLE", "0", 0);
    if (no_p2p)
        setenv("NCCL_P2P_DISABLE", "1", 1);
}

void nccl_environment(char *out, size_t size)
{
    size_t used = 0;
    char **e;

    out[0] = '\0';
    for (e = environ; *e != NULL; e++)
        if (strncmp(*e, "NCCL_", 5) == 0 && strncmp(*e, "NCCL_DEBUG", 10) != 0 &&
            strncmp(*e, "NCCL_VERSION=", 13) != 0 && /* set by images, read by nobody */ used + strlen(*e) + 2 < size)
            used += (size_t)snprintf(out + used, size - used, "%s%s", used != 0 ? " " : "", *e);
}
