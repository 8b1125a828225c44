/*
 * numerics.h: from 16-byte vectors to fp32 and back, NaN patterns, and the summation tree. For device and host; the
 * bits are the same on both (the host has no other floating-point mode than round-to-nearest, no contraction is
 * possible: there are only additions).
 *
 * NaN. Every NaN that travels or is stored has one pattern per dtype, positive and quiet, never all-ones. So all-ones
 * can mean "not arrived". Every other value, signed zeros and denormals included, travels untouched.
 */
#ifndef PAR_NUMERICS_H
#define PAR_NUMERICS_H

#include "call.h"

#define PAR_NAN_FP16 0x7fffu /* the ones that the GPU's conversions and minimum make of any NaN */
#define PAR_NAN_BF16 0x7fffu
#define PAR_NAN_FP32 0x7fffffffu

typedef struct { float f[8]; } par_wide; /* one vec as fp32: 8 elements of 16 bits, or 4 of 32 */

/* --- one element -------------------------------------------------------------------------------------------------- */

#ifdef __CUDACC__

PAR_DEV float par_as_float(uint32_t bits) { return __uint_as_float(bits); }
PAR_DEV uint32_t par_as_bits(float f) { return __float_as_uint(f); }

PAR_DEV float par_half_to_float(uint32_t bits)
{
    float f;
    asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"((uint16_t)bits));
    return f;
}

PAR_DEV uint32_t par_float_to_half(float f)
{
    uint16_t h;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h) : "f"(f));
    return h;
}

#else

PAR_DEV float par_as_float(uint32_t bits)
{
    union { uint32_t u; float f; } x;
    x.u = bits;
    return x.f;
}

PAR_DEV uint32_t par_as_bits(float f)
{
    union { uint32_t u; float f; } x;
    x.f = f;
    return x.u;
}

PAR_DEV float par_half_to_float(uint32_t bits)
{
    uint32_t sign = (bits & 0x8000u) << 16, exponent = bits >> 10 & 31u, fraction = bits & 0x3ffu;
    float scaled;
    if (exponent == 31)
        return par_as_float(sign | 0x7f800000u | fraction << 13);
    if (exponent != 0)
        return par_as_float(sign | (exponent + 112) << 23 | fraction << 13);
    scaled = (float)fraction * 0x1p-24f; /* exact */
    return par_as_float(sign | par_as_bits(scaled));
}

PAR_DEV uint32_t par_float_to_half(float f)
{
    uint32_t bits = par_as_bits(f), sign = bits >> 16 & 0x8000u, magnitude = bits & 0x7fffffffu;
    uint32_t half, rest, middle;
    if (magnitude > 0x7f800000u)
        return sign | PAR_NAN_FP16;
    if (magnitude >= 0x477ff000u) /* rounds to 65536 or more */
        return sign | 0x7c00u;
    if (magnitude >= 0x38800000u) { /* normal in fp16 */
        half = (magnitude - 0x38000000u) >> 13;
        rest = magnitude & 0x1fffu;
        middle = 0x1000u;
    } else { /* denormal: shift the fraction with its hidden bit into place */
        uint32_t exponent = magnitude >> 23, shift = 126 - exponent, fraction = (magnitude & 0x7fffffu) | 0x800000u;
        if (exponent < 102)
            return sign; /* below half of the smallest */
        half = fraction >> shift;
        rest = fraction & ((1u << shift) - 1);
        middle = 1u << (shift - 1);
    }
    half += rest > middle || (rest == middle && (half & 1u));
    return sign | half;
}

#endif

/* Two floats to a word of bf16, round to nearest even; NaNs become some NaN. */
PAR_DEV uint32_t par_bf16_pair(float low, float high)
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    uint32_t pair;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    return pair;
#else
    uint32_t a = par_as_bits(low), b = par_as_bits(high);
    a = (a & 0x7fffffffu) > 0x7f800000u ? PAR_NAN_BF16 : (a + 0x7fffu + (a >> 16 & 1u)) >> 16;
    b = (b & 0x7fffffffu) > 0x7f800000u ? PAR_NAN_BF16 : (b + 0x7fffu + (b >> 16 & 1u)) >> 16;
    return a | b << 16;
#endif
}

/* --- one vector --------------------------------------------------------------------------------------------------- */

