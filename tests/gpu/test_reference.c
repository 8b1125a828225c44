/*
 * The CPU reference that the kernels are compared with on a GPU: right by itself, and the same bits as the kernels'
 * own arithmetic (kernels/numerics.h), which is written in another way.
 */
#include "kernels/gpu/pattern.h"
#include "kernels/gpu/reference.h"
#include "kernels/numerics.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static void test_values_that_everybody_knows(void **state)
{
    (void)state;
    assert_int_equal(reference_narrow(1.0f, PAR_FP16), 0x3c00);
    assert_int_equal(reference_narrow(-2.0f, PAR_BF16), 0xc000);
    assert_int_equal(reference_narrow(65504.0f, PAR_FP16), 0x7bff);
    assert_int_equal(reference_narrow(65519.996f, PAR_FP16), 0x7bff);
    assert_int_equal(reference_narrow(65520.0f, PAR_FP16), 0x7c00);
    assert_int_equal(reference_narrow(-INFINITY, PAR_BF16), 0xff80);
    assert_int_equal(reference_narrow(3.4e38f, PAR_BF16), 0x7f80);
    assert_int_equal(reference_narrow(-0.0f, PAR_FP16), 0x8000);
    assert_int_equal(reference_narrow(-NAN, PAR_FP16), 0x7fff);
    assert_int_equal(reference_narrow(NAN, PAR_BF16), 0x7fff);
    assert_int_equal(reference_narrow(-NAN, PAR_FP32), 0x7fffffff);
}

static void test_ties_go_to_even(void **state)
{
    (void)state;
    assert_int_equal(reference_narrow(1.0f + 0x1p-11f, PAR_FP16), 0x3c00);
    assert_int_equal(reference_narrow(1.0f + 0x3p-11f, PAR_FP16), 0x3c02);
    assert_int_equal(reference_narrow(1.0f + 0x1p-11f + 0x1p-20f, PAR_FP16), 0x3c01);
    assert_int_equal(reference_narrow(1.0f + 0x1p-8f, PAR_BF16), 0x3f80);
    assert_int_equal(reference_narrow(1.0f + 0x3p-8f, PAR_BF16), 0x3f82);
    assert_int_equal(reference_narrow(0x1p-25f, PAR_FP16), 0x0000); /* half of the smallest */
    assert_int_equal(reference_narrow(0x1.8p-24f, PAR_FP16), 0x0002);
    assert_int_equal(reference_narrow(0x1.ffcp-15f, PAR_FP16), 0x0400); /* a denormal that rounds to a normal */
}

static void test_every_16_bit_value_survives(void **state)
{
    uint32_t bits;
    int dtype;

    (void)state;
    for (dtype = PAR_FP16; dtype <= PAR_BF16; dtype++)
        for (bits = 0; bits < 0x10000; bits++) {
            uint32_t back = reference_narrow(reference_widen(bits, dtype), dtype);
            uint32_t infinity = dtype == PAR_FP16 ? 0x7c00 : 0x7f80;
            if ((bits & 0x7fff) > infinity)
                assert_int_equal(back, 0x7fff);
            else
                assert_int_equal(back, bits);
        }
}

static void test_rounding_agrees_with_the_kernels(void **state)
{
    uint64_t i;

    (void)state;
    for (i = 0; i < 0x100000000u; i += 977) {
        uint32_t bits = (uint32_t)i;
        float f;
        memcpy(&f, &bits, sizeof(f));
        if (isnan(f))
            continue;
        assert_int_equal(reference_narrow(f, PAR_FP16), par_float_to_half(f));
        assert_int_equal(reference_narrow(f, PAR_BF16), par_bf16_pair(f, f) & 0xffff);
        assert_int_equal(reference_narrow(f, PAR_FP32), bits);
    }
}

static void test_minus_zero_stays_and_cancellation_gives_plus_zero(void **state)
{
    uint16_t zero[1] = {0x8000}, one[1] = {0x3f80}, minus_one[1] = {0xbf80}, out[1];
    const void *zeros[5] = {zero, zero, zero, zero, zero}, *pair[3] = {one, minus_one, zero};

    (void)state;
    reference_sum(out, zeros, 5, PAR_BF16, 0, 1);
    assert_int_equal(out[0], 0x8000);
    reference_sum(out, pair, 3, PAR_BF16, 0, 1);
    assert_int_equal(out[0], 0x0000);
}

