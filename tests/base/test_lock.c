#include "base/err.h"
#include "base/lock.h"
#include "holder.h"
#include "tree.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static bool take(const void *path)
{
    int fd;

    return sp_lock_dir(&fd, path, 0) == SP_OK;
}

static void the_loser_learns_who_holds_the_lock(void **state)
{
    const struct tree *tree = *state;
    pid_t child = holder_start(take, tree->path);
    char who[32];
    int fd;

    assert_int_equal(sp_lock_dir(&fd, tree->path, 0), SP_ECANNOT);
    assert_int_equal(fd, -1);
    snprintf(who, sizeof who, "process %d", child);
    holder_end(child);
    assert_said(who);
}

static void a_killed_holder_leaves_nothing(void **state)
{
    const struct tree *tree = *state;
    int fd;

    holder_end(holder_start(take, tree->path));
    assert_int_equal(tree_count(tree), 0);
    assert_int_equal(sp_lock_dir(&fd, tree->path, 0), 0);
    close(fd);
    assert_int_equal(sp_lock_dir(&fd, tree->path, 0), 0);
    close(fd);
}

static void a_short_wait_is_enough_for_a_short_write(void **state)
{
    const struct tree *tree = *state;
    pid_t child = holder_start(take, tree->path), killer = fork();
    int fd;

    if (killer == 0) {
        usleep(150000);
        kill(child, SIGKILL);
        _exit(0);
    }
    assert_int_equal(sp_lock_dir(&fd, tree->path, 3000), 0);
    close(fd);
    assert_int_equal(waitpid(killer, NULL, 0), killer);
    holder_end(child);
}

static void a_missing_directory_is_named(void **state)
{
    int fd;

    (void)state;
    assert_int_equal(sp_lock_dir(&fd, "/nowhere/at/all", 0), SP_ECANNOT);
    assert_said("cannot open '/nowhere/at/all'");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(the_loser_learns_who_holds_the_lock, tree_setup, tree_teardown),
        cmocka_unit_test_setup_teardown(a_killed_holder_leaves_nothing, tree_setup, tree_teardown),
        cmocka_unit_test_setup_teardown(a_short_wait_is_enough_for_a_short_write, tree_setup, tree_teardown),
        cmocka_unit_test(a_missing_directory_is_named),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
