/*
 * The verdict as a truth table, and what a change of each bound fact does. No GPU.
 */
#include "base/err.h"
#include "verify/verdict/bound.h"
#include "verify/verdict/profile.h"
#include "verify/verdict/sets.h"
#include "verify/verdict/verdict.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <string.h>

/* A check may also not be there at all. */
enum { ABSENT = 5, STATES = 6 };

struct slot {
    const char *id;
    int state;
};

static const struct sp_subjects two = {.count = 2, .number = {0, 1}, .uuid = {"GPU-a", "GPU-b"}};

static void add(struct sp_checks *checks, const char *id, int state)
{
    struct sp_check *check;

    if (state == ABSENT)
        return;
    assert_int_equal(sp_check_new(&check, checks, 2, "%s", id), SP_OK);
    check->status = (enum sp_check_status)state;
}

static json_t *judge(json_t **pairs, const struct slot *slots, size_t count, const struct sp_subjects *gpus)
{
    struct sp_checks checks = {NULL, 0};
    json_t *results;

    for (size_t i = 0; i < count; i++)
        add(&checks, slots[i].id, slots[i].state);
    assert_int_equal(sp_verdict_judge(&results, pairs, &checks, gpus), SP_OK);
    sp_checks_free(&checks);
    return results;
}

static const char *result_of(const json_t *results, const char *backend, int world)
{
    const json_t *item;
    size_t i;

    json_array_foreach((json_t *)(uintptr_t)results, i,
                       item) if (strcmp(json_string_value(json_object_get(item, "backend")), backend) == 0 &&
                                 json_integer_value(json_object_get(item, "world")) ==
                                     world) return json_string_value(json_object_get(item, "result"));
    return "none";
}

/* Everything that a backend needs on GPUs 0 and 1; the first `controls` are the control. */
enum { CONTROLS = 3, SLOTS_MAX = 12 };

static size_t need(struct slot *slots, const char *backend)
{
    static char ids[16][SP_CHECK_ID];
    const char *const *kinds = sp_backend_needs(backend);
    size_t count = 0;

    (void)snprintf(ids[count++], SP_CHECK_ID, "grant.processes");
    (void)snprintf(ids[count++], SP_CHECK_ID, "control.0");
    (void)snprintf(ids[count++], SP_CHECK_ID, "control.1");
    for (size_t k = 0; kinds[k]; k++) {
        (void)snprintf(ids[count++], SP_CHECK_ID, "%s.0-1", kinds[k]);
        (void)snprintf(ids[count++], SP_CHECK_ID, "%s.1-0", kinds[k]);
    }
    (void)snprintf(ids[count++], SP_CHECK_ID, "kernels.%s.0-1", backend);
    for (size_t i = 0; i < count; i++)
        slots[i] = (struct slot){ids[i], SP_CHECK_PASS};
    return count;
}

/* What must come out, said without looking at how it is made: the control first; then any FAIL; then anything else that
 * did not pass. */
static const char *oracle(const struct slot *slots, size_t count)
{
    bool sound = true, failed = false, all = true;

    if (slots[count - 1].state == ABSENT)
        return "none"; /* no kernels were run: there is nothing to say */
    for (size_t i = 0; i < count; i++) {
        sound = sound && (i >= CONTROLS || slots[i].state == SP_CHECK_PASS);
        failed = failed || slots[i].state == SP_CHECK_FAIL;
        all = all && slots[i].state == SP_CHECK_PASS;
    }
    return !sound ? "INCONCLUSIVE" : failed ? "FAIL" : all ? "PASS" : "INCONCLUSIVE";
}

static void expect(const char *backend, const struct slot *slots, size_t count)
{
    json_t *pairs, *results = judge(&pairs, slots, count, &two);

    assert_string_equal(result_of(results, backend, 2), oracle(slots, count));
    json_decref(results);
    json_decref(pairs);
}

