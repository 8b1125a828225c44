/*
 * Rank processes: the bootstrap all-gather is right, a rank that dies or does not come is named, and nothing runs on.
 */
#include "kernels/gpu/ranks.h"

#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static int gather_and_compare(ranks *self, void *context)
{
    enum { N = 100000 };
    uint32_t *mine = calloc(N, sizeof(*mine)), *all = calloc(N * RANKS_MAX, sizeof(*all));
    int i, round, rc = mine == NULL || all == NULL ? CODE_CANNOT : CODE_OK;

    (void)context;
    for (round = 0; round < 3 && rc == 0; round++) {
        size_t n = round == 1 ? N : 3;
        for (i = 0; i < (int)n; i++)
            mine[i] = (uint32_t)(self->rank * 1000003 + i + round);
        rc = ranks_allgather(self, mine, all, n * sizeof(*mine));
        for (i = 0; i < (int)n * self->world && rc == 0; i++)
            if (all[i] != (uint32_t)(i / (int)n * 1000003 + i % (int)n + round))
                rc = CODE_WRONG;
    }
    free(mine);
    free(all);
    return rc != 0 ? rc : ranks_agree(self, self->rank == self->world - 1 ? CODE_UNSURE : CODE_OK);
}

static void test_all_gather_is_right_for_every_world(void **state)
{
    ranks_outcome outcome;
    int world, r;

    (void)state;
    for (world = 1; world <= RANKS_MAX; world++) {
        assert_int_equal(ranks_run(&outcome, world, 20, 0, gather_and_compare, NULL), CODE_UNSURE);
        for (r = 0; r < world; r++)
            assert_int_equal(outcome.rank[r].code, CODE_UNSURE);
        assert_false(outcome.timed_out);
        assert_false(outcome.stray);
    }
}

static int victim_dies(ranks *self, void *context)
{
    if (self->rank == *(int *)context)
        kill(getpid(), SIGKILL);
    return ranks_barrier(self);
}

static void test_a_dead_rank_is_named_at_once(void **state)
{
    ranks_outcome outcome;
    int victim, r;

    (void)state;
    for (victim = 0; victim < 3; victim += 2) {
        assert_int_equal(ranks_run(&outcome, 3, 20, 1u << victim, victim_dies, &victim), CODE_HANG);
        assert_true(outcome.seconds < 5);
        assert_int_equal(outcome.rank[victim].signal, SIGKILL);
        for (r = 0; r < 3; r++)
            if (r != victim)
                assert_non_null(strstr(outcome.rank[r].text, victim == 0 ? "rank 0" : "rank 2"));
    }
}

static int victim_sleeps(ranks *self, void *context)
{
    self->limit_s = 0.3;
    if (self->rank == *(int *)context)
        seconds_sleep(1.5);
    return self->rank == *(int *)context ? CODE_OK : ranks_barrier(self);
}

static void test_a_rank_that_does_not_come_is_named_on_all(void **state)
{
    ranks_outcome outcome;
    int victim = 1, r;

    (void)state;
    assert_int_equal(ranks_run(&outcome, 4, 20, 0, victim_sleeps, &victim), CODE_HANG);
    for (r = 0; r < 4; r++)
        if (r != victim)
            assert_non_null(strstr(outcome.rank[r].text, "rank 1 did not come"));
    assert_true(outcome.seconds < 5);
}

static int never_ends(ranks *self, void *context)
{
    (void)context;
    rank_note("rank %d turns for ever", self->rank);
    while (self->rank >= 0)
        seconds_sleep(1);
    return CODE_OK;
}

static void test_a_hang_ends_at_the_limit_and_says_where(void **state)
{
    ranks_outcome outcome;

    (void)state;
    assert_int_equal(ranks_run(&outcome, 2, 0.3, 0, never_ends, NULL), CODE_HANG);
    assert_true(outcome.timed_out);
    assert_true(outcome.seconds < 5);
    assert_non_null(strstr(outcome.rank[1].text, "rank 1 turns for ever"));
}

static int leaves_a_child(ranks *self, void *context)
{
    pid_t pid = fork();

    (void)self;
    if (pid == 0)
        for (;;)
            pause();
    *(pid_t *)context = pid;
    return CODE_OK;
}

static void test_what_a_rank_leaves_behind_is_killed(void **state)
{
    pid_t *pid = shared_alloc(sizeof(*pid));
    ranks_outcome outcome;
    int tries = 0;

    (void)state;
    assert_int_equal(ranks_run(&outcome, 1, 20, 0, leaves_a_child, pid), CODE_OK);
    assert_true(outcome.stray);
    while (kill(*pid, 0) == 0 &&
           tries++ < 100) { /* an orphan is reaped by init, or by a container's lack of one never */
        char path[64], line[256] = "";
        ssize_t n;
        FILE *f;
        snprintf(path, sizeof(path), "/proc/%d/stat", (int)*pid);
        f = fopen(path, "re");
        n = f != NULL ? (ssize_t)fread(line, 1, sizeof(line) - 1, f) : 0;
        if (f != NULL)
            fclose(f);
        if (n > 0 && strstr(line, ") Z ") != NULL)
            break;
        seconds_sleep(0.02);
    }
    assert_true(tries < 100);
    shared_free(pid, sizeof(*pid));
}

static int tells_its_pid(ranks *self, void *context)
{
    ((volatile pid_t *)context)[self->rank] = getpid();
    return never_ends(self, context);
}

static int gone(pid_t pid)
{
    char path[64], line[256] = "";
    FILE *f;

    snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
    f = fopen(path, "re");
    if (f == NULL)
        return 1;
    if (fread(line, 1, sizeof(line) - 1, f) == 0)
        line[0] = '\0';
    fclose(f);
    return strstr(line, ") Z ") != NULL;
}

static void test_ranks_die_with_their_parent(void **state)
{
    volatile pid_t *pids = shared_alloc(4096);
    ranks_outcome outcome;
    pid_t parent = fork();
    int i;

    (void)state;
    if (parent == 0) {
        ranks_run(&outcome, 2, 60, 0, tells_its_pid, (void *)pids);
        _exit(0);
    }
    for (i = 0; (pids[0] == 0 || pids[1] == 0) && i < 500; i++)
        seconds_sleep(0.01);
    assert_true(pids[0] != 0 && pids[1] != 0);
    kill(parent, SIGKILL);
    waitpid(parent, NULL, 0);
    for (i = 0; (!gone(pids[0]) || !gone(pids[1])) && i < 500; i++)
        seconds_sleep(0.01);
    assert_true(gone(pids[0]) && gone(pids[1]));
    shared_free((void *)pids, 4096);
}

static void test_wrong_data_is_worse_than_a_hang(void **state)
{
    (void)state;
    assert_int_equal(code_worse(CODE_WRONG, CODE_HANG), CODE_WRONG);
    assert_int_equal(code_worse(CODE_CHECK, CODE_HANG), CODE_HANG);
    assert_int_equal(code_worse(CODE_CHECK, CODE_UNSURE), CODE_CHECK);
    assert_int_equal(code_worse(CODE_OK, CODE_UNSURE), CODE_UNSURE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_gather_is_right_for_every_world),
        cmocka_unit_test(test_a_dead_rank_is_named_at_once),
        cmocka_unit_test(test_a_rank_that_does_not_come_is_named_on_all),
        cmocka_unit_test(test_a_hang_ends_at_the_limit_and_says_where),
        cmocka_unit_test(test_what_a_rank_leaves_behind_is_killed),
        cmocka_unit_test(test_ranks_die_with_their_parent),
        cmocka_unit_test(test_wrong_data_is_worse_than_a_hang),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
