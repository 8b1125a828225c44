#include "verify/machine/nvml.h"
#include "base/err.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { GPUS_MAX = 64, NOT_ENOUGH_ROOM = 7, SECONDS = 60 };

typedef void *device;

struct pci_info {
    char legacy[16];
    unsigned domain, bus, slot, device_id, subsystem_id;
    char bus_id[32];
};

struct memory {
    unsigned long long total, free, used;
};

struct memory_v2 {
    unsigned version;
    unsigned long long total, reserved, free, used;
};

struct process {
    unsigned pid;
    unsigned long long memory;
    unsigned instance, compute_instance;
};

struct sp_nvml {
    void *library;
    unsigned count;
    device gpu[GPUS_MAX];
    int (*shutdown)(void);
    int (*driver_version)(char *, unsigned);
    int (*cuda_version)(int *);
    int (*uuid)(device, char *, unsigned);
    int (*name)(device, char *, unsigned);
    int (*pci)(device, struct pci_info *);
    int (*memory)(device, struct memory *);
    int (*memory_v2)(device, struct memory_v2 *);
    int (*bar1)(device, struct memory *);
    int (*mig)(device, unsigned *, unsigned *);
    int (*capability)(device, int *, int *);
    int (*processes)(device, unsigned *, struct process *);
    int (*p2p)(device, device, int, int *);
    int (*ancestor)(device, device, int *);
    int (*number[SP_NVML_NUMBERS])(device, unsigned *); /* some give an int or an enum, of the same size */
};

/* ---- loading ---- */

/* ISO C has no conversion from an object pointer to a function pointer, POSIX does. */
static void bind(void *function, void *library, const char *name)
{
    void *symbol = dlsym(library, name);

    memcpy(function, &symbol, sizeof symbol);
}

static void bind_numbers(struct sp_nvml *nvml)
{
    static const char *const names[SP_NVML_NUMBERS] = {
        [SP_NVML_GENERATION] = "nvmlDeviceGetCurrPcieLinkGeneration",
        [SP_NVML_WIDTH] = "nvmlDeviceGetCurrPcieLinkWidth",
        [SP_NVML_MAX_GENERATION] = "nvmlDeviceGetMaxPcieLinkGeneration",
        [SP_NVML_MAX_WIDTH] = "nvmlDeviceGetMaxPcieLinkWidth",
        [SP_NVML_GPU_MAX_GENERATION] = "nvmlDeviceGetGpuMaxPcieLinkGeneration",
        [SP_NVML_PSTATE] = "nvmlDeviceGetPerformanceState",
        [SP_NVML_DISPLAY] = "nvmlDeviceGetDisplayActive",
        [SP_NVML_PERSISTENCE] = "nvmlDeviceGetPersistenceMode",
        [SP_NVML_VIRTUALIZATION] = "nvmlDeviceGetVirtualizationMode",
        [SP_NVML_ARCHITECTURE] = "nvmlDeviceGetArchitecture",
    };

    for (size_t i = 0; i < SP_NVML_NUMBERS; i++)
        bind(&nvml->number[i], nvml->library, names[i]);
}

static void bind_all(struct sp_nvml *nvml)
{
    void *library = nvml->library;

    bind(&nvml->shutdown, library, "nvmlShutdown");
    bind(&nvml->driver_version, library, "nvmlSystemGetDriverVersion");
    bind(&nvml->cuda_version, library, "nvmlSystemGetCudaDriverVersion_v2");
    if (!nvml->cuda_version)
        bind(&nvml->cuda_version, library, "nvmlSystemGetCudaDriverVersion");
    bind(&nvml->uuid, library, "nvmlDeviceGetUUID");
    bind(&nvml->name, library, "nvmlDeviceGetName");
    bind(&nvml->pci, library, "nvmlDeviceGetPciInfo_v3");
    bind(&nvml->memory, library, "nvmlDeviceGetMemoryInfo");
    bind(&nvml->memory_v2, library, "nvmlDeviceGetMemoryInfo_v2");
    bind(&nvml->bar1, library, "nvmlDeviceGetBAR1MemoryInfo");
    bind(&nvml->mig, library, "nvmlDeviceGetMigMode");
    bind(&nvml->capability, library, "nvmlDeviceGetCudaComputeCapability");
    bind(&nvml->processes, library, "nvmlDeviceGetComputeRunningProcesses_v3");
    bind(&nvml->p2p, library, "nvmlDeviceGetP2PStatus");
    bind(&nvml->ancestor, library, "nvmlDeviceGetTopologyCommonAncestor");
    bind_numbers(nvml);
}

