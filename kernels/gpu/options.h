/*
 * options.h: the command line of sgl-pcie-gpu, parsed once in main.c and read everywhere.
 */
#ifndef GPU_OPTIONS_H
#define GPU_OPTIONS_H

#include "ranks.h"

#include "../pcie_allreduce.h"

#include <stddef.h>
#include <stdint.h>

enum { OPTIONS_LIST = 32 };

typedef struct {
    size_t value[OPTIONS_LIST];
    int n;
} size_list;

typedef struct {
    int gpu[RANKS_MAX];  /* CUDA device numbers in PCI order */
    int gpus;            /* 0: all there are */
    unsigned worlds;     /* bits 2..8; 0: every size the GPUs allow */
    unsigned transports; /* bits of par_transport */
    unsigned algorithms; /* bits of par_algorithm */
    unsigned dtypes;     /* bits of par_dtype */
    int process, local;  /* which modes smoke runs */
    int faults;          /* smoke: the fault tests instead */
    uint64_t soak;       /* smoke: small calls in a row, at least so many */
    double soak_s;       /* and for so long */
    size_t max_bytes;
    size_list sizes;                  /* perf */
    size_list lanes, threads, chunks; /* perf: what to try; 0 is the library's rule */
    int calls, iterations;            /* perf: calls in a graph, replays */
    int nccl, model, each, grid;      /* perf: with NCCL, with the model, every algorithm in full, a line per try */
    double budget_s;                  /* perf: time for all of it; 0: as long as it takes */
    int quick, stream;                /* perf: fewer sizes and less of each; JSON lines as they come */
    const char *nccl_path;
    uint64_t seed;
    double limit_s;   /* of one group of processes */
    double timeout_s; /* of a wait in a call */
    int json, verbose;
} options;

int smoke_command(const options *o);
int faults_command(const options *o);
int perf_command(const options *o);
int transfers_command(const options *o);
int rival_command(const options *o);

#endif
