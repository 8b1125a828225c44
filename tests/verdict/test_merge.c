/*
 * What one run makes of the verdict that there is: every combination of what was and what the run says, of how its GPUs
 * lie to those of before, and of level and machine, against an oracle that is said in other words. No GPU.
 */
#include "base/err.h"
#include "verify/verdict/merge.h"
#include "verify/verdict/verdict.h"
#include "verify/verdict/withdraw.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

static const char *const outcomes[] = {"PASS", "FAIL", "INCONCLUSIVE"};

enum { OUTCOMES = 3, GPUS = 4 };

/* A bit for each of four GPUs. */
static json_t *set(unsigned bits)
{
    json_t *list = json_array();

    for (unsigned i = 0; i < GPUS; i++)
        if (bits >> i & 1u)
            (void)json_array_append_new(list, json_sprintf("GPU-%u", i));
    return list;
}

static int size_of(unsigned bits)
{
    return __builtin_popcount(bits);
}

static json_t *bound(const char *driver)
{
    return json_pack("{s:s, s:s, s:s, s:s}", "driver", driver, "gpu 0", "GPU-0", "acs 0", "unreadable", "libpar.so",
                     "aa");
}

static json_t *result(const char *backend, unsigned gpus, const char *is)
{
    return json_pack("{s:s, s:i, s:o, s:s, s:s*}", "backend", backend, "world", size_of(gpus), "gpus", set(gpus),
                     "result", is, "reason", strcmp(is, "PASS") == 0 ? NULL : "why");
}

static json_t *pairs(const char *backend, unsigned gpus, json_t *failed)
{
    return json_pack("{s:s, s:o, s:o}", "backend", backend, "gpus", set(gpus), "failed", failed);
}

static json_t *no_pair(void)
{
    return json_array();
}

static json_t *one_pair(void)
{
    return json_pack("[[s, s]]", "GPU-0", "GPU-1");
}

/* A verdict about one backend on one set; is NULL: no result of it. */
static json_t *verdict(int level, const char *driver, const char *backend, unsigned gpus, const char *is,
                       json_t *failed)
{
    json_t *results = json_array();

    if (is)
        (void)json_array_append_new(results, result(backend, gpus, is));
    return json_pack("{s:s, s:i, s:o, s:o, s:[o]}", "schema", SP_VERDICT_SCHEMA, "level", level, "bound", bound(driver),
                     "results", results, "pairs", pairs(backend, gpus, failed));
}

static const char *found(const json_t *merged, const char *backend, unsigned gpus)
{
    json_t *wanted = set(gpus);
    const char *is = "none";
    const json_t *item;
    size_t i;

    json_array_foreach(json_object_get(merged, "results"), i, item)
    {
        if (strcmp(json_string_value(json_object_get(item, "backend")), backend) != 0 ||
            !json_equal(json_object_get(item, "gpus"), wanted))
            continue;
        assert_string_equal(is, "none"); /* one result for a set */
        is = json_string_value(json_object_get(item, "result"));
        assert_int_equal(json_is_string(json_object_get(item, "reason")), strcmp(is, "PASS") != 0);
    }
    json_decref(wanted);
    return is;
}

/* The pairs that failed in the entry for exactly this set; NULL: there is none. */
static const json_t *failed(const json_t *merged, const char *backend, unsigned gpus)
{
    json_t *wanted = set(gpus);
    const json_t *item, *list = NULL;
    size_t i;

    json_array_foreach(json_object_get(merged, "pairs"), i, item)
    {
        if (strcmp(json_string_value(json_object_get(item, "backend")), backend) == 0 &&
            json_equal(json_object_get(item, "gpus"), wanted))
            list = json_object_get(item, "failed");
    }
    json_decref(wanted);
    return list;
}

/* How many; -1: there is no such entry. */
static int failures(const json_t *merged, const char *backend, unsigned gpus)
{
    const json_t *list = failed(merged, backend, gpus);

    return list ? (int)json_array_size(list) : -1;
}

static json_t *merge(json_t *before, json_t *run)
{
    json_t *out;

    assert_int_equal(sp_verdict_merge(&out, before, run), SP_OK);
    json_decref(before);
    json_decref(run);
    return out;
}

/* ---- the table ---- */

struct given {
    const char *was, *is; /* results; is is NULL below the level that counts */
    unsigned old, now;    /* sets */
    bool pair;            /* the run found 0 to 1 broken */
    bool same;            /* machine, and backend */
};