static const char *reason(void *library, int code)
{
    const char *(*text)(int) = NULL;

    bind(&text, library, "nvmlErrorString");
    return text ? text(code) : "unknown error";
}

static int start(struct sp_nvml *nvml)
{
    int (*init)(void) = NULL, (*count)(unsigned *) = NULL, (*handle)(unsigned, device *) = NULL, code;
    unsigned found = 0;

    bind(&init, nvml->library, "nvmlInit_v2");
    bind(&count, nvml->library, "nvmlDeviceGetCount_v2");
    bind(&handle, nvml->library, "nvmlDeviceGetHandleByIndex_v2");
    if (!init || !count || !handle)
        return sp_err(SP_ECANNOT, "libnvidia-ml.so.1 is not one that we know: %s is missing",
                      !init    ? "nvmlInit_v2"
                      : !count ? "nvmlDeviceGetCount_v2"
                               : "nvmlDeviceGetHandleByIndex_v2");
    code = init();
    if (code != 0) {
        nvml->shutdown = NULL;
        return sp_err(SP_ECANNOT, "NVML does not start: %s (%d)", reason(nvml->library, code), code);
    }
    if (count(&found) != 0)
        found = 0;
    /* A GPU that fell off the bus has no handle; the others keep their order. */
    for (unsigned i = 0; i < found && nvml->count < GPUS_MAX; i++)
        if (handle(i, &nvml->gpu[nvml->count]) == 0)
            nvml->count++;
    return SP_OK;
}

int sp_nvml_ask(struct sp_buf *answer, sp_child_work *work, const void *context)
{
    static bool hangs;
    int rc = hangs ? SP_EHANG : sp_child_ask(answer, SECONDS, work, context);

    hangs = rc == SP_EHANG;
    return hangs ? sp_err(SP_EHANG, SP_NVML_HANGS) : rc;
}

int sp_nvml_open(struct sp_nvml **out)
{
    struct sp_nvml *nvml = calloc(1, sizeof *nvml);
    int rc = SP_OK;

    *out = NULL;
    if (!nvml)
        return sp_err(SP_ECANNOT, "out of memory");
    nvml->library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!nvml->library) {
        rc = sp_err(SP_ECANNOT, "no NVIDIA driver: libnvidia-ml.so.1 cannot be loaded");
    } else {
        bind_all(nvml);
        rc = start(nvml);
    }
    if (rc < 0)
        sp_nvml_close(nvml);
    else
        *out = nvml;
    return rc;
}

void sp_nvml_close(struct sp_nvml *nvml)
{
    if (!nvml)
        return;
    if (nvml->library && nvml->shutdown)
        (void)nvml->shutdown();
    if (nvml->library)
        dlclose(nvml->library);
    free(nvml);
}

/* ---- the system ---- */

unsigned sp_nvml_count(const struct sp_nvml *nvml)
{
    return nvml->count;
}

void sp_nvml_driver(const struct sp_nvml *nvml, char out[SP_NVML_TEXT])
{
    if (!nvml->driver_version || nvml->driver_version(out, SP_NVML_TEXT) != 0)
        out[0] = '\0';
    out[SP_NVML_TEXT - 1] = '\0';
}

int64_t sp_nvml_cuda(const struct sp_nvml *nvml)
{
    int version = 0;

    return nvml->cuda_version && nvml->cuda_version(&version) == 0 ? version : SP_ABSENT;
}

/* ---- one GPU ---- */

static bool get_pci(const struct sp_nvml *nvml, unsigned gpu, struct pci_info *info)
{
    memset(info, 0, sizeof *info);
    return nvml->pci && nvml->pci(nvml->gpu[gpu], info) == 0;
}

/* As sysfs writes it: NVML has eight digits of the domain, in capitals. */
static void bus_id(const struct sp_nvml *nvml, unsigned gpu, char out[SP_NVML_TEXT])
{
    struct pci_info info;

    out[0] = '\0';
    if (get_pci(nvml, gpu, &info))
        (void)snprintf(out, SP_NVML_TEXT, "%04x:%02x:%02x.0", info.domain, info.bus & 0xff, info.slot & 0xff);
}

