/* create.c: see create.h. */
#include "create.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "device.h"
#include "error.h"

struct par_comm *par_comm_new(int rank, int world, int device, const par_options *options)
{
    struct par_comm *comm = calloc(1, sizeof *comm);
    if (comm) {
        comm->rank = rank;
        comm->world = world;
        comm->device = device;
        comm->options = *options;
        pthread_mutex_init(&comm->cause_lock, NULL);
    }
    return comm;
}

/* Load a kernel and see how many of its largest blocks a multiprocessor holds. */
static int load_kernel(const void *kernel, int *blocks)
{
    struct cudaFuncAttributes attributes;
    CUDA(cudaFuncGetAttributes(&attributes, kernel));
    CUDA(cudaOccupancyMaxActiveBlocksPerMultiprocessor(blocks, kernel, attributes.maxThreadsPerBlock, 0));
    return PAR_OK;
}

int par_load_kernels(struct par_comm *comm, int sharing)
{
    uint32_t least = UINT32_MAX;
    int processors = 0, error = PAR_OK;
    CUDA(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, comm->device));
    for (int i = 0; !error && i < PAR_ALGORITHMS * PAR_DTYPES; i++) {
        int algorithm = i / PAR_DTYPES, blocks = 0;
        if (algorithm != PAR_AUTO && par_served(&comm->options, algorithm)) {
            error = load_kernel(par_kernel(algorithm, i % PAR_DTYPES, comm->world, (unsigned)sharing), &blocks);
            if (par_room(blocks, processors, sharing) < least)
                least = par_room(blocks, processors, sharing);
        }
    }
    if (!error && least < 1)
        error = par_error(PAR_ERR_UNSUPPORTED, "device %d cannot hold a block of each of %d ranks at once",
                          comm->device, sharing);
    comm->lanes = least;
    if (error)
        return error;
    CUDA(cudaDeviceGetPCIBusId(comm->bus[comm->rank], PAR_BUS_ID, comm->device));
    CUDA(cudaEventCreateWithFlags(&comm->event, cudaEventDisableTiming));
    return PAR_OK;
}

/* NUMA node of the GPU; -1 if unknown. */
static int gpu_node(const char *bus)
{
    char path[96], name[PAR_BUS_ID];
    int node = -1;
    FILE *file;
    for (size_t i = 0; i < sizeof name; i++)
        name[i] = (char)tolower((unsigned char)bus[i]);
    snprintf(path, sizeof path, "/sys/bus/pci/devices/%.15s/numa_node", name);
    file = fopen(path, "re");
    if (file && fscanf(file, "%d", &node) != 1)
        node = -1;
    if (file)
        fclose(file);
    return node;
}

static char *host_part(const struct par_comm *comm, int rank)
{
    return comm->memory->segment.base + PAR_CONTROL_BYTES + (uint64_t)rank * comm->host_bytes;
}

uint64_t par_shared_bytes(const struct par_comm *comm)
{
    return PAR_CONTROL_BYTES + (uint64_t)comm->world * comm->host_bytes;
}

void par_fill_host_part(struct par_comm *comm)
{
    char *at = host_part(comm, comm->rank);
    int node = gpu_node(comm->bus[comm->rank]), error;
    if (!(comm->options.with & PAR_WITH_HOST))
        return;
    error = par_segment_place(at, comm->host_bytes, node);
    if (error)
        par_log(comm, "cannot place shared memory on NUMA node %d: %s", node, strerror(error));
    for (int a = 1; a < PAR_ALGORITHMS; a++) {
        const par_geometry *g = &comm->geometry[a];
        if (par_algorithm_transport(a) == PAR_HOST) {
            memset(at, 0xff, g->box_bytes);
            memset(at + g->box_bytes, 0, g->flag_bytes);
            at += g->box_bytes + g->flag_bytes;
        }
    }
}

