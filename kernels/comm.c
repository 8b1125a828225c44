/* comm.c: a communicator and its end. */
#include "comm.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "error.h"

enum { CLOSE_PATIENCE_MS = 2000 };

int par_cuda_error(cudaError_t error, const char *what)
{
    const char *end = strchr(what, '(');
    int length = end ? (int)(end - what) : (int)strlen(what);
    (void)cudaGetLastError(); /* not sticky for the next caller */
    return par_error(error == cudaErrorMemoryAllocation ? PAR_ERR_MEMORY : PAR_ERR_CUDA, "%.*s: %s", length, what,
                     cudaGetErrorString(error));
}

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
