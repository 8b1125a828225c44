/* What a measured rate says of the links, as a table: no machine here has a slow one. */
#include "verify/ladder/rates.h"
#include "verify/machine/topology.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

/* GPUs 2 and 5: x16 and x8 at 32 GT/s, which carry 63 and 31.5 GB/s. */
static struct sp_topo_gpu gpus[] = {
    {.number = 2, .link = {.speed = 2.5, .possible_speed = 32, .width = 16}},
    {.number = 5, .link = {.speed = 32, .possible_speed = 32, .width = 8}},
};
static const struct sp_rec_pair *unknown[4];
static struct sp_topology topology;
static struct sp_ladder ladder;

static int begin(void **state)
{
    (void)state;
    topology = (struct sp_topology){.gpu = gpus, .gpu_count = 2, .pair = unknown};
    ladder = (struct sp_ladder){.topology = &topology};
    return 0;
}

static int end(void **state)
{
    (void)state;
    sp_checks_free(&ladder.checks);
    return 0;
}

static struct sp_check *add(const char *id, double gbs)
{
    struct sp_check *check;

    assert_int_equal(sp_check_new(&check, &ladder.checks, 2, "%s", id), 0);
    sp_check_numbers(check, 1, gbs, "GB/s");
    check->status = SP_CHECK_PASS;
    return check;
}

static void expect(const char *id, double gbs, enum sp_check_status status, const char *remedy)
{
    struct sp_check *check = add(id, gbs);

    sp_rate_judge(&ladder, check);
    if (check->status != status || !check->remedy != !remedy ||
        (remedy && strncmp(check->remedy, remedy, strlen(remedy)) != 0))
        fail_msg("%s at %.1f GB/s: %s, %s", id, gbs, sp_check_status_name(check->status),
                 check->remedy ? check->remedy : "no remedy");
}

static void the_narrower_link_of_a_pair_decides(void **state)
{
    (void)state;
    expect("host-store-rate.2", 32, SP_CHECK_PASS, NULL);
    expect("host-load-rate.2", 31, SP_CHECK_WARN, "link.slow");
    expect("host-load-rate.5", 16, SP_CHECK_PASS, NULL);
    expect("store-rate.2-5", 16, SP_CHECK_PASS, NULL);
    expect("store-rate.5-2", 15, SP_CHECK_WARN, "link.slow");
}

static void loads_far_below_stores_are_staged(void **state)
{
    (void)state;
    (void)add("store-rate.2-5", 28);
    expect("load-rate.2-5", 5.5, SP_CHECK_WARN, "p2p.staging-suspect");
    expect("load-rate.2-5", 6, SP_CHECK_WARN, "link.slow");
    expect("load-rate.2-5", 16, SP_CHECK_PASS, NULL);
    expect("load-rate.5-2", 1, SP_CHECK_WARN, "link.slow");
}

static void what_fell_behind_others_is_named_all_the_same(void **state)
{
    struct sp_check *check = add("store-rate.2-5", 28);

    (void)state;
    check = add("load-rate.2-5", 5);
    check->status = SP_CHECK_WARN;
    sp_rate_judge(&ladder, check);
    assert_int_equal(check->status, SP_CHECK_WARN);
    assert_int_equal(strncmp(check->remedy, "p2p.staging-suspect", 19), 0);
}

static void what_is_no_rate_is_left_alone(void **state)
{
    struct sp_check *check;

    (void)state;
    expect("collapse.2-5", 1, SP_CHECK_PASS, NULL);
    expect("host-latency.2-5", 1, SP_CHECK_PASS, NULL);
    expect("store-rate", 1, SP_CHECK_PASS, NULL);
    expect("store-rate.7-8", 1, SP_CHECK_PASS, NULL);
    check = add("store-rate.2-5", 1);
    check->status = SP_CHECK_FAIL;
    sp_rate_judge(&ladder, check);
    assert_int_equal(check->status, SP_CHECK_FAIL);
}

static void links_that_say_nothing_judge_nothing(void **state)
{
    const struct sp_rec_pair joined = {.nvlink = "OK"};
    const struct sp_rec_pair *pairs[] = {NULL, &joined, &joined, NULL};

    (void)state;
    gpus[1].link.width = -1;
    expect("store-rate.2-5", 1, SP_CHECK_PASS, NULL);
    gpus[1].link.width = 8;
    topology.guest = true;
    expect("host-load-rate.2", 1, SP_CHECK_PASS, NULL);
    topology.guest = false;
    topology.pair = pairs;
    expect("store-rate.2-5", 1, SP_CHECK_PASS, NULL);
    expect("host-load-rate.2", 1, SP_CHECK_WARN, "link.slow");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(the_narrower_link_of_a_pair_decides, begin, end),
        cmocka_unit_test_setup_teardown(loads_far_below_stores_are_staged, begin, end),
        cmocka_unit_test_setup_teardown(what_fell_behind_others_is_named_all_the_same, begin, end),
        cmocka_unit_test_setup_teardown(what_is_no_rate_is_left_alone, begin, end),
        cmocka_unit_test_setup_teardown(links_that_say_nothing_judge_nothing, begin, end),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
