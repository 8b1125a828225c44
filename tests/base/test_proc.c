#include "base/err.h"
#include "base/proc.h"
#include "tree.h"

#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

static struct sp_proc_result result;

static int sh(const char *script, struct sp_proc_options options)
{
    const char *const argv[] = {"sh", "-c", script, NULL};

    sp_proc_free(&result);
    return sp_proc_run(&result, argv, &options);
}

static double seconds(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

/* A zombie that nobody waits for is not. */
static bool is_running(pid_t pid)
{
    struct sp_buf stat = SP_BUF_INIT;
    char path[64];
    bool running;

    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    running = sp_read_file(&stat, path, 4096) == 0 && !strstr(stat.data, ") Z ");
    sp_buf_free(&stat);
    return running;
}

static int forget(void **state)
{
    (void)state;
    sp_proc_free(&result);
    return 0;
}

static int forget_all(void **state)
{
    return forget(state) + tree_teardown(state);
}

static void status_and_both_streams_come_back(void **state)
{
    (void)state;
    assert_int_equal(sh("echo out; echo err >&2; exit 3", (struct sp_proc_options){.output_max = 100}), 0);
    assert_int_equal(result.status, 3);
    assert_int_equal(result.signal, 0);
    assert_string_equal(result.out.data, "out\n");
    assert_string_equal(result.err.data, "err\n");
    assert_false(result.out_cut || result.err_cut || result.timed_out);
}

static void a_program_that_is_not_there_is_named(void **state)
{
    static const char *const argv[] = {"no-such-program-here", NULL};
    const struct sp_proc_options options = {.output_max = 10};

    (void)state;
    assert_int_equal(sp_proc_run(&result, argv, &options), SP_ECANNOT);
    assert_said("cannot run 'no-such-program-here': No such file");
}

static void standard_input_is_empty(void **state)
{
    (void)state;
    assert_int_equal(sh("cat; echo end", (struct sp_proc_options){.seconds = 5, .output_max = 100}), 0);
    assert_string_equal(result.out.data, "end\n");
}

static void input_comes_whole_whether_it_is_read_or_not(void **state)
{
    static char input[300000]; /* more than a pipe holds */

    (void)state;
    memset(input, 'x', sizeof input);
    assert_int_equal(
        sh("cat | wc -c; cat; echo end",
           (struct sp_proc_options){.seconds = 5, .output_max = 100, .input = input, .input_len = sizeof input}),
        0);
    assert_string_equal(result.out.data, "300000\nend\n");
    assert_int_equal(
        sh("echo unread",
           (struct sp_proc_options){.seconds = 5, .output_max = 100, .input = input, .input_len = sizeof input}),
        0);
    assert_string_equal(result.out.data, "unread\n");
    assert_int_equal(sh("cat; echo end", (struct sp_proc_options){.seconds = 5, .output_max = 100, .input = ""}), 0);
    assert_string_equal(result.out.data, "end\n");
}

static void wait_until_gone(pid_t pid)
{
    for (int i = 0; i < 100 && is_running(pid); i++)
        usleep(10000);
    assert_false(is_running(pid));
}

static void a_hanging_child_is_killed_with_its_children(void **state)
{
    double began = seconds();
    pid_t grandchild;

    (void)state;
    assert_int_equal(sh("sleep 100 & echo $!; wait", (struct sp_proc_options){.seconds = 0.3, .output_max = 100}), 0);
    assert_true(result.timed_out);
    assert_int_equal(result.status, -1);
    assert_int_equal(result.signal, SIGKILL);
    assert_true(seconds() - began < 5);
    grandchild = (pid_t)strtol(result.out.data, NULL, 10);
    assert_true(grandchild > 0);
    wait_until_gone(grandchild);
}

/* A pid that a process writes beneath the tree. */
static pid_t written(const struct tree *tree, const char *name)
{
    struct sp_buf text = SP_BUF_INIT;
    pid_t pid = 0;

    for (int i = 0; i < 500 && pid == 0; i++) {
        usleep(10000);
        if (sp_read_beneath(&text, NULL, tree->fd, name, 100) == 0 && strchr(text.data, '\n'))
            pid = (pid_t)strtol(text.data, NULL, 10);
    }
    sp_buf_free(&text);
    assert_true(pid > 0);
    return pid;
}

static void a_signal_ends_the_children_of_children_too(void **state)
{
    static const int numbers[] = {SIGHUP, SIGINT, SIGTERM};
    const struct tree *tree = *state;

    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        const struct sp_proc_options options = {.dir = tree->path, .output_max = 100};
        pid_t child = fork(), grandchild;
        int status;

        assert_true(child >= 0);
        if (child == 0) {
            sp_proc_catch_signals();
            (void)sh("sleep 100 & echo $! >new; mv new pid; wait", options);
            _exit(1); /* nobody acts on how it ended */
        }
        grandchild = written(tree, "pid");
        assert_int_equal(kill(child, numbers[i]), 0);
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(WIFSIGNALED(status));
        assert_int_equal(WTERMSIG(status), numbers[i]);
        wait_until_gone(grandchild);
        assert_int_equal(unlinkat(tree->fd, "pid", 0), 0);
    }
}

