/* comm.c: creating and closing communicators. */
#include "comm.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "device.h"
#include "error.h"

enum { PAGE = 4096, INBOX_GRAIN = 2 << 20, CLOSE_PATIENCE_MS = 2000 };

#define CUDA(call)                                                                                                 \
    do {                                                                                                           \
        cudaError_t cuda_error_ = (call);                                                                          \
        if (cuda_error_ != cudaSuccess)                                                                            \
            return par_cuda_error(cuda_error_, #call);                                                             \
    } while (0)

int par_cuda_error(cudaError_t error, const char *what)
{
    const char *end = strchr(what, '(');
    int length = end ? (int)(end - what) : (int)strlen(what);
    (void)cudaGetLastError(); /* not sticky for the next caller */
    return par_error(error == cudaErrorMemoryAllocation ? PAR_ERR_MEMORY : PAR_ERR_CUDA, "%.*s: %s", length, what,
                     cudaGetErrorString(error));
}

static uint64_t round_up(uint64_t bytes, uint64_t grain)
{
    return (bytes + grain - 1) / grain * grain;
}

/* --- options and sizes -------------------------------------------------------------------------------------------- */

static int read_options(par_options *out, const par_options *options)
{
    const par_options defaults = PAR_OPTIONS_INIT;
    *out = defaults;
    if (options) {
        if (options->size < offsetof(par_options, sentinel_bytes))
            return par_error(PAR_ERR_ARGUMENT, "options.size %zu is too small", options->size);
        memcpy(out, options, options->size < sizeof *out ? options->size : sizeof *out);
        out->size = sizeof *out;
    }
    if (out->with == 0 || (out->with & ~(uint32_t)PAR_WITH_ALL))
        return par_error(PAR_ERR_ARGUMENT, "options.with %#x names no transport or an unknown one", out->with);
    if (out->mode > PAR_MODE_STATUS)
        return par_error(PAR_ERR_ARGUMENT, "options.mode %u is unknown", out->mode);
    if (out->sentinel_bytes > 64u << 20)
        return par_error(PAR_ERR_ARGUMENT, "options.sentinel_bytes is above 64 MiB");
    if (!(out->timeout_s >= 0 && out->timeout_s < 1e6 && out->late_s >= 0 && out->late_s < 1e6))
        return par_error(PAR_ERR_ARGUMENT, "options.timeout_s or late_s is out of range");
    if (out->timeout_s == 0)
        out->timeout_s = 240;
    if (out->late_s == 0)
        out->late_s = 30;
    return PAR_OK;
}

static int check_world(int world)
{
    if (world < 2 || world > PAR_MAX_WORLD)
        return par_error(PAR_ERR_ARGUMENT, "world size %d is not in 2..%d", world, PAR_MAX_WORLD);
    return PAR_OK;
}

static int served(const par_options *options, int algorithm)
{
    uint32_t bit = par_algorithm_transport(algorithm) == PAR_HOST ? PAR_WITH_HOST : PAR_WITH_PEER;
    return (options->with & bit) != 0;
}

/* Geometry of all algorithms; bytes of a rank's part of the segment and of its inbox. */
static void measure(par_geometry *geometry, int world, uint32_t lanes, const par_options *options, uint64_t *host,
                    uint64_t *inbox)
{
    *host = *inbox = 0;
    for (int a = 1; a < PAR_ALGORITHMS; a++) {
        uint64_t *sum = par_algorithm_transport(a) == PAR_HOST ? host : inbox;
        par_geometry_init(&geometry[a], a, world, lanes, options->sentinel_bytes, 0);
        if (served(options, a))
            *sum += geometry[a].box_bytes + geometry[a].flag_bytes;
    }
    *host = round_up(*host, PAGE);
    *inbox = round_up(*inbox, INBOX_GRAIN);
}

static uint64_t own_memory_bytes(void)
{
    return PAR_ALGORITHMS * PAR_LANES * sizeof(par_lane) + (PAR_LANES + PAR_CLAIM_WORDS) * sizeof(uint32_t);
}

int par_memory_bound(int world, const par_options *options, uint64_t *device_bytes, uint64_t *host_bytes)
{
    par_geometry geometry[PAR_ALGORITHMS];
    par_options read;
    uint64_t host = 0, inbox = 0, most_host = 0, most_inbox = 0;
    int error = check_world(world);
    if (!error)
        error = read_options(&read, options);
    for (uint32_t lanes = 1; !error && lanes <= PAR_LANES; lanes++) { /* rounding differs with the GPU's lanes */
        measure(geometry, world, lanes, &read, &host, &inbox);
        most_host = host > most_host ? host : most_host;
        most_inbox = inbox > most_inbox ? inbox : most_inbox;
    }
    if (!error && device_bytes)
        *device_bytes = most_inbox + round_up(own_memory_bytes(), INBOX_GRAIN);
    if (!error && host_bytes)
        *host_bytes = most_host + PAGE;
    return error;
}

/* --- steps of creation -------------------------------------------------------------------------------------------- */

static struct par_comm *new_comm(int rank, int world, int device, const par_options *options)
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

/* Load every kernel that this communicator may use and see for how many lanes there is room with `sharing` ranks on
 * this device. */
static int load_kernels(struct par_comm *comm, int sharing)
{
    uint32_t least = UINT32_MAX;
    int processors = 0, error = PAR_OK;
    CUDA(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, comm->device));
    for (int i = 0; !error && i < PAR_ALGORITHMS * PAR_DTYPES; i++) {
        int algorithm = i / PAR_DTYPES, blocks = 0;
        if (algorithm != PAR_AUTO && served(&comm->options, algorithm)) {
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

static uint64_t segment_bytes(const struct par_comm *comm)
{
    return PAR_CONTROL_BYTES + (uint64_t)comm->world * comm->host_bytes;
}

/* Place this rank's boxes in host memory near its GPU: the owner writes, and posted writes are what must not stall. */
static void fill_host_part(struct par_comm *comm)
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

static int register_memory(par_memory *memory)
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

/* Allocate and fill this rank's device memory. */
static int make_device_memory(struct par_comm *comm)
{
    CUDA(cudaMalloc((void **)&comm->own_memory, own_memory_bytes()));
    CUDA(cudaMemset(comm->own_memory, 0, own_memory_bytes()));
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

/* Everything of the kernels' arguments that does not change. */
static int fill_calls(struct par_comm *comm)
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
        if (served(&comm->options, a))
            par_call_routes(c, comm->geometry, a);
    }
    return PAR_OK;
}

/* --- a communicator whose ranks are processes --------------------------------------------------------------------- */

/* What a rank tells the others in each round. */
typedef struct {
    int error;
    char text[160];
    int abi, world;
    uint32_t with, mode, lanes;
    uint64_t sentinel_bytes;
    double timeout_s;
    int pid;
    char socket[PAR_SOCKET_NAME];
    char bus[PAR_BUS_ID];
    char boot_id[40];
    cudaIpcMemHandle_t inbox;
} par_hello;

typedef struct {
    struct par_comm *comm;
    par_allgather_fn allgather;
    void *context;
    par_hello mine, all[PAR_MAX_WORLD];
} par_bootstrap;

/* Exchange, with this rank's error; the first rank's error is everybody's. */
static int round_of(par_bootstrap *b, int error, const char *step)
{
    b->mine.error = error;
    snprintf(b->mine.text, sizeof b->mine.text, "%.150s", error ? par_last_error() : "");
    if (b->allgather(b->context, &b->mine, b->all, sizeof b->mine) != 0)
        return par_error(PAR_ERR_BOOTSTRAP, "the all-gather callback failed at step \"%s\"", step);
    for (int r = 0; r < b->comm->world; r++) {
        char text[sizeof b->mine.text];
        memcpy(text, b->all[r].text, sizeof text);
        text[sizeof text - 1] = 0;
        if (b->all[r].error)
            return par_error(b->all[r].error, "rank %d: %s", r, text);
    }
    return PAR_OK;
}

static void boot_id(char out[40])
{
    FILE *file = fopen("/proc/sys/kernel/random/boot_id", "re");
    out[0] = 0;
    if (file && !fgets(out, 40, file))
        out[0] = 0;
    if (file)
        fclose(file);
}

static int introduce(par_bootstrap *b, int error)
{
    struct par_comm *comm = b->comm;
    b->mine.abi = PAR_ABI;
    b->mine.world = comm->world;
    b->mine.with = comm->options.with;
    b->mine.mode = comm->options.mode;
    b->mine.lanes = comm->lanes;
    b->mine.sentinel_bytes = comm->options.sentinel_bytes;
    b->mine.timeout_s = comm->options.timeout_s;
    b->mine.pid = (int)getpid();
    memcpy(b->mine.bus, comm->bus[comm->rank], PAR_BUS_ID);
    boot_id(b->mine.boot_id);
    return round_of(b, error, "introduction");
}

/* As many lanes as every rank has room for. Ranks that share a GPU (a test under MPS, the multi-process service) share
 * its room. */
static int agree_on_lanes(par_bootstrap *b)
{
    struct par_comm *comm = b->comm;
    comm->lanes = PAR_LANES;
    for (int r = 0; r < comm->world; r++) {
        uint32_t sharing = 0, lanes;
        for (int p = 0; p < comm->world; p++)
            sharing += strncmp(b->all[p].bus, b->all[r].bus, PAR_BUS_ID) == 0;
        lanes = b->all[r].lanes / sharing;
        if (lanes < 1)
            return par_error(PAR_ERR_UNSUPPORTED, "GPU %s cannot hold a block of each of %u ranks at once",
                             b->all[r].bus, sharing);
        comm->lanes = lanes < comm->lanes ? lanes : comm->lanes;
    }
    return PAR_OK;
}

/* The ranks must mean the same thing. */
static int agree(par_bootstrap *b)
{
    struct par_comm *comm = b->comm;
    for (int r = 0; r < comm->world; r++) {
        const par_hello *h = &b->all[r];
        const char *what = NULL;
        if (h->abi != PAR_ABI)
            what = "version of the library";
        else if (h->world != comm->world)
            what = "world size";
        else if (h->with != comm->options.with || h->mode != comm->options.mode ||
                 h->sentinel_bytes != comm->options.sentinel_bytes || h->timeout_s < comm->options.timeout_s ||
                 h->timeout_s > comm->options.timeout_s)
            what = "options";
        else if (strncmp(h->boot_id, b->mine.boot_id, sizeof h->boot_id) != 0)
            what = "machine";
        if (what)
            return par_error(PAR_ERR_MISMATCH, "rank %d has another %s than rank %d", r, what, comm->rank);
        comm->pid[r] = h->pid;
        memcpy(comm->bus[r], h->bus, PAR_BUS_ID);
    }
    return agree_on_lanes(b);
}

/* P2P to every peer's GPU, by its address on the bus: device numbers differ between processes. */
static int check_peers(const struct par_comm *comm)
{
    for (int r = 0; r < comm->world; r++) {
        int device = -1, can = 0;
        if (cudaDeviceGetByPCIBusId(&device, comm->bus[r]) != cudaSuccess) {
            (void)cudaGetLastError();
            return par_error(PAR_ERR_UNSUPPORTED, "rank %d's GPU %s is not visible to rank %d (CUDA_VISIBLE_DEVICES?)",
                             r, comm->bus[r], comm->rank);
        }
        if (device != comm->device) {
            CUDA(cudaDeviceCanAccessPeer(&can, comm->device, device));
            if (!can)
                return par_error(PAR_ERR_UNSUPPORTED, "no P2P from GPU %s to GPU %s", comm->bus[comm->rank],
                                 comm->bus[r]);
        }
    }
    return PAR_OK;
}

static int share_segment(par_bootstrap *b)
{
    struct par_comm *comm = b->comm;
    par_segment *s = &comm->memory->segment;
    int error = comm->rank == 0 ? par_segment_serve(s, comm->world - 1, comm->options.timeout_s)
                                : par_segment_fetch(s, b->all[0].socket, comm->options.timeout_s);
    if (!error)
        error = par_segment_map(s, segment_bytes(comm));
    if (!error) {
        comm->control = (par_control *)s->base;
        fill_host_part(comm);
        error = register_memory(comm->memory);
    }
    return error;
}

static int export_inbox(par_bootstrap *b)
{
    struct par_comm *comm = b->comm;
    int error = make_device_memory(comm);
    if (!error && comm->inbox)
        CUDA(cudaIpcGetMemHandle(&b->mine.inbox, comm->inbox));
    return error;
}

static int import_inboxes(par_bootstrap *b)
{
    struct par_comm *comm = b->comm;
    for (int r = 0; r < comm->world && (comm->options.with & PAR_WITH_PEER); r++) {
        if (r != comm->rank) {
            cudaError_t error = cudaIpcOpenMemHandle((void **)&comm->peer_inbox[r], b->all[r].inbox,
                                                     cudaIpcMemLazyEnablePeerAccess);
            if (error != cudaSuccess) {
                comm->peer_inbox[r] = NULL;
                return par_cuda_error(error, "cudaIpcOpenMemHandle");
            }
            comm->imported[r] = 1;
        }
    }
    return PAR_OK;
}

/* error: what has happened on this rank so far. Rounds are collective: it takes part in them whatever that is. */
static int agree_on_memory(par_bootstrap *b)
{
    struct par_comm *comm = b->comm;
    int error = agree(b);
    if (!error && (comm->options.with & PAR_WITH_PEER))
        error = check_peers(comm);
    measure(comm->geometry, comm->world, comm->lanes, &comm->options, &comm->host_bytes, &comm->inbox_bytes);
    if (!error && comm->rank == 0)
        error = par_segment_offer(&comm->memory->segment, segment_bytes(comm), b->mine.socket);
    return round_of(b, error, "agreement");
}

static int give_memory(par_bootstrap *b)
{
    int error = share_segment(b);
    if (!error)
        error = export_inbox(b);
    return round_of(b, error, "memory");
}

/* Behind its round, every rank has filled its slots and loaded its kernels. */
static int take_memory(par_bootstrap *b)
{
    int error = import_inboxes(b);
    if (!error)
        error = fill_calls(b->comm);
    if (!error)
        error = par_watch_start(b->comm);
    return round_of(b, error, "ready");
}

/* Behind a round the ranks agree on how it went, so where one failed none goes on. */
static int connect_ranks(par_bootstrap *b, int error)
{
    struct par_comm *comm = b->comm;
    if (!error)
        error = load_kernels(comm, 1);
    error = introduce(b, error);
    if (!error)
        error = agree_on_memory(b);
    if (!error)
        error = give_memory(b);
    if (!error)
        error = take_memory(b);
    return error;
}

static int enter_device(int device, int *before)
{
    CUDA(cudaGetDevice(before));
    CUDA(cudaSetDevice(device));
    return PAR_OK;
}

int par_create(par_comm **out, int rank, int world, int device, par_allgather_fn allgather, void *context,
               const par_options *options)
{
    const par_options defaults = PAR_OPTIONS_INIT;
    par_options read;
    par_bootstrap *b;
    int before = -1, error, wrong = PAR_OK;

    if (!out)
        return par_error(PAR_ERR_ARGUMENT, "out must not be null");
    *out = NULL;
    error = check_world(world);
    if (!error && (rank < 0 || rank >= world))
        error = par_error(PAR_ERR_ARGUMENT, "rank %d is not in 0..%d", rank, world - 1);
    if (!error && !allgather)
        error = par_error(PAR_ERR_ARGUMENT, "the all-gather callback must not be null");
    if (error)
        return error;
    wrong = read_options(&read, options); /* the other ranks, whose options may be right, hear of it */
    b = calloc(1, sizeof *b);
    if (b)
        b->comm = new_comm(rank, world, device, wrong ? &defaults : &read);
    if (b && b->comm)
        b->comm->memory = calloc(1, sizeof *b->comm->memory);
    if (!b || !b->comm || !b->comm->memory) {
        error = par_error(PAR_ERR_MEMORY, "out of memory");
    } else {
        const par_segment none = PAR_SEGMENT_INIT;
        b->comm->memory->segment = none;
        b->comm->memory->users = 1;
        b->allgather = allgather;
        b->context = context;
        error = connect_ranks(b, wrong ? wrong : enter_device(device, &before));
        if (!error)
            par_profile_defaults(b->comm);
    }
    if (b && !error)
        *out = b->comm;
    else if (b)
        par_close(b->comm);
    free(b);
    if (before >= 0)
        cudaSetDevice(before);
    return error;
}

/* --- all ranks in one process ------------------------------------------------------------------------------------- */

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
    int error = par_segment_create(&memory->segment, segment_bytes(comms[0]));
    if (!error)
        error = par_segment_map(&memory->segment, segment_bytes(comms[0]));
    for (int r = 0; !error && r < comms[0]->world; r++) {
        comms[r]->control = (par_control *)memory->segment.base;
        fill_host_part(comms[r]);
    }
    return error ? error : register_memory(memory);
}

static int connect_local(par_comm **comms, int world, const int *devices, par_memory *memory)
{
    uint32_t lanes = PAR_LANES;
    int error = PAR_OK;
    for (int r = 0; !error && r < world; r++) {
        CUDA(cudaSetDevice(devices[r]));
        comms[r]->device_repeats = sharing(world, devices, devices[r]) > 1;
        error = load_kernels(comms[r], sharing(world, devices, devices[r]));
        lanes = comms[r]->lanes < lanes ? comms[r]->lanes : lanes;
    }
    for (int r = 0; !error && r < world; r++) {
        comms[r]->lanes = lanes;
        measure(comms[r]->geometry, world, lanes, &comms[r]->options, &comms[r]->host_bytes, &comms[r]->inbox_bytes);
    }
    if (!error)
        error = make_local_segment(comms, memory);
    for (int r = 0; !error && r < world; r++) {
        CUDA(cudaSetDevice(devices[r]));
        error = make_device_memory(comms[r]);
        for (int p = 0; !error && p < world && (comms[r]->options.with & PAR_WITH_PEER); p++)
            error = enable_peers(comms[r], comms[p]);
    }
    for (int r = 0; !error && r < world; r++) {
        for (int p = 0; p < world; p++)
            comms[r]->peer_inbox[p] = comms[p]->inbox;
        CUDA(cudaSetDevice(devices[r]));
        error = fill_calls(comms[r]);
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
    error = check_world(world);
    if (!error)
        error = read_options(&read, options);
    if (error)
        return error;
    memset(out, 0, (size_t)world * sizeof *out);
    CUDA(cudaGetDevice(&before));
    memory = calloc(1, sizeof *memory);
    if (!memory)
        return par_error(PAR_ERR_MEMORY, "out of memory");
    memory->segment = none;
    for (int r = 0; r < world && !error; r++) {
        out[r] = new_comm(r, world, devices[r], &read);
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

/* --- closing ------------------------------------------------------------------------------------------------------ */

static int all_dropped(const struct par_comm *comm)
{
    int all = 1;
    for (int r = 0; r < comm->world; r++)
        all = all && (r == comm->rank || __atomic_load_n(&comm->control->dropped[r], __ATOMIC_ACQUIRE));
    return all;
}

/* Close the mappings of the peers' memory, say so, and wait a little for the peers to do the same. */
static int drop_imports(struct par_comm *comm)
{
    const struct timespec pause = {0, 10 * 1000 * 1000};
    for (int r = 0; r < comm->world; r++)
        if (comm->imported[r])
            cudaIpcCloseMemHandle(comm->peer_inbox[r]);
    if (!comm->control || comm->local)
        return 1;
    __atomic_store_n(&comm->control->dropped[comm->rank], 1, __ATOMIC_RELEASE);
    for (int waited = 0; comm->inbox && !all_dropped(comm) && waited < CLOSE_PATIENCE_MS; waited += 10)
        nanosleep(&pause, NULL);
    return all_dropped(comm);
}

static void release_memory(par_memory *memory)
{
    if (memory && --memory->users == 0) {
        if (memory->registered)
            cudaHostUnregister(memory->segment.base);
        par_segment_free(&memory->segment);
        free(memory);
    }
}

/* A child that was forked has a copy of its parent's communicator, and neither its GPU nor its watcher. */
static int inherited(const struct par_comm *comm)
{
    pid_t creator = comm->pid[comm->rank];
    return creator != 0 && creator != getpid();
}

void par_close(par_comm *comm)
{
    int before = -1;
    if (!comm || inherited(comm))
        return;
    cudaGetDevice(&before);
    cudaSetDevice(comm->device);
    if (comm->control)
        __atomic_store_n(&comm->control->closing[comm->rank], 1, __ATOMIC_RELEASE);
    cudaDeviceSynchronize(); /* bounded: every wait in a kernel is */
    par_watch_stop(comm);
    if (drop_imports(comm))
        cudaFree(comm->inbox); /* else leaked: a peer still maps it */
    cudaFree(comm->own_memory);
    if (comm->event)
        cudaEventDestroy(comm->event);
    release_memory(comm->memory);
    pthread_mutex_destroy(&comm->cause_lock);
    free(comm);
    (void)cudaGetLastError();
    if (before >= 0)
        cudaSetDevice(before);
}

int par_rank(const par_comm *comm)
{
    return comm ? comm->rank : -1;
}

int par_world(const par_comm *comm)
{
    return comm ? comm->world : 0;
}
