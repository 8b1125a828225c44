/*
 * nccl.h: NCCL through its C API, loaded at run time, as the rival to measure against. Own minimal prototypes.
 */
#ifndef GPU_NCCL_H
#define GPU_NCCL_H

#include "ranks.h"

#include <stddef.h>

typedef struct {
    void *library, *comm;
    int version;    /* as 22809 for 2.28.9 */
    int channels;   /* of a collective, as NCCL logged it; 0 if it did not */
    char path[256]; /* the library */
    char via[64];   /* how channel 0 reaches the next rank, as NCCL logged it */
    int log;        /* memfd with NCCL's log of the start, or -1 */
} nccl;

/* Set this process's environment for NCCL as SGLang does, unless the user has other settings; and keep it from P2P. */
void nccl_set_up(int no_p2p);

/* Load and connect all ranks; the current device is the rank's. Collective. path null: as SGLang would find it. */
int nccl_open(nccl *n, ranks *r, const char *path);
void nccl_close(nccl *n);

/* Enqueue an out-of-place or in-place sum; dtype is a par_dtype. Result code. */
int nccl_all_reduce(nccl *n, const void *in, void *out, size_t count, int dtype, void *stream);

/* Print the NCCL settings in the environment into out: "NCCL_P2P_DISABLE=1 ...". */
void nccl_environment(char *out, size_t size);

#endif