void sp_nvml_text(const struct sp_nvml *nvml, unsigned gpu, enum sp_nvml_text what, char out[SP_NVML_TEXT])
{
    int (*get)(device, char *, unsigned) = what == SP_NVML_UUID ? nvml->uuid : nvml->name;

    if (what == SP_NVML_BUS_ID)
        bus_id(nvml, gpu, out);
    else if (!get || get(nvml->gpu[gpu], out, SP_NVML_TEXT) != 0)
        out[0] = '\0';
    out[SP_NVML_TEXT - 1] = '\0';
}

int64_t sp_nvml_number(const struct sp_nvml *nvml, unsigned gpu, enum sp_nvml_number what)
{
    unsigned value = 0;

    if (!nvml->number[what] || nvml->number[what](nvml->gpu[gpu], &value) != 0)
        return SP_ABSENT;
    return value;
}

static int64_t total(int (*get)(device, struct memory *), device gpu)
{
    struct memory memory = {0, 0, 0};

    return get && get(gpu, &memory) == 0 ? (int64_t)(memory.total & INT64_MAX) : SP_ABSENT;
}

int64_t sp_nvml_memory(const struct sp_nvml *nvml, unsigned gpu)
{
    return total(nvml->memory, nvml->gpu[gpu]);
}

int64_t sp_nvml_used(const struct sp_nvml *nvml, unsigned gpu)
{
    struct memory_v2 memory = {.version = sizeof memory | 2u << 24};

    if (!nvml->memory_v2 || nvml->memory_v2(nvml->gpu[gpu], &memory) != 0)
        return SP_ABSENT;
    return (int64_t)(memory.used & INT64_MAX);
}

int64_t sp_nvml_bar1(const struct sp_nvml *nvml, unsigned gpu)
{
    return total(nvml->bar1, nvml->gpu[gpu]);
}

int64_t sp_nvml_mig(const struct sp_nvml *nvml, unsigned gpu)
{
    unsigned now = 0, pending = 0;

    return nvml->mig && nvml->mig(nvml->gpu[gpu], &now, &pending) == 0 ? now != 0 : SP_ABSENT;
}

void sp_nvml_capability(const struct sp_nvml *nvml, unsigned gpu, int64_t *major, int64_t *minor)
{
    int high = 0, low = 0;
    bool known = nvml->capability && nvml->capability(nvml->gpu[gpu], &high, &low) == 0;

    *major = known ? high : SP_ABSENT;
    *minor = known ? low : SP_ABSENT;
}

int64_t sp_nvml_device(const struct sp_nvml *nvml, unsigned gpu)
{
    struct pci_info info;

    return get_pci(nvml, gpu, &info) ? (int64_t)(info.device_id >> 16) : SP_ABSENT;
}

void sp_nvml_processes(const struct sp_nvml *nvml, unsigned gpu, int64_t pids[SP_NVML_PROCESSES], size_t *count)
{
    struct process list[SP_NVML_PROCESSES];
    unsigned found = SP_NVML_PROCESSES;
    int code = nvml->processes ? nvml->processes(nvml->gpu[gpu], &found, list) : -1;

    memset(pids, 0, SP_NVML_PROCESSES * sizeof *pids);
    *count = code == 0 && found <= SP_NVML_PROCESSES ? found : 0;
    for (size_t i = 0; i < *count; i++)
        pids[i] = list[i].pid;
    if (code == NOT_ENOUGH_ROOM) /* the list was left alone: some process, we do not know which */
        *count = 1;
}

/* ---- two GPUs ---- */

const char *sp_nvml_p2p(const struct sp_nvml *nvml, unsigned from, unsigned to, int index)
{
    static const char *const codes[] = {"OK", "CNS", "GNS", "TNS", "DR", "NS", "U"};
    int status = -1;

    if (!nvml->p2p || nvml->p2p(nvml->gpu[from], nvml->gpu[to], index, &status) != 0)
        return NULL;
    return status >= 0 && status < (int)(sizeof codes / sizeof *codes) ? codes[status] : NULL;
}

const char *sp_nvml_label(const struct sp_nvml *nvml, unsigned from, unsigned to)
{
    static const char *const labels[] = {"SELF", "PIX", "PXB", "PHB", "NODE", "SYS"};
    int level = -1;

    if (!nvml->ancestor || nvml->ancestor(nvml->gpu[from], nvml->gpu[to], &level) != 0)
        return NULL;
    return level >= 0 && level % 10 == 0 && level / 10 < 6 ? labels[level / 10] : NULL;
}