/* Give every NaN in a pair of 16-bit elements its one pattern. */
PAR_DEV uint32_t par_clean_pair(uint32_t w, int dtype)
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    uint32_t clean; /* the larger of twice the same is that, but for a NaN's pattern */
    if (dtype == PAR_FP16)
        asm("max.f16x2 %0, %1, %1;" : "=r"(clean) : "r"(w));
    else
        asm("max.bf16x2 %0, %1, %1;" : "=r"(clean) : "r"(w));
    return clean;
#else
    const uint32_t infinity = dtype == PAR_FP16 ? 0x7c00u : 0x7f80u;
    const uint32_t nan = dtype == PAR_FP16 ? PAR_NAN_FP16 : PAR_NAN_BF16;
    uint32_t low = w & 0xffffu, high = w >> 16;
    low = (low & 0x7fffu) > infinity ? nan : low;
    high = (high & 0x7fffu) > infinity ? nan : high;
    return low | high << 16;
#endif
}

PAR_DEV uint32_t par_clean_word(uint32_t w, int dtype)
{
    if (dtype != PAR_FP32)
        return par_clean_pair(w, dtype);
    return (w & 0x7fffffffu) > 0x7f800000u ? PAR_NAN_FP32 : w;
}

/* Give every NaN its one pattern; afterwards no word is PAR_EMPTY. */
PAR_DEV par_vec par_clean(par_vec v, int dtype)
{
    PAR_UNROLL
    for (int i = 0; i < 4; i++)
        v.w[i] = par_clean_word(v.w[i], dtype);
    return v;
}

PAR_DEV par_wide par_widen(par_vec v, int dtype)
{
    par_wide x;
    PAR_UNROLL
    for (int i = 0; i < 4; i++) {
        if (dtype == PAR_FP32) {
            x.f[i] = par_as_float(v.w[i]);
        } else if (dtype == PAR_BF16) {
            x.f[2 * i] = par_as_float(v.w[i] << 16);
            x.f[2 * i + 1] = par_as_float(v.w[i] & 0xffff0000u);
        } else {
            x.f[2 * i] = par_half_to_float(v.w[i] & 0xffffu);
            x.f[2 * i + 1] = par_half_to_float(v.w[i] >> 16);
        }
    }
    return x;
}

/* Round once, NaNs to their pattern. A GPU's conversions and sums give NaNs that pattern already. */
PAR_DEV par_vec par_narrow(par_wide x, int dtype)
{
    par_vec v;
    PAR_UNROLL
    for (int i = 0; i < 4; i++) {
        if (dtype == PAR_FP32)
            v.w[i] = par_as_bits(x.f[i]);
        else if (dtype == PAR_BF16)
            v.w[i] = par_bf16_pair(x.f[2 * i], x.f[2 * i + 1]);
        else
            v.w[i] = par_float_to_half(x.f[2 * i]) | par_float_to_half(x.f[2 * i + 1]) << 16;
    }
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    return v;
#else
    return par_clean(v, dtype);
#endif
}

PAR_DEV par_wide par_add(par_wide a, par_wide b, int dtype)
{
    PAR_UNROLL
    for (int i = 0; i < (dtype == PAR_FP32 ? 4 : 8); i++)
        a.f[i] += b.f[i];
    return a;
}

/*
 * The summation tree: up to four ranks in order; above, the first ceil(world / 2) ranks in order, the others in order,
 * then the two sums. Starts from a rank's value, not from zero, which would turn -0 into +0.
 */
PAR_DEV par_vec par_sum(const par_vec part[PAR_MAX_WORLD], uint32_t world, int dtype)
{
    uint32_t middle = world > 4 ? (world + 1) / 2 : world;
    par_wide low = par_widen(part[0], dtype), high = low;
    PAR_UNROLL
    for (uint32_t p = 1; p < PAR_MAX_WORLD; p++) {
        if (p < middle)
            low = par_add(low, par_widen(part[p], dtype), dtype);
        else if (p == middle && p < world)
            high = par_widen(part[p], dtype);
        else if (p < world)
            high = par_add(high, par_widen(part[p], dtype), dtype);
    }
    if (middle < world)
        low = par_add(low, high, dtype);
    return par_narrow(low, dtype);
}

#endif
