/* A libcuda.so.1 for tests. FAKE_CUDA: "yes", "no", "fails", "dies"; with anything else every pair is refused. */
#include <stdlib.h>
#include <string.h>

static const char *how(void)
{
    const char *value = getenv("FAKE_CUDA");

    return value ? value : "";
}

int cuInit(unsigned flags)
{
    (void)flags;
    if (strcmp(how(), "dies") == 0)
        abort();
    return strcmp(how(), "fails") == 0 ? 999 : 0;
}

int cuDeviceGetByPCIBusId(int *device, const char *bus)
{
    /* In a child that still has the variable, CUDA would see fewer GPUs. */
    *device = bus[5];
    return getenv("CUDA_VISIBLE_DEVICES") ? 101 : 0;
}

int cuDeviceCanAccessPeer(int *can, int a, int b)
{
    (void)a;
    (void)b;
    *can = strcmp(how(), "yes") == 0;
    return 0;
}
