/* Asking in a child: what answers, what dies, what never ends, and what leaves something behind. */
#include "base/err.h"
#include "verify/machine/child.h"
#include "verify/machine/openers.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

static void say(int fd, const void *context)
{
    (void)!write(fd, context, strlen(context));
}

static void say_much(int fd, const void *context)
{
    char block[1024];

    (void)context;
    memset(block, 'x', sizeof block);
    for (int i = 0; i < 1024; i++)
        (void)!write(fd, block, sizeof block);
}

static void die(int fd, const void *context)
{
    say(fd, context);
    abort();
}

static void hang(int fd, const void *context)
{
    say(fd, context);
    for (;;)
        (void)pause();
}

static void test_answers(void **state)
{
    struct sp_buf answer = SP_BUF_INIT;

    (void)state;
    assert_int_equal(sp_child_ask(&answer, 10, say, "yes"), SP_OK);
    assert_string_equal(answer.data, "yes");
    sp_buf_free(&answer);
    assert_int_equal(sp_child_ask(&answer, 10, say, ""), SP_OK);
    assert_int_equal(answer.len, 0);
    sp_buf_free(&answer);
    assert_int_equal(sp_child_ask(&answer, 30, say_much, NULL), SP_OK); /* more than a pipe holds */
    assert_int_equal(answer.len, 1 << 20);
    sp_buf_free(&answer);
}

static void test_a_death_is_no_answer(void **state)
{
    struct sp_buf answer = SP_BUF_INIT;

    (void)state;
    assert_int_equal(sp_child_ask(&answer, 10, die, "half"), SP_ECANNOT);
    sp_buf_free(&answer);
}

static void test_a_hang_ends_in_time_and_leaves_nobody(void **state)
{
    struct sp_buf answer = SP_BUF_INIT;
    time_t start = time(NULL);

    (void)state;
    assert_int_equal(sp_child_ask(&answer, 1, hang, "half"), SP_EHANG);
    assert_true(time(NULL) - start <= 5);
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
    sp_buf_free(&answer);
}

/* ---- who has a device open ---- */

static void test_openers(void **state)
{
    char path[] = "/tmp/sp-openers-XXXXXX";
    int64_t pids[4];
    int ends[2], fd = mkstemp(path);
    pid_t child;

    (void)state;
    assert_true(fd >= 0);
    assert_int_equal(sp_openers(pids, 4, path), 0); /* ourselves do not count */
    assert_int_equal(pipe(ends), 0);
    child = fork();
    if (child == 0) {
        char byte;

        close(ends[1]);
        _exit(read(ends[0], &byte, 1) == 0 ? 0 : 1);
    }
    assert_int_equal(sp_openers(pids, 4, path), 1);
    assert_int_equal(pids[0], child);
    close(ends[1]);
    assert_int_equal(waitpid(child, NULL, 0), child);
    assert_int_equal(sp_openers(pids, 4, path), 0);
    close(fd);
    (void)unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_answers),
        cmocka_unit_test(test_a_death_is_no_answer),
        cmocka_unit_test(test_a_hang_ends_in_time_and_leaves_nobody),
        cmocka_unit_test(test_openers),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
