#include "reference.h"

#include "../pcie_allreduce.h"

#include <math.h>
#include <string.h>

/* A binary floating-point format: bits of the fraction, least and greatest exponent of normal values. */
typedef struct {
    int fraction, least, greatest;
    uint32_t nan;
} format;

static const format formats[PAR_DTYPES] = {
    [PAR_FP16] = {10, -14, 15, 0x7fffu},
    [PAR_BF16] = {7, -126, 127, 0x7fffu},
    [PAR_FP32] = {23, -126, 127, 0x7fffffffu},
};

/* 2 to the n, for the exponents of normal doubles. */
static double power_of_two(int n)
{
    uint64_t bits = (uint64_t)(n + 1023) << 52;
    double d;

    memcpy(&d, &bits, sizeof(d));
    return d;
}

/* The exponent of a normal double. */
static int exponent_of(double d)
{
    uint64_t bits;

    memcpy(&bits, &d, sizeof(bits));
    return (int)(bits >> 52 & 0x7ff) - 1023;
}

static int sign_at(const format *f)
{
    int exponent_bits = f->greatest == 15 ? 5 : 8;

    return f->fraction + exponent_bits;
}

/* Fields as numbers, value by multiplication: exact for all formats, and the double fits a float. */
float reference_widen(uint32_t bits, int dtype)
{
    const format *f = &formats[dtype];
    uint32_t low = bits & ((1u << f->fraction) - 1), sign = bits >> sign_at(f) & 1u;
    int field = (int)(bits >> f->fraction & (uint32_t)(2 * f->greatest + 1));
    double value;

    if (field == 2 * f->greatest + 1)
        value = low != 0 ? (double)NAN : (double)INFINITY;
    else if (field == 0)
        value = low * power_of_two(f->least - f->fraction);
    else
        value = (low + power_of_two(f->fraction)) * power_of_two(field - f->greatest - f->fraction);
    return (float)(sign ? -value : value);
}

/*
 * Round the magnitude to a multiple of the spacing at its exponent. nearbyint() rounds to nearest even; the quotient
 * and the product are exact, both being scalings by a power of two. Rounding up into the next exponent needs no care:
 * the fraction's overflow carries into the exponent field.
 */
uint32_t reference_narrow(float value, int dtype)
{
    const format *f = &formats[dtype];
    double magnitude = fabs((double)value), steps;
    uint32_t sign = signbit(value) ? 1u << sign_at(f) : 0u, bits;
    int exponent;

    if (isnan(value))
        return f->nan;
    exponent = exponent_of(magnitude); /* zero: -1023, which the next line lifts */
    exponent = exponent < f->least ? f->least : exponent;
    if (isinf(value) || exponent > f->greatest)
        return sign | (uint32_t)(2 * f->greatest + 1) << f->fraction;
    steps = nearbyint(magnitude * power_of_two(f->fraction - exponent));
    bits = (uint32_t)steps; /* with the leading one at bit `fraction`, unless denormal */
    return sign | (bits + ((uint32_t)(exponent - f->least) << f->fraction));
}

static float sum_in_order(const float *value, int n)
{
    float sum = value[0];
    int i;

    for (i = 1; i < n; i++)
        sum += value[i];
    return sum;
}

static float sum_tree(const float *value, int world)
{
    int half = (world + 1) / 2;

    if (world <= 4)
        return sum_in_order(value, world);
    return sum_in_order(value, half) + sum_in_order(value + half, world - half);
}

static uint32_t element(const void *data, int dtype, size_t i)
{
    return dtype == PAR_FP32 ? ((const uint32_t *)data)[i] : ((const uint16_t *)data)[i];
}

void reference_sum(void *out, const void *const *in, int world, int dtype, size_t first, size_t n)
{
    float value[PAR_MAX_WORLD];
    size_t i;
    int r;

    for (i = first; i < first + n; i++) {
        uint32_t bits;
        for (r = 0; r < world; r++)
            value[r] = reference_widen(element(in[r], dtype, i), dtype);
        bits = reference_narrow(sum_tree(value, world), dtype);
        if (dtype == PAR_FP32)
            ((uint32_t *)out)[i] = bits;
        else
            ((uint16_t *)out)[i] = (uint16_t)bits;
    }
}
