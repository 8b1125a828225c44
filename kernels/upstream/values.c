#include "values.h"

#include "overlay.h"

#include <string.h>

static uint32_t mix(uint32_t x)
{
    x ^= x >> 16;
    x *= 0x7feb352du;
    x ^= x >> 15;
    x *= 0x846ca68bu;
    return x ^ x >> 16;
}

/* Seven bits and a sign, times a power of two from 1/8 to 16: no type rounds it, no fp32 sum of eight does. */
static float element(int rank, size_t index, unsigned seed)
{
    uint32_t random = mix((uint32_t)index * 8u + (uint32_t)rank + seed * 0x9e3779b9u);

    return (float)((int)(random & 255u) - 128) * (float)(1u << (random >> 8 & 7u)) / 8.0f;
}

static uint32_t bits_of(float value)
{
    uint32_t bits;

    memcpy(&bits, &value, sizeof(bits));
    return bits;
}

/* To nearest, ties to even. All values are zero or normal in every type. */
static uint32_t encode(float value, int dtype)
{
    uint32_t bits = bits_of(value), drop = dtype == UPSTREAM_BF16 ? 16 : 13;

    if (dtype == UPSTREAM_FP32 || value == 0.0f)
        return dtype == UPSTREAM_FP32 ? bits : bits >> 16;
    bits += (1u << (drop - 1)) - 1u + (bits >> drop & 1u);
    if (dtype == UPSTREAM_BF16)
        return bits >> 16;
    return (bits >> 16 & 0x8000u) | (((bits & 0x7fffffffu) - (112u << 23)) >> 13 & 0x7fffu);
}

static void put(void *out, size_t index, uint32_t bits, int dtype)
{
    if (dtype == UPSTREAM_FP32)
        ((uint32_t *)out)[index] = bits;
    else
        ((uint16_t *)out)[index] = (uint16_t)bits;
}

void values_fill(void *out, int rank, int dtype, size_t count, unsigned seed)
{
    for (size_t i = 0; i < count; i++)
        put(out, i, encode(element(rank, i, seed), dtype), dtype);
}

size_t values_wrong(const void *seen, int world, int dtype, size_t count, unsigned seed, size_t *first)
{
    size_t wrong = 0;

    for (size_t i = 0; i < count; i++) {
        float sum = element(0, i, seed);
        uint32_t bits = dtype == UPSTREAM_FP32 ? ((const uint32_t *)seen)[i] : ((const uint16_t *)seen)[i];

        for (int rank = 1; rank < world; rank++)
            sum += element(rank, i, seed);
        if (bits != encode(sum, dtype) && wrong++ == 0)
            *first = i;
    }
    return wrong;
}
