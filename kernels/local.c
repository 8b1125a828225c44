/* local.c: communicators of all ranks in one process. */
#include "create.h"

#include <stdlib.h>
#include <string.h>

#include "error.h"

static int enable_peers(const struct par_comm *a, const struct par_comm *b)
{
    int can = 0;
    cudaError_t error;
    if (a->device == b->device)
        return PAR_OK;
    CUDA(cudaDeviceCanAccessPeer(&can, a->device, b->device));
    if (!can)
        return par_error(PAR_ERR_UNSUPPORTED, "no P2P from device %d to device %d", a->device, b->device);
    error = cudaDeviceEnablePeerAccess(b->device, 0);
    if (error == cudaErrorPeerAccessAlreadyEnabled)
        (void)cudaGetLastError();
    else if (error != cudaSuccess)
        return par_cuda_error(error, "cudaDeviceEnablePeerAccess");
    return PAR_OK;
}

static int sharing(int world, const int *devices, int device)
{
    int count = 0;
    for (int r = 0; r < world; r++)
        count += devices[r] == device;
    return count;
}

static int make_local_segment(par_comm **comms, par_memory *memory)
{
    int error = par_segment_create(&memory->segment, par_shared_bytes(comms[0]));
    if (!error)
        error = par_segment_map(&memory->segment, par_shared_bytes(comms[0]));
    for (int r = 0; !error && r < comms[0]->world; r++) {
        comms[r]->control = (par_control *)memory->segment.base;
        par_fill_host_part(comms[r]);
    }
    return error ? error : par_register_memory(memory);
}

static int connect_local(par_comm **comms, int world, const int *devices, par_memory *memory)
{
    uint32_t lanes = PAR_LANES;
    int error = PAR_OK;
    for (int r = 0; !error && r < world; r++) {
        CUDA(cudaSetDevice(devices[r]));
        comms[r]->device_repeats = sharing(world, devices, devices[r]) > 1;
        error = par_load_kernels(comms[r], sharing(world, devices, devices[r]));
        lanes = comms[r]->lanes < lanes ? comms[r]->lanes : lanes;
    }
    for (int r = 0; !error && r < world; r++) {
        comms[r]->lanes = lanes;
        par_measure(comms[r]->geometry, world, lanes, &comms[r]->options, &comms[r]->host_bytes,
                    &comms[r]->inbox_bytes);
    }
    if (!error)
        error = make_local_segment(comms, memory);
    for (int r = 0; !error && r < world; r++) {
        CUDA(cudaSetDevice(devices[r]));
        error = par_make_device_memory(comms[r]);
        for (int p = 0; !error && p < world && (comms[r]->options.with & PAR_WITH_PEER); p++)
            error = enable_peers(comms[r], comms[p]);
    }
    for (int r = 0; !error && r < world; r++) {
        for (int p = 0; p < world; p++)
            comms[r]->peer_inbox[p] = comms[p]->inbox;
        CUDA(cudaSetDevice(devices[r]));
        error = par_fill_calls(comms[r]);
    }
    return error;
}

int par_create_local(par_comm **out, int world, const int *devices, const par_options *options)
{
    const par_segment none = PAR_SEGMENT_INIT;
    par_memory *memory;
    par_options read;
    int before = -1, error;

    if (!out || !devices)
        return par_error(PAR_ERR_ARGUMENT, "out and devices must not be null");
    error = par_world_check(world);
    if (!error)
        error = par_options_read(&read, options);
    if (error)
        return error;
    memset(out, 0, (size_t)world * sizeof *out);
    CUDA(cudaGetDevice(&before));
    memory = calloc(1, sizeof *memory);
    if (!memory)
        return par_error(PAR_ERR_MEMORY, "out of memory");
    memory->segment = none;
    for (int r = 0; r < world && !error; r++) {
        out[r] = par_comm_new(r, world, devices[r], &read);
        if (out[r]) {
            out[r]->local = 1;
            out[r]->memory = memory;
            memory->users++;
        } else {
            error = par_error(PAR_ERR_MEMORY, "out of memory");
        }
    }
    if (!error)
        error = connect_local(out, world, devices, memory);
    for (int r = 0; r < world; r++) {
        if (error) {
            par_close(out[r]);
            out[r] = NULL;
        } else {
            par_profile_defaults(out[r]);
        }
    }
    cudaSetDevice(before);
    return error;
}