/* What must become of the earlier result where the run does not replace it. */
static const char *oracle(const struct given *given)
{
    const bool holds_pair = (given->old & 3u) == 3u && (given->now & 3u) == 3u;

    if (!given->same)
        return given->was;
    if (strcmp(given->was, "PASS") != 0)
        return given->was;
    if (given->is && strcmp(given->is, "FAIL") == 0 && (given->now & ~given->old) == 0)
        return "FAIL";
    return given->pair && holds_pair ? "INCONCLUSIVE" : "PASS";
}

static void check_case(const struct given *given)
{
    const int level = given->is ? 3 : 2;
    const bool inside = (given->old & ~given->now) == 0;
    json_t *merged = merge(verdict(3, "580", "push", given->old, given->was, no_pair()),
                           verdict(level, "580", given->same ? "push" : "host", given->now, given->is,
                                   given->pair ? one_pair() : no_pair()));

    if (given->same && inside && given->is)
        assert_string_equal(found(merged, "push", given->old), given->old == given->now ? given->is : "none");
    else
        assert_string_equal(found(merged, "push", given->old), oracle(given));
    if (given->is)
        assert_string_equal(found(merged, given->same ? "push" : "host", given->now), given->is);
    assert_int_equal(json_integer_value(json_object_get(merged, "level")), 3);
    json_decref(merged);
}

static void every_combination(void **state)
{
    struct given given;
    size_t cases = 0;

    (void)state;
    for (unsigned n = 0; n < OUTCOMES * (OUTCOMES + 1) * 4; n++)
        for (given.old = 1; given.old < 1u << GPUS; given.old++)
            for (given.now = 1; given.now < 1u << GPUS; given.now++) {
                given.was = outcomes[n % OUTCOMES];
                given.is = n / OUTCOMES % (OUTCOMES + 1) == OUTCOMES ? NULL : outcomes[n / OUTCOMES % (OUTCOMES + 1)];
                given.pair = n / (OUTCOMES * (OUTCOMES + 1)) & 1u;
                given.same = n / (OUTCOMES * (OUTCOMES + 1)) & 2u;
                if (size_of(given.old) < 2 || size_of(given.now) < 2 || (given.pair && (given.now & 3u) != 3u))
                    continue;
                check_case(&given);
                cases++;
            }
    assert_int_equal(cases, 3960);
}

/* ---- single rules ---- */

static void another_machine_forgets_all(void **state)
{
    json_t *merged =
        merge(verdict(3, "580", "push", 15, "PASS", no_pair()), verdict(3, "590", "push", 3, "PASS", no_pair()));

    (void)state;
    assert_string_equal(found(merged, "push", 15), "none");
    assert_string_equal(found(merged, "push", 3), "PASS");
    assert_int_equal(failures(merged, "push", 15), -1);
    json_decref(merged);
}

static void a_low_level_before_is_nothing(void **state)
{
    json_t *merged =
        merge(verdict(2, "580", "push", 15, "PASS", no_pair()), verdict(3, "580", "push", 3, "PASS", no_pair()));

    (void)state;
    assert_string_equal(found(merged, "push", 15), "none");
    json_decref(merged);
    merged = merge(NULL, verdict(2, "580", "push", 3, NULL, one_pair()));
    assert_int_equal(json_integer_value(json_object_get(merged, "level")), 2);
    json_decref(merged);
}

static void the_level_is_the_lowest_of_what_is_in_it(void **state)
{
    json_t *merged =
        merge(verdict(3, "580", "push", 12, "PASS", no_pair()), verdict(4, "580", "push", 3, "PASS", no_pair()));

    (void)state;
    assert_int_equal(json_integer_value(json_object_get(merged, "level")), 3);
    json_decref(merged);
    merged = merge(verdict(3, "580", "push", 3, "PASS", no_pair()), verdict(4, "580", "push", 3, "PASS", no_pair()));
    assert_int_equal(json_integer_value(json_object_get(merged, "level")), 4);
    json_decref(merged);
}

/* Pairs of a larger set, which speak for its parts, learn of what failed on a smaller one, and forget it never. */
static void a_broken_pair_is_known_to_larger_sets(void **state)
{
    json_t *merged = merge(verdict(3, "580", "push", 15, "PASS", no_pair()),
                           verdict(3, "580", "push", 3, "INCONCLUSIVE", one_pair()));

    (void)state;
    assert_int_equal(failures(merged, "push", 15), 1);
    assert_int_equal(failures(merged, "push", 3), 1);
    merged = merge(merged, verdict(3, "580", "push", 3, "PASS", no_pair()));
    assert_int_equal(failures(merged, "push", 3), 0);
    assert_int_equal(failures(merged, "push", 15), 1);
    assert_string_equal(found(merged, "push", 15), "INCONCLUSIVE");
    assert_string_equal(found(merged, "push", 3), "PASS");
    json_decref(merged);
}

