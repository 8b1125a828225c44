/* comm.h: the communicator, as the files of the host side share it. */
#ifndef PAR_COMM_H
#define PAR_COMM_H

#include <cuda_runtime_api.h>
#include <pthread.h>
#include <sys/types.h>

#include "call.h"
#include "segment.h"

enum { PAR_CONTROL_BYTES = 4096, PAR_MAX_CHOICES = 64, PAR_BUS_ID = 16 };

/* First page of the shared host memory. Every word has one writer, but for abort words: rank and its GPU. */
typedef struct {
    uint32_t abort_word[PAR_MAX_WORLD]; /* [rank]: PAR_ABORT(), or 0 */
    uint32_t spare[24];
    uint32_t closing[PAR_MAX_WORLD]; /* [rank]: has begun par_close(); its end is no failure */
    uint32_t dropped[PAR_MAX_WORLD]; /* [rank]: has closed its mappings of the peers' memory */
    uint32_t spare2[16];
    uint32_t life[PAR_MAX_WORLD]; /* [rank]: held by its watcher, see life.h */
    uint32_t spare3[24];
    struct {
        uint32_t failed[PAR_NOTE_WORDS];
        uint32_t late[PAR_NOTE_WORDS];
    } note[PAR_MAX_WORLD];
} par_control;

/* Shared host memory as one process has it; one per process mode communicator, one for all ranks of a local one. */
typedef struct {
    par_segment segment;
    int registered;
    int users; /* communicators of this process that use it */
} par_memory;

struct par_comm {
    int rank, world, device;
    int local;                       /* all ranks in this process */
    int device_repeats;              /* local: several ranks on this device */
    par_options options;             /* defaults filled in */
    uint32_t lanes;                  /* agreed by all ranks */
    par_geometry geometry[PAR_ALGORITHMS];
    par_call call[PAR_ALGORITHMS];   /* what does not change from call to call */
    uint64_t host_bytes;             /* of one rank's part of the segment */
    uint64_t inbox_bytes;            /* of what is exported */
    par_memory *memory;
    par_control *control;
    char *own_memory;                /* device: bookkeeping */
    char *inbox;                     /* device: boxes and flags that peers reach */
    char *peer_inbox[PAR_MAX_WORLD]; /* as mapped here; own one too */
    int imported[PAR_MAX_WORLD];     /* peer_inbox came from IPC */
    char bus[PAR_MAX_WORLD][PAR_BUS_ID];
    pid_t pid[PAR_MAX_WORLD];
    cudaEvent_t event; /* end of the last eager call */
    void *last_stream;
    int recorded;
    par_choice choice[PAR_MAX_CHOICES];
    size_t choices;
    uint64_t debug[PAR_DEBUG_CHUNK + 1];
    pthread_t watcher;
    int watching, stop;
    pthread_mutex_t cause_lock;
    int cause, cause_peer; /* error and rank of an abort that this process began; 0 if none */
    char why[128];
};

/* watch.c */
int par_watch_start(struct par_comm *comm);
void par_watch_stop(struct par_comm *comm);
void par_log(const struct par_comm *comm, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Abort all ranks for a reason that this process knows. */
void par_abort_for(struct par_comm *comm, int error, int peer, const char *why);
/* Any rank's abort word; 0 if none. */
uint32_t par_abort_seen(const struct par_comm *comm);

/* profile.c */
void par_profile_defaults(struct par_comm *comm);

/* cuda call that failed, as an error text */
int par_cuda_error(cudaError_t error, const char *what);

#endif
