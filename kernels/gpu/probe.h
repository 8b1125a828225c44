/*
 * probe.h: which GPUs there are, asked in a child process, so that this one never holds a CUDA context.
 */
#ifndef GPU_PROBE_H
#define GPU_PROBE_H

#include "options.h"

typedef struct {
    int gpus;
    int device[RANKS_MAX]; /* CUDA device number of each */
    char name[RANKS_MAX][64], bus[RANKS_MAX][20], uuid[RANKS_MAX][48];
    uint64_t free_bytes[RANKS_MAX];
    int p2p; /* every ordered pair has peer access */
    int runtime, driver;
} probe;

/* Ask for the GPUs that the options choose, all by default. CODE_CANNOT with a message when there is none. */
int probe_gpus(probe *out, const options *o);

/* Does CUDA device a reach b's memory? A GPU reaches its own, though cudaDeviceCanAccessPeer() denies it: ranks may share one. */
int probe_reaches(int *can, int a, int b);

/* Bits of the algorithms asked for whose transport can work: host always, push and pull with P2P. */
unsigned probe_algorithms(const probe *p, const options *o);

#endif
