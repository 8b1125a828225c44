/*
 * create.h: the steps by which a communicator comes to be, whether its ranks are processes (bootstrap.c) or all in one
 * (local.c).
 *
 * Both take them in this order. Between them the ranks agree: on the lanes before par_measure(), on where the shared
 * memory is before it is filled, on where the inboxes are before par_fill_calls(). A rank's device is the current one.
 * A step that fails says why by par_error(), and leaves what it has made to par_close().
 */
#ifndef PAR_CREATE_H
#define PAR_CREATE_H

#include "comm.h"

#define CUDA(call)                                                                                                 \
    do {                                                                                                           \
        cudaError_t cuda_error_ = (call);                                                                          \
        if (cuda_error_ != cudaSuccess)                                                                            \
            return par_cuda_error(cuda_error_, #call);                                                             \
    } while (0)

/* Check what the caller wants. Options that are null, or that an older caller does not know, get their defaults. */
int par_world_check(int world);
int par_options_read(par_options *out, const par_options *options);

/* Whether a transport of the options serves this algorithm. */
int par_served(const par_options *options, int algorithm);

/* Null when out of memory. */
struct par_comm *par_comm_new(int rank, int world, int device, const par_options *options);

/* Load every kernel that this communicator may use and see for how many lanes there is room with `sharing` ranks on
 * this device. */
int par_load_kernels(struct par_comm *comm, int sharing);

/* Geometry of all algorithms; bytes of a rank's part of the segment and of its inbox. */
void par_measure(par_geometry *geometry, int world, uint32_t lanes, const par_options *options, uint64_t *host,
                 uint64_t *inbox);
uint64_t par_own_memory_bytes(void);
uint64_t par_shared_bytes(const struct par_comm *comm); /* of the segment */

/* Place this rank's boxes in host memory near its GPU: the owner writes, and posted writes are what must not stall. */
void par_fill_host_part(struct par_comm *comm);
int par_register_memory(par_memory *memory);

/* Allocate and fill this rank's device memory. */
int par_make_device_memory(struct par_comm *comm);

/* Everything of the kernels' arguments that does not change. */
int par_fill_calls(struct par_comm *comm);

#endif
