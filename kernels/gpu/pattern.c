#include "pattern.h"

#include "../pcie_allreduce.h"

/* splitmix64: a bijection that spreads every input bit over all output bits. */
static uint64_t mix(uint64_t x)
{
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

uint64_t dice_next(dice *d)
{
    d->state += 0x9e3779b97f4a7c15u;
    return mix(d->state);
}

size_t dice_below(dice *d, size_t n)
{
    return (size_t)(dice_next(d) % n);
}

/* Where a dtype's fields are. */
typedef struct {
    uint32_t sign, exponent_mask, fraction_mask;
    int fraction_bits;
    uint32_t middle; /* exponent field of values near 1 */
} fields;

static const fields layout[PAR_DTYPES] = {
    [PAR_FP16] = {0x8000u, 0x7c00u, 0x03ffu, 10, 15},
    [PAR_BF16] = {0x8000u, 0x7f80u, 0x007fu, 7, 127},
    [PAR_FP32] = {0x80000000u, 0x7f800000u, 0x007fffffu, 23, 127},
};

/* Random sign and fraction, exponent within seven of one: neighbours differ enough that sums must round. */
static uint32_t ordinary(uint64_t random, const fields *f)
{
    uint32_t exponent = f->middle + (uint32_t)(random >> 56) % 8 - 4;

    return ((uint32_t)(random >> 32) & f->sign) | exponent << f->fraction_bits | ((uint32_t)random & f->fraction_mask);
}

static uint32_t special(uint64_t common, uint64_t random, int rank, const fields *f)
{
    uint32_t sign = (uint32_t)(random >> 32) & f->sign, fraction = (uint32_t)random & f->fraction_mask;

    switch (common % 10) {
    case 0: /* a NaN on one rank, any payload */
        return rank == (int)(common >> 8 & 1) ? sign | f->exponent_mask | fraction | 1u : ordinary(random, f);
    case 1: /* all-ones, which the protocols must never send, on all ranks */
        return f->sign | f->exponent_mask | f->fraction_mask;
    case 2: /* infinities of any sign: some meet their opposite */
        return sign | f->exponent_mask;
    case 3: /* one infinity */
        return rank == 0 ? sign | f->exponent_mask : ordinary(random, f);
    case 4: /* denormals */
        return sign | fraction;
    case 5: /* the sum is -0 only if nobody starts from +0 */
        return f->sign;
    case 6: /* zeros of both signs */
        return sign;
    case 7: /* exact cancellation of ordinary values: both ranks take the common bits */
        return rank < 2 ? (ordinary(mix(common), f) & ~f->sign) | (rank == 1 ? f->sign : 0) : f->sign;
    case 8: /* denormals that cancel */
        return rank < 2 ? ((uint32_t)mix(common) & f->fraction_mask) | (rank == 1 ? f->sign : 0) : sign;
    default: /* the largest finite values: sums overflow to infinity, some not */
        return (sign & ((rank & 1) ? f->sign : 0)) | (f->exponent_mask - (1u << f->fraction_bits)) | fraction;
    }
}

uint32_t pattern_element(uint64_t seed, int rank, uint64_t index, int dtype)
{
    uint64_t common = mix(seed ^ index << 8), random = mix(common + (uint64_t)rank + 1);
    const fields *f = &layout[dtype];

    return (common >> 60) == 0 ? special(common >> 4, random, rank, f) : ordinary(random, f);
}

void pattern_fill(void *out, uint64_t seed, int rank, int dtype, size_t first, size_t n)
{
    size_t i;

    for (i = first; i < first + n; i++) {
        uint32_t bits = pattern_element(seed, rank, i, dtype);
        if (dtype == PAR_FP32)
            ((uint32_t *)out)[i] = bits;
        else
            ((uint16_t *)out)[i] = (uint16_t)bits;
    }
}
