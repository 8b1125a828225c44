/*
 * pattern.h: verifiable inputs. An element is a pure function of seed, rank and index, so a word that comes from the
 * wrong rank, place or call is seen. Most elements are random with exponents near each other, so that sums round; one
 * in sixteen is special on all ranks at once: NaNs of every payload (all-ones too), infinities, denormals, signed
 * zeros, and values that cancel to zero exactly.
 */
#ifndef GPU_PATTERN_H
#define GPU_PATTERN_H

#include <stddef.h>
#include <stdint.h>

/* Bits of element `index` of `rank`; dtype is a par_dtype. */
uint32_t pattern_element(uint64_t seed, int rank, uint64_t index, int dtype);

/* Fill elements first..first+n-1 of `out`. */
void pattern_fill(void *out, uint64_t seed, int rank, int dtype, size_t first, size_t n);

/* A random number generator; the same seed gives the same numbers on every rank. */
typedef struct {
    uint64_t state;
} dice;
uint64_t dice_next(dice *d);
/* Uniform in 0..n-1; n > 0. */
size_t dice_below(dice *d, size_t n);

#endif
