/* What perf measures and for how long: does the default plan hold what bench needs, and does a budget hold? */
#include "kernels/gpu/plan.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <math.h>

static options defaults(void)
{
    options o = {.nccl = 1, .calls = 100, .iterations = 20};

    return o;
}

static int count(const plan *p, int dtype)
{
    int i, n = 0;

    for (i = 0; i < p->points; i++)
        n += p->point[i].dtype == dtype;
    return n;
}

static void test_a_budget_measures_all_types_both_worlds_and_nccl_twice(void **state)
{
    options o = defaults();
    plan p;

    (void)state;
    o.budget_s = 75;
    assert_int_equal(plan_make(&p, &o, 4, 1, 0), 0);
    assert_int_equal(count(&p, PAR_BF16), 14);
    assert_int_equal(count(&p, PAR_FP16), 3);
    assert_int_equal(count(&p, PAR_FP32), 3);
    assert_int_equal(p.point[0].dtype, PAR_BF16);
    assert_int_equal(p.point[0].bytes, 2048);
    assert_int_equal(p.point[13].bytes, 16 << 20);
    assert_int_equal(p.groups, 4);
    assert_int_equal(p.group[0].world, 4);
    assert_true(p.group[0].no_p2p && !p.group[1].no_p2p);
    assert_int_equal(p.group[3].world, 2);
    assert_true(p.eager && !p.in_place);
    assert_true(p.seconds == 75);
}

static void test_nccl_without_p2p_is_left_out_where_it_is_no_other(void **state)
{
    options o = defaults();
    plan p;

    (void)state;
    assert_int_equal(plan_make(&p, &o, 2, 0, 0), 0);
    assert_int_equal(p.groups, 1);
    assert_int_equal(plan_make(&p, &o, 2, 1, 1), 0);
    assert_int_equal(p.groups, 1);
    o.nccl = 0;
    assert_int_equal(plan_make(&p, &o, 2, 1, 0), 0);
    assert_int_equal(p.groups, 1);
}

static void test_without_a_budget_everything_is_measured_for_as_long_as_it_takes(void **state)
{
    options o = defaults();
    plan p;

    (void)state;
    assert_int_equal(plan_make(&p, &o, 4, 1, 0), 0);
    assert_true(isinf(p.seconds) && p.in_place && p.eager);
    assert_int_equal(p.points, 14);
    assert_int_equal(p.groups, 2);
}

static void test_quick_is_little(void **state)
{
    options o = defaults();
    plan p;

    (void)state;
    o.quick = 1;
    o.budget_s = 12;
    assert_int_equal(plan_make(&p, &o, 2, 1, 0), 0);
    assert_int_equal(p.points, 6);
    assert_int_equal(p.groups, 1);
    assert_false(p.eager);
}

static void test_what_was_named_is_measured_and_nothing_else(void **state)
{
    options o = defaults();
    plan p;

    (void)state;
    o.budget_s = 10;
    o.sizes = (size_list){{4098, 3}, 2};
    o.dtypes = 1u << PAR_FP32;
    o.worlds = 1u << 3 | 1u << 8;
    assert_int_equal(plan_make(&p, &o, 4, 1, 0), 0);
    assert_int_equal(p.points, 1); /* 3 bytes are no element */
    assert_int_equal(p.point[0].bytes, 4096);
    assert_int_equal(p.groups, 2);
    assert_int_equal(p.group[0].world, 3);
    o.worlds = 1u << 8;
    assert_int_equal(plan_make(&p, &o, 4, 1, 0), CODE_CANNOT);
}

static void test_long_calls_are_fewer_in_a_graph(void **state)
{
    (void)state;
    assert_int_equal(plan_calls(100, 2048), 100);
    assert_int_equal(plan_calls(100, 262144), 100);
    assert_int_equal(plan_calls(100, 1048576), 25);
    assert_int_equal(plan_calls(100, 16 << 20), 10);
    assert_int_equal(plan_calls(3, 8192), 3);
    assert_int_equal(plan_calls(3, 16 << 20), 1);
}

static void test_replays_fit_the_time(void **state)
{
    (void)state;
    assert_int_equal(plan_replays(1, 1000, 20), 20);
    assert_int_equal(plan_replays(0.01, 1000, 20), 10);
    assert_int_equal(plan_replays(0, 1000, 20), 3);
    assert_int_equal(plan_replays(INFINITY, 1000, 20), 20);
    assert_int_equal(plan_replays(1, 0, 20), 20);
}

/* A run on a clock of its own: every point takes `factor` times what it may, but a fixed time at least. */
static double simulate(double budget, int points, double factor, double least, int *skipped)
{
    pace p;
    double now = 100;
    int i;

    *skipped = 0;
    pace_begin(&p, now, budget, points);
    for (i = 0; i < points; i++) {
        double share = pace_share(&p, now, 1);
        *skipped += share <= 0;
        if (share > 0)
            now += share * factor > least ? share * factor : least;
        pace_spend(&p, 1);
    }
    return now - 100;
}

static void test_a_budget_is_kept_whatever_a_point_costs(void **state)
{
    int skipped;

    (void)state;
    assert_true(fabs(simulate(60, 40, 1.0, 0, &skipped) - 60) < 0.001);
    assert_int_equal(skipped, 0);
    assert_true(simulate(60, 40, 0.3, 0, &skipped) < 60);
    assert_int_equal(skipped, 0);
    assert_true(simulate(60, 40, 1.3, 0, &skipped) < 61);     /* dearer at first, so the rest gets less */
    assert_true(simulate(10, 40, 1.0, 0.5, &skipped) < 10.5); /* what has begun is finished */
    assert_int_equal(skipped, 20);
    assert_true(isinf(simulate(INFINITY, 2, 1.0, 0, &skipped)));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_budget_measures_all_types_both_worlds_and_nccl_twice),
        cmocka_unit_test(test_nccl_without_p2p_is_left_out_where_it_is_no_other),
        cmocka_unit_test(test_without_a_budget_everything_is_measured_for_as_long_as_it_takes),
        cmocka_unit_test(test_quick_is_little),
        cmocka_unit_test(test_what_was_named_is_measured_and_nothing_else),
        cmocka_unit_test(test_long_calls_are_fewer_in_a_graph),
        cmocka_unit_test(test_replays_fit_the_time),
        cmocka_unit_test(test_a_budget_is_kept_whatever_a_point_costs),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