/* Every pair of needed checks in every pair of states; all others pass. */
static void only_all_pass_is_a_pass(void **state)
{
    struct slot slots[SLOTS_MAX];

    (void)state;
    for (size_t b = 0; sp_backends[b]; b++) {
        const size_t count = need(slots, sp_backends[b]);

        for (size_t i = 0; i < count; i++)
            for (size_t k = 0; k < i; k++)
                for (int pair = 0; pair < STATES * STATES; pair++) {
                    slots[i].state = pair / STATES;
                    slots[k].state = pair % STATES;
                    expect(sp_backends[b], slots, count);
                    slots[i].state = slots[k].state = SP_CHECK_PASS;
                }
    }
}

/* Host has the fewest needs: every combination of all of them, each as passed, failed, skipped or not run. */
static void every_combination_of_host(void **state)
{
    static const int states[] = {SP_CHECK_PASS, SP_CHECK_FAIL, SP_CHECK_INCONCLUSIVE, ABSENT};
    struct slot slots[SLOTS_MAX];
    const size_t count = need(slots, "host");

    (void)state;
    for (unsigned n = 0; n < 1u << (2 * count); n++) {
        for (size_t i = 0; i < count; i++)
            slots[i].state = states[n >> (2 * i) & 3u];
        expect("host", slots, count);
    }
}

/* Loads that are broken say nothing about stores and host memory. */
static void a_backend_is_not_judged_by_anothers_checks(void **state)
{
    struct slot all[3 * SLOTS_MAX];
    struct slot slots[SLOTS_MAX];
    char ids[3 * SLOTS_MAX][SP_CHECK_ID];
    json_t *pairs, *results;
    size_t used = 0;

    (void)state;
    for (size_t b = 0; sp_backends[b]; b++) {
        const size_t count = need(slots, sp_backends[b]);

        for (size_t i = b == 0 ? 0 : CONTROLS; i < count; i++) {
            (void)snprintf(ids[used], SP_CHECK_ID, "%s", slots[i].id);
            all[used] = (struct slot){ids[used], strncmp(slots[i].id, "load", 4) == 0 ? SP_CHECK_FAIL : SP_CHECK_PASS};
            used++;
        }
    }
    results = judge(&pairs, all, used, &two);
    assert_string_equal(result_of(results, "pull", 2), "FAIL");
    assert_string_equal(result_of(results, "push", 2), "PASS");
    assert_string_equal(result_of(results, "host", 2), "PASS");
    assert_int_equal(json_array_size(json_object_get(json_array_get(pairs, 0), "failed")), 0); /* push */
    assert_int_equal(json_array_size(json_object_get(json_array_get(pairs, 1), "failed")), 2); /* pull */
    json_decref(results);
    json_decref(pairs);
}

static void expect_needed_once_run(const char *id)
{
    struct slot slots[SLOTS_MAX + 1];
    const size_t count = need(slots, "push");

    for (int is = 0; is < STATES; is++) {
        json_t *pairs, *results;

        slots[count] = (struct slot){id, is};
        results = judge(&pairs, slots, count + 1, &two);
        assert_string_equal(result_of(results, "push", 2), is == SP_CHECK_PASS || is == ABSENT ? "PASS"
                                                           : is == SP_CHECK_FAIL               ? "FAIL"
                                                                                               : "INCONCLUSIVE");
        json_decref(results);
        json_decref(pairs);
    }
}

static void a_soak_or_a_death_that_was_run_is_needed(void **state)
{
    (void)state;
    expect_needed_once_run("soak.push.0-1");
    expect_needed_once_run("death.push.0-1");
    expect_needed_once_run("death.push.0-1-2-3"); /* of the largest set, for the smaller ones, too */
}

/* NCCL without peer access, in every state, beside every needed check in every state: wrong or undecided is the
 * machine, none or one that cannot start is nothing. */