static void a_child_that_does_not_heed_it_is_killed(void **state)
{
    const struct tree *tree = *state;
    const struct sp_proc_options options = {.dir = tree->path, .output_max = 100};
    pid_t child = fork(), deaf;
    int status;

    assert_true(child >= 0);
    if (child == 0) {
        sp_proc_catch_signals();
        (void)sh("trap '' TERM; echo $$ >new; mv new pid; sleep 100; sleep 100", options);
        _exit(1);
    }
    deaf = written(tree, "pid");
    assert_int_equal(kill(child, SIGTERM), 0);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status));
    wait_until_gone(deaf);
}

static void a_signal_that_is_ignored_stays_so(void **state)
{
    pid_t child = fork();
    int status;

    (void)state;
    assert_true(child >= 0);
    if (child == 0) { /* as under nohup */
        (void)signal(SIGHUP, SIG_IGN);
        sp_proc_catch_signals();
        (void)raise(SIGHUP);
        _exit(0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
}

static void a_child_is_ended_by_a_limit_that_we_survive(void **state)
{
    const struct tree *tree = *state;
    const struct sp_proc_options options = {.dir = tree->path, .output_max = 100};

    (void)signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(sh("ulimit -c 0; ulimit -f 1; exec head -c 100000 /dev/zero >large", options), 0);
    (void)signal(SIGXFSZ, SIG_DFL);
    assert_int_equal(result.signal, SIGXFSZ);
}

static void a_grandchild_with_our_pipe_does_not_hold_us_up(void **state)
{
    double began = seconds();

    (void)state;
    assert_int_equal(sh("sleep 100 & echo done", (struct sp_proc_options){.seconds = 50, .output_max = 100}), 0);
    assert_int_equal(result.status, 0);
    assert_string_equal(result.out.data, "done\n");
    assert_true(seconds() - began < 5);
}

static void a_flood_neither_fills_memory_nor_blocks_the_child(void **state)
{
    (void)state;
    assert_int_equal(
        sh("head -c 3000000 /dev/zero; echo end >&2", (struct sp_proc_options){.seconds = 20, .output_max = 1000}), 0);
    assert_int_equal(result.out.len, 1000);
    assert_true(result.out_cut);
    assert_string_equal(result.err.data, "end\n");
    assert_int_equal(result.status, 0);
}

static void a_closed_output_does_not_end_the_wait(void **state)
{
    (void)state;
    assert_int_equal(sh("exec >&- 2>&-; sleep 0.2; exit 7", (struct sp_proc_options){.seconds = 20, .output_max = 10}),
                     0);
    assert_int_equal(result.status, 7);
}

static void environment_and_directory_are_ours_to_choose(void **state)
{
    static const char *const env[] = {"PATH=/usr/bin:/bin", "ANSWER=42", NULL};

    (void)state;
    assert_int_equal(sh("echo $ANSWER $HOME; pwd", (struct sp_proc_options){.output_max = 100, .env = env, .dir = "/"}),
                     0);
    assert_string_equal(result.out.data, "42\n/\n");
}

static void every_failure_of_run_ok_says_why(void **state)
{
    static const char *const fails[] = {"sh", "-c", "echo first >&2; echo last words >&2; exit 4", NULL};
    static const char *const dies[] = {"sh", "-c", "kill -SEGV $$", NULL};
    static const char *const hangs[] = {"sleep", "100", NULL};
    const struct sp_proc_options options = {.seconds = 0.3, .output_max = 1000};

    (void)state;
    assert_int_equal(sp_proc_run_ok(&result, fails, &options), SP_ECANNOT);
    assert_said("'sh' failed with exit status 4: last words");
    sp_proc_free(&result);
    assert_int_equal(sp_proc_run_ok(&result, dies, &options), SP_ECANNOT);
    assert_said("was ended by signal 11");
    sp_proc_free(&result);
    assert_int_equal(sp_proc_run_ok(&result, hangs, &options), SP_EHANG);
    assert_said("did not end within 0.3 seconds");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(status_and_both_streams_come_back, forget),
        cmocka_unit_test_teardown(a_program_that_is_not_there_is_named, forget),
        cmocka_unit_test_teardown(standard_input_is_empty, forget),
        cmocka_unit_test_teardown(input_comes_whole_whether_it_is_read_or_not, forget),
        cmocka_unit_test_teardown(a_hanging_child_is_killed_with_its_children, forget),
        cmocka_unit_test_teardown(a_grandchild_with_our_pipe_does_not_hold_us_up, forget),
        cmocka_unit_test_teardown(a_flood_neither_fills_memory_nor_blocks_the_child, forget),
        cmocka_unit_test_teardown(a_closed_output_does_not_end_the_wait, forget),
        cmocka_unit_test_teardown(environment_and_directory_are_ours_to_choose, forget),
        cmocka_unit_test_teardown(every_failure_of_run_ok_says_why, forget),
        cmocka_unit_test_setup_teardown(a_signal_ends_the_children_of_children_too, tree_setup, forget_all),
        cmocka_unit_test_setup_teardown(a_child_that_does_not_heed_it_is_killed, tree_setup, forget_all),
        cmocka_unit_test(a_signal_that_is_ignored_stays_so),
        cmocka_unit_test_setup_teardown(a_child_is_ended_by_a_limit_that_we_survive, tree_setup, forget_all),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