int par_register_memory(par_memory *memory)
{
    size_t bytes = memory->segment.bytes;
    cudaError_t failed;
    struct rlimit limit = {RLIM_INFINITY, RLIM_INFINITY};
    if (memory->registered)
        return PAR_OK;
    failed = cudaHostRegister(memory->segment.base, bytes, cudaHostRegisterPortable | cudaHostRegisterMapped);
    if (failed != cudaSuccess) {
        (void)cudaGetLastError();
        getrlimit(RLIMIT_MEMLOCK, &limit);
        if (limit.rlim_cur != RLIM_INFINITY && limit.rlim_cur < bytes)
            return par_error(PAR_ERR_MEMORY,
                             "cudaHostRegister of %zu bytes: %s; RLIMIT_MEMLOCK allows %llu (ulimit -l, or --ulimit "
                             "memlock=-1 for a container)",
                             bytes, cudaGetErrorString(failed), (unsigned long long)limit.rlim_cur);
        return par_error(PAR_ERR_MEMORY, "cudaHostRegister of %zu bytes: %s", bytes, cudaGetErrorString(failed));
    }
    memory->registered = 1;
    return PAR_OK;
}

/* Boxes and flags of the peer transports in an inbox, in the order of the algorithms. */
static void fill_calls_peer(struct par_comm *comm, int rank)
{
    char *at = comm->peer_inbox[rank];
    for (int a = 1; at && a < PAR_ALGORITHMS; a++) {
        const par_geometry *g = &comm->geometry[a];
        if (par_algorithm_transport(a) != PAR_HOST) {
            comm->call[a].box[rank] = (uint32_t *)at;
            comm->call[a].flag[rank] = (uint32_t *)(at + g->box_bytes);
            at += g->box_bytes + g->flag_bytes;
        }
    }
}

static void fill_calls_host(struct par_comm *comm, int rank, char *at)
{
    for (int a = 1; a < PAR_ALGORITHMS; a++) {
        const par_geometry *g = &comm->geometry[a];
        if (par_algorithm_transport(a) == PAR_HOST) {
            comm->call[a].box[rank] = (uint32_t *)at;
            comm->call[a].flag[rank] = (uint32_t *)(at + g->box_bytes);
            at += g->box_bytes + g->flag_bytes;
        }
    }
}

int par_make_device_memory(struct par_comm *comm)
{
    CUDA(cudaMalloc((void **)&comm->own_memory, par_own_memory_bytes()));
    CUDA(cudaMemset(comm->own_memory, 0, par_own_memory_bytes()));
    if (comm->options.with & PAR_WITH_PEER) {
        CUDA(cudaMalloc((void **)&comm->inbox, comm->inbox_bytes));
        comm->peer_inbox[comm->rank] = comm->inbox;
        fill_calls_peer(comm, comm->rank);
        for (int a = 1; a < PAR_ALGORITHMS; a++) {
            if (par_algorithm_transport(a) != PAR_HOST) {
                CUDA(cudaMemset(comm->call[a].box[comm->rank], 0xff, comm->geometry[a].box_bytes));
                CUDA(cudaMemset(comm->call[a].flag[comm->rank], 0, comm->geometry[a].flag_bytes));
            }
        }
    }
    CUDA(cudaDeviceSynchronize());
    return PAR_OK;
}

int par_fill_calls(struct par_comm *comm)
{
    par_lane *lanes = (par_lane *)comm->own_memory;
    uint32_t *words = (uint32_t *)(lanes + PAR_ALGORITHMS * PAR_LANES);
    char *control = NULL;
    CUDA(cudaHostGetDevicePointer((void **)&control, comm->memory->segment.base, 0));
    for (int r = 0; r < comm->world; r++) {
        fill_calls_peer(comm, r);
        if (comm->options.with & PAR_WITH_HOST)
            fill_calls_host(comm, r, control + PAR_CONTROL_BYTES + (uint64_t)r * comm->host_bytes);
    }
    for (int a = 1; a < PAR_ALGORITHMS; a++) {
        par_call *c = &comm->call[a];
        c->lane = lanes + a * PAR_LANES;
        c->busy = words;
        c->claim = words + PAR_LANES;
        c->abort_word = (uint32_t *)(control + offsetof(par_control, abort_word));
        c->failed = (uint32_t *)(control + offsetof(par_control, note[0].failed) +
                                 (size_t)comm->rank * sizeof comm->control->note[0]);
        c->late = c->failed + PAR_NOTE_WORDS;
        c->timeout_ns = (uint64_t)(comm->options.timeout_s * 1e9);
        c->late_ns = (uint64_t)(comm->options.late_s * 1e9);
        c->rank = (uint32_t)comm->rank;
        c->world = (uint32_t)comm->world;
        c->trap = comm->options.mode == PAR_MODE_ENGINE;
        if (par_served(&comm->options, a))
            par_call_routes(c, comm->geometry, a);
    }
    return PAR_OK;
}
