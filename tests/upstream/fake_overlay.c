/*
 * A libupstream.so without a GPU: writes what it is asked for, a line each, into $FAKE_OVERLAY_LOG. $FAKE_OVERLAY_FAIL
 * names a function that fails, or "abi" for another interface.
 */
#include "kernels/upstream/overlay.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CAPTURED = 2 };

static char error[64];

static int fails(const char *name)
{
    const char *wanted = getenv("FAKE_OVERLAY_FAIL");
    int hit = wanted != NULL && strcmp(wanted, name) == 0;

    if (hit)
        (void)snprintf(error, sizeof error, "%s was told to fail", name);
    return hit;
}

static void say(const char *text)
{
    FILE *log = fopen(getenv("FAKE_OVERLAY_LOG"), "a");

    if (log != NULL) {
        (void)fprintf(log, "%s\n", text);
        (void)fclose(log);
    }
}

int upstream_abi(void)
{
    return fails("abi") ? UPSTREAM_ABI + 1 : UPSTREAM_ABI;
}

const char *upstream_last_error(void)
{
    return error;
}

int64_t upstream_meta_size(void)
{
    return 1000000;
}

static void put_pointers(char *out, size_t size, void *const *pointers, int world)
{
    size_t used = strlen(out);

    for (int i = 0; i < world; i++)
        used += (size_t)snprintf(out + used, size - used, " %zu", (size_t)pointers[i]);
}

void *upstream_init_custom_ar(int device, void *const *signals, int world, int rank, void *rank_data,
                              size_t rank_data_bytes, int full_nvlink)
{
    char line[512];

    (void)snprintf(line, sizeof line, "init %d %d %d %zu %zu %d", device, world, rank, (size_t)rank_data,
                   rank_data_bytes, full_nvlink);
    put_pointers(line, sizeof line, signals, world);
    say(line);
    return fails("init_custom_ar") ? NULL : malloc(1);
}

int upstream_dispose(int device, void *handle)
{
    char line[64];

    (void)snprintf(line, sizeof line, "dispose %d", device);
    say(line);
    free(handle);
    return 0;
}

int upstream_register_buffer(int device, void *handle, void *const *buffers, int world)
{
    char line[512];

    (void)handle;
    (void)snprintf(line, sizeof line, "register_buffer %d", device);
    put_pointers(line, sizeof line, buffers, world);
    say(line);
    return 0;
}

int upstream_all_reduce(int device, void *handle, const void *in, void *out, size_t count, int dtype, void *staged,
                        size_t staged_bytes, void *stream)
{
    char line[512];

    (void)handle;
    (void)snprintf(line, sizeof line, "all_reduce %d %zu %zu %zu %d %zu %zu %zu", device, (size_t)in, (size_t)out,
                   count, dtype, (size_t)staged, staged_bytes, (size_t)stream);
    say(line);
    return fails("all_reduce") ? -1 : 0;
}

int64_t upstream_get_graph_buffer_ipc_meta(int device, void *handle, unsigned char *handles, int64_t *offsets,
                                           size_t room)
{
    (void)device;
    (void)handle;
    if (handles != NULL && room == CAPTURED)
        for (size_t i = 0; i < CAPTURED; i++) {
            memset(handles + i * UPSTREAM_HANDLE_BYTES, 10 + (int)i, UPSTREAM_HANDLE_BYTES);
            offsets[i] = 256 * (int64_t)(i + 1);
        }
    return CAPTURED;
}

int upstream_register_graph_buffers(int device, void *handle, const unsigned char *handles, const int64_t *offsets,
                                    size_t count, int world)
{
    char line[512];
    size_t used;

    (void)handle;
    used = (size_t)snprintf(line, sizeof line, "register_graph_buffers %d %zu %d", device, count, world);
    for (size_t i = 0; i < count * (size_t)world; i++)
        used += (size_t)snprintf(line + used, sizeof line - used, " %d@%lld",
                                 handles[i * UPSTREAM_HANDLE_BYTES + UPSTREAM_HANDLE_BYTES - 1], (long long)offsets[i]);
    say(line);
    return 0;
}
