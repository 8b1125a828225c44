/* arguments.c: libpar.so itself, on a machine that may have no GPU: arguments are judged before CUDA is asked. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "pcie_allreduce.h"

static int never(void *context, const void *mine, void *all, size_t bytes)
{
    (void)context, (void)mine, (void)all, (void)bytes;
    return 1;
}

static void refused(int error, const char *why)
{
    assert_int_equal(error, PAR_ERR_ARGUMENT);
    assert_non_null(strstr(par_last_error(), why));
}

static void creation_refuses_by_name(void **state)
{
    par_comm *comm = (par_comm *)&comm;
    (void)state;
    refused(par_create(NULL, 0, 2, 0, never, NULL, NULL), "out");
    refused(par_create(&comm, 0, 1, 0, never, NULL, NULL), "world size 1");
    assert_null(comm);
    refused(par_create(&comm, 0, 9, 0, never, NULL, NULL), "world size 9");
    refused(par_create(&comm, 2, 2, 0, never, NULL, NULL), "rank 2");
    refused(par_create(&comm, -1, 2, 0, never, NULL, NULL), "rank -1");
    refused(par_create(&comm, 0, 2, 0, NULL, NULL, NULL), "callback");
}

/* Two ranks: what this one says, and in the place of the other one what that said, or the same. Counts the rounds. */
typedef struct {
    int rank, rounds;
    char said[1024], other[1024]; /* other: empty, or what its rank said */
} two_ranks;

static int gather(void *context, const void *mine, void *all, size_t bytes)
{
    two_ranks *t = context;
    assert_in_range(bytes, 1, sizeof t->said);
    memcpy(t->said, mine, bytes);
    memcpy((char *)all + (size_t)t->rank * bytes, mine, bytes);
    memcpy((char *)all + (size_t)(1 - t->rank) * bytes, t->rounds ? t->said : t->other, bytes);
    t->rounds++;
    return 0;
}

/* A rank with such options: its error, and how many rounds it took part in. */
static void tells_of(const par_options *options, const char *why)
{
    par_comm *comm = (par_comm *)&comm;
    two_ranks bad = {.rank = 0}, good = {.rank = 1};
    refused(par_create(&comm, 0, 2, 0, gather, &bad, options), why);
    assert_non_null(strstr(par_last_error(), "rank 0: "));
    assert_null(comm);
    assert_int_equal(bad.rounds, 1);
    memcpy(good.other, bad.said, sizeof good.other);
    refused(par_create(&comm, 1, 2, 0, gather, &good, NULL), why);
    assert_non_null(strstr(par_last_error(), "rank 0: "));
    assert_null(comm);
    assert_int_equal(good.rounds, 1);
}

/* It would leave them waiting for its first word. */
static void a_rank_with_wrong_options_tells_the_others(void **state)
{
    par_options o = PAR_OPTIONS_INIT;
    (void)state;
    o.with = 0;
    tells_of(&o, "options.with");
    o.with = 8;
    tells_of(&o, "options.with");
    o.with = PAR_WITH_HOST;
    o.mode = 7;
    tells_of(&o, "options.mode");
    o.mode = 0;
    o.timeout_s = -1;
    tells_of(&o, "timeout_s");
    o.timeout_s = 0;
    o.size = 3;
    tells_of(&o, "options.size");
}

static void a_rank_without_its_device_tells_the_others(void **state)
{
    par_comm *comm = NULL;
    two_ranks t = {.rank = 0};
    (void)state;
    assert_int_equal(par_create(&comm, 0, 2, 1 << 20, gather, &t, NULL), PAR_ERR_CUDA);
    assert_null(comm);
    assert_non_null(strstr(par_last_error(), "rank 0: "));
    assert_non_null(strstr(par_last_error(), "Device"));
    assert_int_equal(t.rounds, 1);
}

static void memory_is_known_in_advance(void **state)
{
    uint64_t device = 0, host = 0, more = 0;
    par_options o = PAR_OPTIONS_INIT;
    (void)state;
    refused(par_memory_bound(1, NULL, &device, &host), "world size");
    assert_int_equal(par_memory_bound(4, &o, &device, &host), PAR_OK);
    assert_true(device > 1u << 20 && device < 96u << 20);
    assert_true(host > 1u << 20 && host < 32u << 20);
    o.sentinel_bytes = 2u << 20;
    assert_int_equal(par_memory_bound(4, &o, NULL, &more), PAR_OK);
    assert_true(more > host);
    o.with = PAR_WITH_HOST;
    assert_int_equal(par_memory_bound(4, &o, &device, NULL), PAR_OK);
    assert_true(device <= 2u << 20);
    o.with = PAR_WITH_PEER;
    assert_int_equal(par_memory_bound(4, &o, NULL, &host), PAR_OK);
    assert_true(host <= 4096);
}

static void null_is_no_communicator(void **state)
{
    par_report report;
    char buffer[16];
    (void)state;
    par_close(NULL);
    par_abort(NULL, "nothing");
    assert_int_equal(par_rank(NULL), -1);
    assert_int_equal(par_status(NULL), PAR_ERR_ABORTED);
    assert_int_equal(par_max_bytes(NULL, PAR_HOST_ONE_SHOT), 0);
    assert_int_equal(par_choose(NULL, 8), PAR_AUTO);
    refused(par_all_reduce(NULL, buffer, buffer, 4, PAR_BF16, PAR_AUTO, NULL), "comm");
    refused(par_all_reduce_local(NULL, NULL, NULL, 4, PAR_BF16, PAR_AUTO, NULL), "null");
    refused(par_last_report(NULL, &report), "null");
    refused(par_set_profile(NULL, NULL, 0), "null");
    refused(par_debug(NULL, PAR_DEBUG_LANES, 1), "null");
}

static void the_interface_is_the_one_of_the_header(void **state)
{
    (void)state;
    assert_int_equal(par_abi(), PAR_ABI);
    assert_true(strlen(par_version()) > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(creation_refuses_by_name),
        cmocka_unit_test(a_rank_with_wrong_options_tells_the_others),
        cmocka_unit_test(a_rank_without_its_device_tells_the_others),
        cmocka_unit_test(memory_is_known_in_advance),
        cmocka_unit_test(null_is_no_communicator),
        cmocka_unit_test(the_interface_is_the_one_of_the_header),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
