/*
 * copies.h: the kernels of the transfer test: write a pattern, compare with it, pass a flag after data.
 *
 * A pattern is a function of a key and an index; the key is of a pair and a test, so that a word of another pair, place
 * or round is seen. Every wait is bounded. All are enqueued on a stream and return a cudaError_t as int.
 */
#ifndef GPU_COPIES_H
#define GPU_COPIES_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What a comparison or an exchange found, in device memory; zeroed by the caller. */
typedef struct {
    unsigned long long wrong; /* 4-byte words that differ */
    unsigned long long index; /* of one of them */
    uint32_t expected, seen;
    uint32_t late;            /* exchange: the round whose flag or acknowledgement did not come, counted from 1 */
} copies_tally;

/* Addresses of an exchange, as this side sees them. */
typedef struct {
    void *data;
    uint32_t *flag, *ack;
} copies_box;

/* Load all kernels onto the current device. */
int copies_load(void);

/* Write words 0..bytes/4-1 of the pattern with 16-byte stores. */
int copies_fill(void *to, uint32_t key, size_t bytes, void *stream);

/* Compare with the pattern, by 16-byte loads that bypass caches. as_nan: pretend that every load gave NaN. */
int copies_check(const void *from, uint32_t key, size_t bytes, int as_nan, copies_tally *tally, void *stream);

/* Send `rounds` times: data, fence, flag; then wait for the acknowledgement. drop: leave out the end of the data. */
int copies_send(copies_box box, uint32_t key, size_t bytes, int rounds, int drop, copies_tally *tally, void *stream);

/* The other side: wait for the flag, load and compare the data, acknowledge. */
int copies_receive(copies_box box, uint32_t key, size_t bytes, int rounds, int as_nan, copies_tally *tally, void *stream);

/* A kernel that does not end. */
int copies_hang(void *stream);

#ifdef __cplusplus
}
#endif
#endif
