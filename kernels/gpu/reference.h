/*
 * reference.h: what an all-reduce must return, computed on the CPU and by other means than the kernels.
 *
 * The kernels shift bits; this file rounds by arithmetic on doubles, so that a mistake in one is not repeated in the
 * other. The sum: each element widened to fp32; up to four ranks are added in order, of more the first half (rounded
 * up) in order, the others in order, then the two sums; rounded once, to nearest even. It starts from a rank's value,
 * not from zero, which would turn -0 into +0. Every NaN has one pattern per dtype: fp16 and bf16 0x7fff,
 * fp32 0x7fffffff.
 */
#ifndef GPU_REFERENCE_H
#define GPU_REFERENCE_H

#include <stddef.h>
#include <stdint.h>

/* dtype is a par_dtype. Bits of one element to its value, and a value to the bits it is rounded to. */
float reference_widen(uint32_t bits, int dtype);
uint32_t reference_narrow(float value, int dtype);

/* Sum elements first..first+n-1 of the inputs of `world` ranks into the same elements of `out`. */
void reference_sum(void *out, const void *const *in, int world, int dtype, size_t first, size_t n);

#endif