/* Transfers passed and the kernels did not: no pair of that set is spoken for by a larger one. */
static void failed_kernels_taint_their_pairs(void **state)
{
    json_t *merged =
        merge(verdict(3, "580", "host", 15, "PASS", no_pair()), verdict(3, "580", "host", 3, "FAIL", no_pair()));
    json_t *both = json_pack("[[s, s], [s, s]]", "GPU-0", "GPU-1", "GPU-1", "GPU-0");

    (void)state;
    assert_true(json_equal(failed(merged, "host", 15), both));
    json_decref(both);
    json_decref(merged);
}

static void what_root_could_read_is_kept(void **state)
{
    json_t *before = verdict(3, "580", "host", 15, "PASS", no_pair()), *merged;

    (void)state;
    (void)json_object_set_new(json_object_get(before, "bound"), "acs 0", json_string("1d"));
    merged = merge(before, verdict(3, "580", "host", 3, "PASS", no_pair()));
    assert_string_equal(json_string_value(json_object_get(json_object_get(merged, "bound"), "acs 0")), "1d");
    assert_string_equal(found(merged, "host", 15), "PASS");
    json_decref(merged);
}

/* A file that a person edited is no reason to fall over: it is not merged with. */
static void a_damaged_verdict_is_not_merged_with(void **state)
{
    static const char *const damaged[] = {
        "{}",
        "{\"level\": 3, \"results\": [], \"pairs\": [1]}",
        "{\"level\": 3, \"results\": [{\"backend\": \"push\", \"gpus\": [1]}], \"pairs\": []}",
        "{\"level\": 3, \"results\": [], \"pairs\": [{\"backend\": \"push\", \"gpus\": [], \"failed\": [[\"a\"]]}]}",
        "{\"level\": 3, \"results\": [{\"backend\": 1, \"gpus\": []}], \"pairs\": []}",
    };

    (void)state;
    for (size_t i = 0; i < sizeof damaged / sizeof *damaged; i++) {
        json_t *before = json_loads(damaged[i], 0, NULL), *merged;

        assert_non_null(before);
        (void)json_object_set_new(before, "bound", bound("580"));
        merged = merge(before, verdict(3, "580", "push", 3, "PASS", no_pair()));
        assert_int_equal(json_array_size(json_object_get(merged, "results")), 1);
        json_decref(merged);
    }
}

/* ---- SGLang's own kernel ---- */

static const char *const two[] = {"GPU-0", "GPU-1"};

static json_t *with_transfers(json_t *push, json_t *pull)
{
    json_t *before = verdict(3, "580", "push", 15, "PASS", push);

    (void)json_array_append_new(json_object_get(before, "pairs"), pairs("pull", 15, pull));
    (void)json_array_append_new(json_object_get(before, "results"), result("pull", 15, "PASS"));
    return before;
}

static json_t *probe(const json_t *before, const char *is)
{
    const struct sp_outcome item = {.backend = SP_UPSTREAM,
                                    .count = 2,
                                    .uuid = two,
                                    .result = is,
                                    .reason = is[0] == 'P' ? NULL : "why",
                                    .library = "bb"};
    json_t *run;

    assert_int_equal(sp_verdict_outcomes(&run, before, &item, 1), SP_OK);
    return run;
}

/* Of every outcome, with the transfers that it needs as passed, failed, or never run. */
static void a_probe_passes_only_on_proved_transfers(void **state)
{
    (void)state;
    for (int n = 0; n < OUTCOMES * 9; n++) {
        const char *is = outcomes[n % OUTCOMES];
        const int push = n / OUTCOMES % 3, pull = n / OUTCOMES / 3; /* 0 passed, 1 failed, 2 not run */
        json_t *before = with_transfers(push == 1 ? one_pair() : no_pair(), pull == 1 ? one_pair() : no_pair());
        json_t *list = json_object_get(before, "pairs"), *merged;

        if (pull == 2)
            (void)json_array_remove(list, 1);
        if (push == 2)
            (void)json_array_remove(list, 0);
        merged = merge(json_incref(before), probe(before, is));
        assert_string_equal(found(merged, SP_UPSTREAM, 3), is[0] == 'P' && push + pull > 0 ? "INCONCLUSIVE" : is);
        assert_string_equal(found(merged, "push", 15), "PASS"); /* says nothing about ours */
        assert_int_equal(failures(merged, "push", 15), push == 2 ? -1 : push);
        assert_int_equal(json_array_size(json_object_get(merged, "results")), 3);
        json_decref(before);
        json_decref(merged);
    }
}

