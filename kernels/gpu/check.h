/*
 * check.h: the few kernels of the test program itself: compare, wait, keep busy, measure a link.
 * All are enqueued on a stream and may be captured; they return a cudaError_t as int.
 */
#ifndef GPU_CHECK_H
#define GPU_CHECK_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { CHECK_SAMPLES = 4, CHECK_POISON = 0xc5 };

/* What a comparison found, in device memory; zeroed by the caller. */
typedef struct {
    unsigned long long wrong; /* elements that differ */
    unsigned long long guard; /* bytes around the output that were touched */
    struct {
        unsigned long long index;
        uint32_t expected, seen;
    } sample[CHECK_SAMPLES];
} check_tally;

/* Load all kernels onto the current device: a lazy load later might wait for a kernel that waits for us. */
int check_load(void);

/*
 * Compare count elements of `size` bytes with `expected`, and the guard_bytes before and behind `seen` with
 * CHECK_POISON. stream is a cudaStream_t.
 */
int check_compare(const void *seen, const void *expected, size_t count, size_t size, size_t guard_bytes,
                  check_tally *tally, void *stream);

/* Wait on the device. */
int check_delay(uint64_t nanoseconds, void *stream);

/* A stand-in for the layer between two all-reduces: touches the message (at most 256 KiB of it) on many blocks. */
int check_layer(void *data, size_t bytes, void *stream);

/* A kernel that does nothing: what a graph node costs. */
int check_empty(void *stream);

/* Out of place, 16 bytes a thread: what a kernel costs that only reads its input and writes its output. */
int check_copy(const void *in, void *out, size_t bytes, void *stream);

/*
 * One side of a ping-pong over two words: wait until *in is i, set *out to i, for `rounds` rounds; the side that
 * serves sets first. Gives up after two seconds, with *failed set.
 */
int check_ping_pong(uint32_t *in, uint32_t *out, int serves, int rounds, uint32_t *failed, void *stream);

/*
 * What a call cannot do without: a kernel that tells every other rank that it is there, by a word, and waits until they
 * all are. out[r], in[r]: the words to and from rank r. Counts its own turns in *turns, so that a graph may hold many.
 * Gives up after two seconds, with *failed set.
 */
typedef struct {
    uint32_t *out[8], *in[8];
} check_words;
int check_exchange(const check_words *words, int rank, int world, uint32_t *turns, uint32_t *failed, void *stream);

/* Read or write (or both, half and half) a window `passes` times with 16-byte volatile accesses. */
enum { CHECK_READ = 1, CHECK_WRITE = 2 };
int check_stream(void *read, void *write, size_t window, int passes, int what, uint32_t *sink, void *stream);

#ifdef __cplusplus
}
#endif
#endif