/* In fp32, 2^24 + 1 is 2^24: four ranks in order lose three ones, five ranks lose two, the other two come as a pair. */
static void test_the_tree_is_in_order_to_four_and_in_halves_above(void **state)
{
    float big[1] = {0x1p24f}, one[1] = {1.0f}, out[1];
    const void *in[8] = {big, one, one, one, one, one, one, one};

    (void)state;
    reference_sum(out, in, 4, PAR_FP32, 0, 1);
    assert_true(out[0] == 0x1p24f);
    reference_sum(out, in, 5, PAR_FP32, 0, 1);
    assert_true(out[0] == 0x1p24f + 2.0f);
    reference_sum(out, in, 8, PAR_FP32, 0, 1);
    assert_true(out[0] == 0x1p24f + 4.0f);
}

enum { ELEMENTS = 40000 };

static void test_sums_agree_with_the_kernels(void **state)
{
    static uint32_t in[8][ELEMENTS], expected[ELEMENTS];
    const void *pointers[8];
    int dtype, world, r;
    size_t i, elements, vecs;

    (void)state;
    for (dtype = 0; dtype < PAR_DTYPES; dtype++) {
        elements = dtype == PAR_FP32 ? ELEMENTS : 2 * ELEMENTS;
        vecs = sizeof(in[0]) / 16;
        for (r = 0; r < 8; r++) {
            pattern_fill(in[r], 7, r, dtype, 0, elements);
            pointers[r] = in[r];
        }
        for (world = 2; world <= 8; world++) {
            reference_sum(expected, pointers, world, dtype, 0, elements);
            for (i = 0; i < vecs; i++) {
                par_vec part[PAR_MAX_WORLD], sum;
                memset(part, 0, sizeof(part));
                for (r = 0; r < world; r++)
                    memcpy(&part[r], &in[r][4 * i], 16);
                for (r = 0; r < world; r++)
                    part[r] = par_clean(part[r], dtype);
                sum = par_sum(part, (uint32_t)world, dtype);
                assert_memory_equal(&sum, &expected[4 * i], 16);
            }
        }
    }
}

static void test_patterns_differ_by_rank_and_place_and_hold_the_special_values(void **state)
{
    int all_ones = 0, infinities = 0, denormals = 0, minus_zeros = 0, same = 0;
    uint64_t i;

    (void)state;
    for (i = 0; i < 20000; i++) {
        uint32_t a = pattern_element(1, 0, i, PAR_BF16), b = pattern_element(1, 1, i, PAR_BF16);
        same += a == b;
        all_ones += a == 0xffff;
        infinities += (a & 0x7fff) == 0x7f80;
        denormals += (a & 0x7f80) == 0 && (a & 0x7f) != 0;
        minus_zeros += a == 0x8000;
        assert_int_equal(a, pattern_element(1, 0, i, PAR_BF16));
    }
    assert_in_range(all_ones, 50, 500);
    assert_in_range(infinities, 50, 500);
    assert_in_range(denormals, 50, 500);
    assert_in_range(minus_zeros, 50, 500);
    assert_in_range(same, 0, 1000);
    assert_int_not_equal(pattern_element(1, 0, 5, PAR_FP32), pattern_element(2, 0, 5, PAR_FP32));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_values_that_everybody_knows),
        cmocka_unit_test(test_ties_go_to_even),
        cmocka_unit_test(test_every_16_bit_value_survives),
        cmocka_unit_test(test_rounding_agrees_with_the_kernels),
        cmocka_unit_test(test_minus_zero_stays_and_cancellation_gives_plus_zero),
        cmocka_unit_test(test_the_tree_is_in_order_to_four_and_in_halves_above),
        cmocka_unit_test(test_sums_agree_with_the_kernels),
        cmocka_unit_test(test_patterns_differ_by_rank_and_place_and_hold_the_special_values),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
