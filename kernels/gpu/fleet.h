/*
 * fleet.h: the ranks that this process holds, one (a process per rank) or all of them (in-process), with their
 * communicators, streams and buffers, so that a test is written once for both.
 *
 * There are two sets of streams and work buffers, so that calls can be issued on different streams. Ranks that share a
 * GPU share its streams: the library runs them inside one launch.
 *
 * Every function that is collective leaves all processes with the same result code.
 */
#ifndef GPU_FLEET_H
#define GPU_FLEET_H

#include "check.h"
#include "dataset.h"
#include "ranks.h"

#include "../pcie_allreduce.h"

enum {
    FLEET_SETS = 2,
    FLEET_TALLIES = 256,
    FLEET_GUARD = 256,     /* poisoned bytes before and behind an output */
    FLEET_MARGIN = 1024,   /* before the first output in a work buffer, and behind the longest */
    FLEET_SECOND = 1 << 20 /* bytes of the second set's work buffers */
};

typedef struct {
    ranks *ranks;
    int world, first, held; /* world size; ranks first..first+held-1 are here */
    int local;              /* all in this process */
    par_options options;
    int device[PAR_MAX_WORLD];
    par_comm *comm[PAR_MAX_WORLD];
    void *stream[FLEET_SETS][PAR_MAX_WORLD];
    void *event[PAR_MAX_WORLD];
    const dataset *data;
    char *input[PAR_MAX_WORLD], *expected[PAR_MAX_WORLD];
    char *work[FLEET_SETS][PAR_MAX_WORLD];
    size_t room; /* longest message */
    check_tally *tally[PAR_MAX_WORLD];
} fleet;

/* One all-reduce of a test: everything a rank must know, the same on all ranks. */
typedef struct {
    int algorithm, dtype;
    size_t count, shift; /* elements; where in the dataset the input starts */
    size_t offset;       /* elements by which the output misses alignment */
    int in_place;
} fleet_call;

/* Streams and communicators. device: of every rank; local: this process holds all; wanted null: no communicators.
 * Collective. */
int fleet_open(fleet *f, ranks *r, int world, const int *device, int local, const par_options *wanted);

/* Take the dataset of a dtype onto the GPUs; replaces the last one. room: longest message in bytes. */
int fleet_load(fleet *f, const dataset *d, size_t room);

/* Free communicators (and make new ones, collective) after an abort. */
int fleet_reopen(fleet *f);
void fleet_close(fleet *f);

/* A second communicator over the same ranks, streams and buffers; close it before the fleet. Collective. */
int fleet_twin(fleet *twin, const fleet *f);
void fleet_twin_close(fleet *twin);

/* The bare all-reduce of the held ranks on a set of streams; par error. */
int fleet_all_reduce(fleet *f, int set, const void *const *in, void *const *out, size_t count, int dtype,
                     int algorithm);

/* Poison, all-reduce, compare into tally `slot`; all enqueued on the set. Result code. */
int fleet_enqueue(fleet *f, int set, const fleet_call *call, int slot);

/* The same without poison, out of place, input read where it lies: two launches. For soak. */
int fleet_enqueue_bare(fleet *f, int set, const fleet_call *call, int slot);

/* Capture what is enqueued on a set from begin to end, a graph per GPU. */
typedef struct {
    void *exec[PAR_MAX_WORLD];
} fleet_graph;
int fleet_capture_begin(fleet *f, int set);
int fleet_capture_end(fleet *f, int set, fleet_graph *out);
int fleet_launch(fleet *f, int set, const fleet_graph *graph);
void fleet_graph_free(fleet *f, fleet_graph *graph);

/* Order: what comes next on set `to` waits for what is on set `from`. */
int fleet_order(fleet *f, int from, int to);

/* Wait for all streams; CODE_HANG with the report's text when the communicator was aborted. Not collective. */
int fleet_finish(fleet *f);

/* Zero the tallies. */
int fleet_tally_reset(fleet *f);

/* Read the tallies of calls[0..n-1]; wrong elements are counted in *wrong and the first is put into the rank's failure
 * text. 0, CODE_WRONG or CODE_CANNOT. wrong_of, if not null, gets the count of each call. */
int fleet_tally_read(fleet *f, const fleet_call *calls, int n, uint64_t *wrong, uint64_t *wrong_of);

/* Text of a par error for a rank's failure; code as the error asks for. */
int fleet_par(fleet *f, int error, const char *what);

#endif
