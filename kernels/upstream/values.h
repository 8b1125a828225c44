/*
 * values.h: inputs whose sums are exact in fp32, whatever the order, and round in 16 bits: so that what every kernel of
 * every rank must give is one known pattern of bits.
 */
#ifndef UPSTREAM_VALUES_H
#define UPSTREAM_VALUES_H

#include <stddef.h>
#include <stdint.h>

/* Elements of a rank's input; dtype as overlay.h and par_dtype have it. */
void values_fill(void *out, int rank, int dtype, size_t count, unsigned seed);

/* How many elements are not the sum over `world` ranks; *first: the first of them. */
size_t values_wrong(const void *seen, int world, int dtype, size_t count, unsigned seed, size_t *first);

#endif