static void nccl_is_a_witness_that_may_be_absent(void **state)
{
    struct slot slots[SLOTS_MAX + 2];
    const size_t count = need(slots, "pull");

    (void)state;
    for (size_t i = 0; i < count; i++)
        for (int pair = 0; pair < STATES * STATES; pair++) {
            const int witness = pair % STATES;
            const bool doubts = witness == SP_CHECK_FAIL || witness == SP_CHECK_INCONCLUSIVE;
            json_t *pairs, *results;

            slots[i].state = pair / STATES;
            slots[count] = (struct slot){"nccl.host", witness};
            slots[count + 1] = (struct slot){"nccl.default", SP_CHECK_FAIL}; /* says nothing about us */
            results = judge(&pairs, slots, count + 2, &two);
            assert_string_equal(result_of(results, "pull", 2), slots[count - 1].state == ABSENT ? "none"
                                                               : doubts                         ? "INCONCLUSIVE"
                                                                                                : oracle(slots, count));
            slots[i].state = SP_CHECK_PASS;
            json_decref(results);
            json_decref(pairs);
        }
}

/* Whatever else passed: a program that ends badly without a reason proves nothing. */
static void a_bad_end_without_a_reason_proves_nothing(void **state)
{
    static const int bad[] = {SP_CHECK_FAIL, SP_CHECK_INCONCLUSIVE};

    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        for (size_t k = 0; sp_backends[k]; k++) {
            struct slot slots[SLOTS_MAX + 1];
            const size_t count = need(slots, sp_backends[k]);
            json_t *pairs, *results;

            slots[count] = (struct slot){"transfers.end", bad[i]};
            results = judge(&pairs, slots, count + 1, &two);
            assert_string_equal(result_of(results, sp_backends[k], 2), "INCONCLUSIVE");
            json_decref(results);
            json_decref(pairs);
        }
}

/* A pair of a GPU that errs by itself is no pair that passed. */
static void a_sick_gpu_has_no_sound_pair(void **state)
{
    struct slot slots[SLOTS_MAX];
    const size_t count = need(slots, "host");

    (void)state;
    for (int is = 0; is < STATES; is++) {
        json_t *pairs, *results;

        slots[1].state = is; /* control.0 */
        results = judge(&pairs, slots, count, &two);
        assert_int_equal(json_array_size(json_object_get(json_array_get(pairs, 2), "failed")),
                         is == SP_CHECK_PASS ? 0 : 2);
        json_decref(results);
        json_decref(pairs);
    }
}

/* A pair outside the set does not touch it; the pair is listed all the same. */
static void a_broken_pair_fails_the_sets_that_hold_it(void **state)
{
    const struct sp_subjects gpus = {.count = 3, .number = {0, 2, 5}, .uuid = {"GPU-a", "GPU-b", "GPU-c"}};
    struct sp_checks checks = {NULL, 0};
    static const size_t number[] = {0, 2, 5};
    char id[SP_CHECK_ID];
    json_t *results, *pairs, *failed;

    (void)state;
    add(&checks, "grant.processes", SP_CHECK_PASS);
    for (size_t a = 0; a < 3; a++) {
        (void)snprintf(id, sizeof id, "control.%zu", number[a]);
        add(&checks, id, SP_CHECK_PASS);
        for (size_t b = 0; b < 3; b++)
            for (size_t k = 0; a != b && k < 3; k++) {
                (void)snprintf(id, sizeof id, "%s.%zu-%zu", sp_backend_needs("push")[k], number[a], number[b]);
                add(&checks, id, a == 2 && b == 1 && k == 0 ? SP_CHECK_FAIL : SP_CHECK_PASS);
            }
    }
    add(&checks, "kernels.push.0-2", SP_CHECK_PASS);
    add(&checks, "kernels.push.0-2-5", SP_CHECK_PASS);
    add(&checks, "kernels.push.0-7", SP_CHECK_PASS); /* a GPU that nobody spoke of */
    add(&checks, "kernels.push.0-0", SP_CHECK_PASS);
    add(&checks, "kernels.warp.0-2", SP_CHECK_PASS);
    assert_int_equal(sp_verdict_judge(&results, &pairs, &checks, &gpus), SP_OK);
    assert_int_equal(json_array_size(results), 2);
    assert_string_equal(result_of(results, "push", 2), "PASS");
    assert_string_equal(result_of(results, "push", 3), "FAIL");
    failed = json_object_get(json_array_get(pairs, 0), "failed");
    assert_int_equal(json_array_size(failed), 1);
    assert_string_equal(json_string_value(json_array_get(json_array_get(failed, 0), 0)), "GPU-c");
    assert_string_equal(json_string_value(json_array_get(json_array_get(failed, 0), 1)), "GPU-b");
    json_decref(results);
    json_decref(pairs);
    sp_checks_free(&checks);
}

