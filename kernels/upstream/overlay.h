/*
 * overlay.h: the C interface of libupstream.so: SGLang's own all-reduce (csrc/allreduce/custom_all_reduce.cuh of a
 * checkout, with the patch set sgl-kernel), compiled without torch.
 *
 * The seven functions are those that SGLang's class CustomAllreduce calls, with pointers where upstream has tensors. A
 * handle belongs to this library: all seven must come from one library. Nothing is thrown across this interface; a
 * function that fails returns -1 or NULL, and upstream_last_error() says why, in upstream's words where it threw.
 *
 * Every function takes the CUDA device to work on, and leaves the thread's current device as it was.
 */
#ifndef UPSTREAM_OVERLAY_H
#define UPSTREAM_OVERLAY_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

enum { UPSTREAM_ABI = 1, UPSTREAM_HANDLE_BYTES = 64 };
enum { UPSTREAM_FP16 = 0, UPSTREAM_BF16 = 1, UPSTREAM_FP32 = 2 };

int upstream_abi(void);

/* Of the last function that failed in this thread; valid until the next one fails. */
const char *upstream_last_error(void);

/* Bytes that the signals need at the start of every rank's shared buffer. */
int64_t upstream_meta_size(void);

/* signals: every rank's shared buffer as this rank sees it: meta_size bytes, zeroed, then scratch of the longest
 * message. rank_data: device memory for tables of pointers, 64 bytes for each registered buffer or captured call. */
void *upstream_init_custom_ar(int device, void *const *signals, int world, int rank, void *rank_data,
                              size_t rank_data_bytes, int full_nvlink);
int upstream_dispose(int device, void *handle);

/* A buffer of every rank, as this rank sees it, that inputs may lie in the start of. */
int upstream_register_buffer(int device, void *handle, void *const *buffers, int world);

/* The sum over the ranks. staged: copied into this registered buffer of staged_bytes first; NULL: in is registered, or
 * the stream is being captured. stream: a cudaStream_t. */
int upstream_all_reduce(int device, void *handle, const void *in, void *out, size_t count, int dtype, void *staged,
                        size_t staged_bytes, void *stream);

/* Inputs of calls captured since the last registration: how many; -1 on error. Where handles and offsets are given,
 * with room for so many, they are filled in. */
int64_t upstream_get_graph_buffer_ipc_meta(int device, void *handle, unsigned char *handles, int64_t *offsets,
                                           size_t room);

/* The same of all ranks, one after the other: count handles and offsets of each. */
int upstream_register_graph_buffers(int device, void *handle, const unsigned char *handles, const int64_t *offsets,
                                    size_t count, int world);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