static void a_later_run_keeps_the_probe_or_doubts_it(void **state)
{
    (void)state;
    for (int n = 0; n < 2 * OUTCOMES; n++) {
        json_t *before = with_transfers(no_pair(), no_pair()),
               *merged = merge(json_incref(before), probe(before, "PASS"));
        const char *is = outcomes[n % OUTCOMES];
        const char *backend = n < OUTCOMES ? "pull" : "host";

        merged = merge(merged, verdict(3, "580", backend, 3, is, no_pair()));
        assert_string_equal(found(merged, SP_UPSTREAM, 3), n < OUTCOMES && is[0] == 'F' ? "FAIL" : "PASS");
        merged = merge(merged, verdict(2, "580", backend, 3, NULL, one_pair()));
        assert_string_equal(found(merged, SP_UPSTREAM, 3), n >= OUTCOMES  ? "PASS"
                                                           : is[0] == 'F' ? "FAIL"
                                                                          : "INCONCLUSIVE");
        json_decref(before);
        json_decref(merged);
    }
}

static void a_second_probe_replaces_the_first(void **state)
{
    json_t *before = with_transfers(no_pair(), no_pair()), *merged = merge(json_incref(before), probe(before, "FAIL"));
    json_t *run = probe(merged, "PASS");

    (void)state;
    assert_string_equal(found(merged, SP_UPSTREAM, 3), "FAIL");
    assert_int_equal(failures(merged, SP_UPSTREAM, 3), 2);
    merged = merge(merged, run);
    assert_string_equal(found(merged, SP_UPSTREAM, 3), "PASS");
    assert_int_equal(failures(merged, SP_UPSTREAM, 3), 0);
    json_decref(before);
    json_decref(merged);
}

/* Of what a later run on these GPUs says. */
static bool takes_back(json_t *known, const char *backend, unsigned gpus, const char *is, json_t *now)
{
    json_t *before = verdict(3, "1", "push", 3, json_array_size(known) ? "FAIL" : "PASS", known);
    json_t *merged = merge(json_incref(before), verdict(3, "1", backend, gpus, is, now));
    const bool takes = sp_verdict_takes_back(before, merged);

    json_decref(before);
    json_decref(merged);
    return takes;
}

static void what_is_taken_back_is_known(void **state)
{
    (void)state;
    assert_false(takes_back(no_pair(), "push", 3, "PASS", no_pair()));
    assert_false(takes_back(no_pair(), "pull", 3, "FAIL", one_pair()));
    assert_false(takes_back(no_pair(), "push", 12, "FAIL", no_pair()));
    assert_true(takes_back(no_pair(), "push", 3, "FAIL", no_pair()));
    assert_true(takes_back(no_pair(), "push", 3, "INCONCLUSIVE", no_pair()));
    assert_true(takes_back(no_pair(), "push", 3, "PASS", one_pair()));
    assert_true(takes_back(no_pair(), "push", 3, NULL, no_pair()));
    assert_false(takes_back(one_pair(), "push", 3, "FAIL", one_pair())); /* known before */
    assert_true(takes_back(json_pack("[[s, s]]", "GPU-1", "GPU-0"), "push", 3, "FAIL", one_pair()));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_combination),
        cmocka_unit_test(another_machine_forgets_all),
        cmocka_unit_test(a_low_level_before_is_nothing),
        cmocka_unit_test(the_level_is_the_lowest_of_what_is_in_it),
        cmocka_unit_test(a_broken_pair_is_known_to_larger_sets),
        cmocka_unit_test(failed_kernels_taint_their_pairs),
        cmocka_unit_test(what_root_could_read_is_kept),
        cmocka_unit_test(a_damaged_verdict_is_not_merged_with),
        cmocka_unit_test(a_probe_passes_only_on_proved_transfers),
        cmocka_unit_test(a_later_run_keeps_the_probe_or_doubts_it),
        cmocka_unit_test(a_second_probe_replaces_the_first),
        cmocka_unit_test(what_is_taken_back_is_known),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