/* With 0-1 and 2-3 broken, two GPUs are 0 and 2; three there are none of. */
static void kernels_are_tried_where_transfers_passed(void **state)
{
    const struct sp_subjects gpus = {.count = 4, .number = {0, 1, 2, 3}, .uuid = {"GPU-a", "GPU-b", "GPU-c", "GPU-d"}};
    struct sp_checks checks = {NULL, 0};
    char id[SP_CHECK_ID], name[SP_CHECK_ID];
    struct sp_set set;

    (void)state;
    for (size_t a = 0; a < 4; a++)
        for (size_t b = 0; b < 4; b++)
            for (size_t k = 0; a != b && k < 2; k++) {
                (void)snprintf(id, sizeof id, "%s.%zu-%zu", sp_backend_needs("host")[k], a, b);
                add(&checks, id, a / 2 == b / 2 && a < b && k == 1 ? SP_CHECK_FAIL : SP_CHECK_PASS);
            }
    assert_true(sp_set_find(&set, &checks, &gpus, "host", 2));
    sp_set_name(name, &gpus, &set);
    assert_string_equal(name, "0-2");
    assert_false(sp_set_find(&set, &checks, &gpus, "host", 3));
    sp_set_name(name, &gpus, &set);
    assert_string_equal(name, "0-1-2");
    sp_checks_free(&checks);
}

/* A low level that finds nothing leaves an earlier proof alone; one that was kept from running does, too. */
static void which_runs_replace_a_verdict(void **state)
{
    struct sp_checks checks = {NULL, 0};

    (void)state;
    add(&checks, "grant.processes", SP_CHECK_PASS);
    assert_false(sp_verdict_counts(&checks, 1));
    assert_true(sp_verdict_counts(&checks, 3));
    checks.item[0]->status = SP_CHECK_INCONCLUSIVE;
    assert_false(sp_verdict_counts(&checks, 3));
    checks.item[0]->status = SP_CHECK_PASS;
    add(&checks, "load.0-1", SP_CHECK_FAIL);
    assert_true(sp_verdict_counts(&checks, 2));
    checks.item[1]->status = SP_CHECK_PASS;
    assert_false(sp_verdict_counts(&checks, 2));
    add(&checks, "control.1", SP_CHECK_INCONCLUSIVE);
    assert_true(sp_verdict_counts(&checks, 2)); /* a machine in doubt has no proof, whatever the level */
    sp_checks_free(&checks);
}

/* ---- freshness ---- */

static json_t *table(void)
{
    return json_pack("{s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:s}", "driver", "580.95.05", "driver build",
                     "unreadable", "gpu 0", "GPU-a", "gpu 1", "GPU-b", "link 0", "x16, to 32.0 GT/s PCIe", "acs 0",
                     "00", "iommu 0", "identity", "libpar.so", "aa", "patch sglang", "1");
}

