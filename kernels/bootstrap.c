/* bootstrap.c: a communicator whose ranks are processes, which agree by the caller's all-gather. */
#include "create.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "error.h"

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
        error = par_segment_map(s, par_shared_bytes(comm));
    if (!error) {
        comm->control = (par_control *)s->base;
        par_fill_host_part(comm);
        error = par_register_memory(comm->memory);
    }
    return error;
}

static int export_inbox(par_bootstrap *b)
{
    struct par_comm *comm = b->comm;
    int error = par_make_device_memory(comm);
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

static int agree_on_memory(par_bootstrap *b)
{
    struct par_comm *comm = b->comm;
    int error = agree(b);
    if (!error && (comm->options.with & PAR_WITH_PEER))
        error = check_peers(comm);
    par_measure(comm->geometry, comm->world, comm->lanes, &comm->options, &comm->host_bytes, &comm->inbox_bytes);
    if (!error && comm->rank == 0)
        error = par_segment_offer(&comm->memory->segment, par_shared_bytes(comm), b->mine.socket);
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
        error = par_fill_calls(b->comm);
    if (!error)
        error = par_watch_start(b->comm);
    return round_of(b, error, "ready");
}

/* error: what has happened on this rank so far. Rounds are collective: it takes part in them whatever that is. Behind a
 * round the ranks agree on how it went, so where one failed none goes on. */
static int connect_ranks(par_bootstrap *b, int error)
{
    struct par_comm *comm = b->comm;
    if (!error)
        error = par_load_kernels(comm, 1);
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
    error = par_world_check(world);
    if (!error && (rank < 0 || rank >= world))
        error = par_error(PAR_ERR_ARGUMENT, "rank %d is not in 0..%d", rank, world - 1);
    if (!error && !allgather)
        error = par_error(PAR_ERR_ARGUMENT, "the all-gather callback must not be null");
    if (error)
        return error;
    wrong = par_options_read(&read, options); /* the other ranks, whose options may be right, hear of it */
    b = calloc(1, sizeof *b);
    if (b)
        b->comm = par_comm_new(rank, world, device, wrong ? &defaults : &read);
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
