/*
 * A libnvidia-ml.so.1 for tests: GPUs of a made-up machine, by the environment.
 *
 *     FAKE_GPUS     how many (2)             FAKE_INIT   what nvmlInit gives (0); 999: it dies
 *     FAKE_P2P      status of every pair (0) FAKE_BUSY   a process computes on GPU 0
 *     FAKE_MIG      GPU 0 is split           FAKE_USED   MiB in use on GPU 0 (3)
 *
 * With FAKE_MINIMAL it has only what every NVML has.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NOT_SUPPORTED 3

static unsigned number(const char *name, unsigned otherwise)
{
    const char *value = getenv(name);

    return value ? (unsigned)atoi(value) : otherwise;
}

static unsigned index_of(void *device)
{
    return (unsigned)(uintptr_t)device - 1;
}

int nvmlInit_v2(void)
{
    if (number("FAKE_INIT", 0) == 999)
        abort(); /* as a driver may */
    return (int)number("FAKE_INIT", 0);
}

int nvmlShutdown(void)
{
    return 0;
}

const char *nvmlErrorString(int code)
{
    return code == 18 ? "Driver/library version mismatch" : "some error";
}

int nvmlDeviceGetCount_v2(unsigned *count)
{
    *count = number("FAKE_GPUS", 2);
    return 0;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device)
{
    *device = (void *)(uintptr_t)(index + 1);
    return 0;
}

struct pci_info {
    char legacy[16];
    unsigned domain, bus, slot, device_id, subsystem_id;
    char bus_id[32];
};

int nvmlDeviceGetPciInfo_v3(void *device, struct pci_info *info)
{
    memset(info, 0, sizeof *info);
    info->bus = 0x80 + 0x10 * index_of(device);
    info->device_id = 0x233510de;
    return 0;
}

#ifndef FAKE_MINIMAL
int nvmlSystemGetDriverVersion(char *out, unsigned size)
{
    (void)snprintf(out, size, "595.58.03");
    return 0;
}

int nvmlSystemGetCudaDriverVersion_v2(int *version)
{
    *version = 13020;
    return 0;
}

int nvmlDeviceGetUUID(void *device, char *out, unsigned size)
{
    (void)snprintf(out, size, "GPU-%08x-1111-2222-3333-444455556666", 0xabc0 + index_of(device));
    return 0;
}

int nvmlDeviceGetName(void *device, char *out, unsigned size)
{
    (void)device;
    (void)snprintf(out, size, "NVIDIA Fake");
    return 0;
}

struct memory {
    unsigned long long total, free, used;
};

int nvmlDeviceGetMemoryInfo(void *device, struct memory *memory)
{
    (void)device;
    memory->total = 1ULL << 36;
    return 0;
}

struct memory_v2 {
    unsigned version;
    unsigned long long total, reserved, free, used;
};

int nvmlDeviceGetMemoryInfo_v2(void *device, struct memory_v2 *memory)
{
    if (memory->version != (sizeof *memory | 2u << 24))
        return 25; /* argument version mismatch */
    memory->used = index_of(device) == 0 ? (unsigned long long)number("FAKE_USED", 3) << 20 : 0;
    return 0;
}

int nvmlDeviceGetBAR1MemoryInfo(void *device, struct memory *memory)
{
    (void)device;
    memory->total = 1ULL << 37;
    return 0;
}

int nvmlDeviceGetMigMode(void *device, unsigned *now, unsigned *pending)
{
    *now = *pending = index_of(device) == 0 && number("FAKE_MIG", 0);
    return 0;
}

int nvmlDeviceGetCudaComputeCapability(void *device, int *major, int *minor)
{
    (void)device;
    *major = 9;
    *minor = 0;
    return 0;
}

struct process {
    unsigned pid;
    unsigned long long memory;
    unsigned instance, compute_instance;
};

int nvmlDeviceGetComputeRunningProcesses_v3(void *device, unsigned *count, struct process *list)
{
    *count = index_of(device) == 0 && number("FAKE_BUSY", 0) ? 1 : 0;
    if (*count)
        list[0].pid = number("FAKE_BUSY", 0);
    return 0;
}

int nvmlDeviceGetP2PStatus(void *from, void *to, int index, int *status)
{
    (void)from;
    (void)to;
    *status = index == 2 || index == 3 ? 5 : (int)number("FAKE_P2P", 0);
    return 0;
}

int nvmlDeviceGetTopologyCommonAncestor(void *from, void *to, int *level)
{
    (void)from;
    (void)to;
    *level = 40;
    return 0;
}

int nvmlDeviceGetCurrPcieLinkGeneration(void *device, unsigned *value)
{
    (void)device;
    *value = 5;
    return 0;
}

int nvmlDeviceGetCurrPcieLinkWidth(void *device, unsigned *value)
{
    (void)device;
    *value = 16;
    return 0;
}

int nvmlDeviceGetDisplayActive(void *device, unsigned *value)
{
    (void)device;
    (void)value;
    return NOT_SUPPORTED;
}
#endif