static void expect_change(const char *key, const char *value, const char *sentence)
{
    json_t *was = table(), *is = table(), *changes;

    if (value)
        json_object_set_new(is, key, json_string(value));
    else
        json_object_del(is, key);
    assert_int_equal(sp_bound_changes(&changes, was, is), SP_OK);
    assert_int_equal(json_array_size(changes), sentence ? 1 : 0);
    if (sentence)
        assert_string_equal(json_string_value(json_array_get(changes, 0)), sentence);
    json_decref(was);
    json_decref(is);
    json_decref(changes);
}

static void every_change_alone_is_named(void **state)
{
    (void)state;
    expect_change("driver", "580.95.06", "driver was 580.95.05, is 580.95.06");
    expect_change("gpu 1", "GPU-c", "gpu 1 was GPU-b, is GPU-c");
    expect_change("link 0", "x8, to 32.0 GT/s PCIe", "link 0 was x16, to 32.0 GT/s PCIe, is x8, to 32.0 GT/s PCIe");
    expect_change("acs 0", "1d", "acs 0 was 00, is 1d");
    expect_change("iommu 0", "DMA-FQ", "iommu 0 was identity, is DMA-FQ");
    expect_change("libpar.so", "bb", "libpar.so was aa, is bb");
    expect_change("libpar.so", NULL, "libpar.so was aa, is absent");
    expect_change("patch sglang", "2", "patch sglang was 1, is 2");
    expect_change("gpu 2", "GPU-d", "gpu 2 was absent, is GPU-d");
    expect_change("acs 0", "unreadable", NULL); /* a user who may not look learns nothing new */
    expect_change("driver build", "0A1B", NULL);
}

static void the_order_of_gpus_is_a_change(void **state)
{
    json_t *was = table(), *is = table(), *changes;

    (void)state;
    json_object_set_new(is, "gpu 0", json_string("GPU-b"));
    json_object_set_new(is, "gpu 1", json_string("GPU-a"));
    assert_int_equal(sp_bound_changes(&changes, was, is), SP_OK);
    assert_int_equal(json_array_size(changes), 2);
    json_decref(was);
    json_decref(is);
    json_decref(changes);
}

/* ---- profile ---- */

static bool wins(const char *algorithm, double us, double stock)
{
    json_t *profile = json_pack("{s:[{s:[{s:s, s:f, s:f}]}]}", "tables", "entries", "algorithm", algorithm, "us", us,
                                "stock_us", stock);
    const bool is = sp_serve_best(profile, NULL) == SP_SERVED_FASTER;

    json_decref(profile);
    return is;
}

static void a_profile_must_win_somewhere(void **state)
{
    json_t *none = json_object(),
           *bare = json_pack("{s:[{s:[{s:s}]}]}", "tables", "entries", "algorithm", "host-one-shot");

    (void)state;
    assert_true(wins("host-one-shot", 6, 15));
    assert_false(wins("host-one-shot", 15, 15));
    assert_false(wins("stock", 6, 15));
    assert_int_equal(sp_serve_best(none, NULL), SP_SERVED_UNMEASURED);
    assert_int_equal(sp_serve_best(bare, NULL), SP_SERVED_AS_STOCK); /* not measured */
    json_decref(none);
    json_decref(bare);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_all_pass_is_a_pass),
        cmocka_unit_test(every_combination_of_host),
        cmocka_unit_test(a_backend_is_not_judged_by_anothers_checks),
        cmocka_unit_test(a_soak_or_a_death_that_was_run_is_needed),
        cmocka_unit_test(nccl_is_a_witness_that_may_be_absent),
        cmocka_unit_test(a_bad_end_without_a_reason_proves_nothing),
        cmocka_unit_test(a_sick_gpu_has_no_sound_pair),
        cmocka_unit_test(a_broken_pair_fails_the_sets_that_hold_it),
        cmocka_unit_test(kernels_are_tried_where_transfers_passed),
        cmocka_unit_test(which_runs_replace_a_verdict),
        cmocka_unit_test(every_change_alone_is_named),
        cmocka_unit_test(the_order_of_gpus_is_a_change),
        cmocka_unit_test(a_profile_must_win_somewhere),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
