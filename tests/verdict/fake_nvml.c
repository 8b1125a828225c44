/* As much of NVML as the bound table asks for: the GPUs of $FAKE_GPUS, "GPU-a,GPU-b", on buses 0000:01:00.0 and up; the
 * process of $FAKE_PROCESS computes on each. With $FAKE_CRASH, whoever opens it dies, with $FAKE_HANG he waits for
 * ever; where that is a path, once it is there. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct {
    char bus_id_legacy[16];
    unsigned domain, bus, device, pci_device_id, pci_subsystem_id;
    char bus_id[32];
} pci_info;

typedef struct {
    unsigned pid;
    unsigned long long memory;
    unsigned instance, compute_instance;
} process;

static const char *list(void)
{
    const char *gpus = getenv("FAKE_GPUS");

    return gpus ? gpus : "";
}

int nvmlInit_v2(void);
int nvmlShutdown(void);
int nvmlDeviceGetCount_v2(unsigned *count);
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **handle);
int nvmlDeviceGetPciInfo_v3(void *handle, pci_info *info);
int nvmlDeviceGetUUID(void *handle, char *uuid, unsigned length);
int nvmlDeviceGetComputeRunningProcesses_v3(void *handle, unsigned *count, process *processes);

static int is_so(const char *name)
{
    const char *value = getenv(name);

    return value && (value[0] != '/' || access(value, F_OK) == 0);
}

int nvmlInit_v2(void)
{
    if (is_so("FAKE_CRASH"))
        abort();
    while (is_so("FAKE_HANG"))
        (void)pause();
    return 0;
}

int nvmlShutdown(void)
{
    return 0;
}

int nvmlDeviceGetCount_v2(unsigned *count)
{
    *count = list()[0] ? 1 : 0;
    for (const char *at = list(); *at; at++)
        *count += *at == ',';
    return 0;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **handle)
{
    *handle = (void *)(uintptr_t)(index + 1);
    return 0;
}

int nvmlDeviceGetPciInfo_v3(void *handle, pci_info *info)
{
    memset(info, 0, sizeof *info);
    info->bus = (unsigned)(uintptr_t)handle;
    (void)snprintf(info->bus_id, sizeof info->bus_id, "00000000:%02X:00.0", info->bus);
    return 0;
}

int nvmlDeviceGetUUID(void *handle, char *uuid, unsigned length)
{
    const char *at = list();

    for (uintptr_t i = 1; i < (uintptr_t)handle; i++)
        at = strchr(at, ',') + 1;
    (void)snprintf(uuid, length, "%.*s", (int)strcspn(at, ","), at);
    return 0;
}

int nvmlDeviceGetComputeRunningProcesses_v3(void *handle, unsigned *count, process *processes)
{
    const char *named = getenv("FAKE_PROCESS");
    unsigned pid = named ? (unsigned)atoi(named) : 0;
    FILE *file = named && named[0] == '/' ? fopen(named, "re") : NULL;

    (void)handle;
    if (file) {
        (void)!fscanf(file, "%u", &pid);
        (void)fclose(file);
    }
    *count = pid > 0;
    if (pid > 0)
        processes[0] = (process){.pid = pid};
    return 0;
}
