/* A transaction that was interrupted, and recover. */
#include "txn_tree.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

/* ---- a writer at work, or one that was interrupted ---- */

static void an_interrupted_tree_is_not_written_to(void **state)
{
    const struct tree *tree = *state;
    struct sp_txn *txn;
    char *command;
    bool pending;

    interrupt(tree);
    assert_int_equal(sp_txn_begin(&txn, tree->path, "revert"), SP_EINTERRUPTED);
    assert_null(txn);
    assert_said("an earlier apply in");
    assert_said("sgl-pcie recover --site");
    assert_int_equal(sp_txn_pending(&pending, &command, tree->fd), 0);
    assert_true(pending);
    assert_string_equal(command, "apply");
    free(command);
}

static void linger(void)
{
    before_renameat = NULL;
    usleep(200000);
}

static void a_command_at_work_is_not_called_interrupted(void **state)
{
    const struct tree *tree = *state;
    pid_t child;

    put_old(tree);
    child = fork();
    if (child == 0) {
        struct sp_txn *txn = begin_all(tree);

        before_renameat = linger;
        _exit(sp_txn_commit(txn) == 0 ? 0 : 1);
    }
    for (int i = 0; i < 5000 && !tree_has(tree, ".sgl-pcie/journal.stage"); i++)
        usleep(1000);
    assert_false(is_pending(tree));
    assert_new(tree);
    assert_int_equal(status_of(child), 0);
}

/* ---- recover ---- */

/* It must not, and write nothing. released: as sp_txn_recover() takes it. */
static void assert_no_recover(const struct tree *tree, sp_txn_released *released, char *path, int rc, const char *said)
{
    const int count = tree_count(tree);
    const char *outcome;

    assert_int_equal(sp_txn_recover(&outcome, tree->path, released, path), rc);
    assert_said(said);
    assert_int_equal(tree_count(tree), count);
}

static void recover_finishes_what_was_decided(void **state)
{
    const struct tree *tree = *state;

    interrupt(tree);
    assert_string_equal(recover(tree), "rolled forward");
    assert_new(tree);
    assert_string_equal(recover(tree), "nothing to do");
}

static void recover_goes_back_when_it_cannot_go_forward(void **state)
{
    const struct tree *tree = *state;

    interrupt(tree);
    assert_int_equal(unlinkat(tree->fd, tree_find(tree, "-2.new"), 0), 0); /* b.py's */
    assert_string_equal(recover(tree), "rolled back");
    assert_old(tree);
}

static void recover_without_images_says_so_and_writes_nothing(void **state)
{
    const struct tree *tree = *state;

    interrupt(tree);
    assert_int_equal(unlinkat(tree->fd, tree_find(tree, "-2.new"), 0), 0);
    assert_int_equal(unlinkat(tree->fd, tree_find(tree, "-1.old"), 0), 0);
    assert_no_recover(tree, NULL, NULL, SP_EDRIFT, "neither all old nor all new");
}

static void a_damaged_image_is_never_put_in_place(void **state)
{
    const struct tree *tree = *state;

    interrupt(tree);
    tree_put(tree, tree_find(tree, "-2.new"), "torn");
    assert_string_equal(recover(tree), "rolled back");
    assert_old(tree);
}

static void recover_stops_at_foreign_changes_and_names_them(void **state)
{
    const struct tree *tree = *state;

    interrupt(tree);
    tree_put(tree, "pkg/a.py", "mine");
    tree_put(tree, "pkg/gone.py", "mine too");
    assert_no_recover(tree, NULL, NULL, SP_EDRIFT, "2 files, the first: 'pkg/a.py' was changed by somebody else");
    assert_text(tree, "pkg/a.py", "mine");
    assert_true(is_pending(tree));

    /* Our image may be of another release than what is around the file now: never name it as something to copy. */
    assert_null(strstr(sp_err_hint_text(), ".sgl-pcie-"));
    assert_said("put back by hand");
    assert_said("sgl-pcie recover --site '");

    tree_put(tree, "pkg/a.py", "old a");
    tree_put(tree, "pkg/gone.py", "old gone");
    assert_string_equal(recover(tree), "rolled back"); /* a.py's new image has gone with what was written over it */
    assert_old(tree);
}

/* ---- pip install between the interruption and recover ---- */

static const char reinstalled[] = "rolled back; files that were reinstalled since are left as they are";

static bool is_other_release(void *context, const char *path, const struct sp_oid *live)
{
    struct sp_oid other = oid_of("other release");

    assert_string_equal(path, context);
    return strcmp(live->hex, other.hex) == 0;
}

static void assert_reinstalled(const struct tree *tree, char *path)
{
    const char *outcome;

    assert_int_equal(sp_txn_recover(&outcome, tree->path, is_other_release, path), 0);
    assert_string_equal(outcome, reinstalled);
    assert_false(is_pending(tree));
}

/* pip writes a new file and renames it: the inode that the old image is a link of stays. */
static void reinstall(const struct tree *tree, const char *path, const char *text)
{
    assert_int_equal(unlinkat(tree->fd, path, 0), 0);
    if (text)
        tree_put(tree, path, text);
}

static void a_file_of_another_release_is_left_and_the_rest_rolled_back(void **state)
{
    const struct tree *tree = *state;

    interrupt(tree);
    reinstall(tree, "pkg/b.py", "other release");
    assert_reinstalled(tree, (char *)(uintptr_t) "pkg/b.py");
    assert_text(tree, "pkg/a.py", "old a");
    assert_text(tree, "pkg/b.py", "other release");
    assert_text(tree, "pkg/gone.py", "old gone");
    assert_int_equal(tree_count(tree), 4); /* nothing of what was to be added */
}

static void a_file_that_the_other_release_lacks_stays_away(void **state)
{
    const struct tree *tree = *state;

    interrupt(tree);
    reinstall(tree, "pkg/a.py", NULL);
    assert_string_equal(recover(tree), reinstalled);
    assert_false(tree_has(tree, "pkg/a.py"));
    assert_text(tree, "pkg/b.py", "old b");
    assert_int_equal(tree_count(tree), 3);
}

static void an_edited_file_beside_a_reinstalled_one_still_stops_recover(void **state)
{
    const struct tree *tree = *state;

    interrupt(tree);
    reinstall(tree, "pkg/b.py", NULL);
    reinstall(tree, "pkg/a.py", "mine");
    assert_no_recover(tree, is_other_release, (char *)(uintptr_t) "pkg/a.py", SP_EDRIFT,
                      "'pkg/a.py' was changed by somebody else");
    assert_text(tree, "pkg/a.py", "mine");
}

static void a_recover_after_a_reinstall_may_fail_anywhere_and_be_repeated(void **state)
{
    const struct tree *tree = *state;
    const char *outcome;
    int rc = -1, at;

    interrupt(tree);
    reinstall(tree, "pkg/b.py", "other release");
    for (at = 1; rc < 0; at++) {
        no_faults();
        on_fsync = on_renameat = (struct fault){.at = 1, .why = EIO};
        on_fsync.at = at % 2 ? 0 : 1 + at / 8;
        on_renameat.at = at % 2 ? 1 + at / 8 : 0;
        rc = sp_txn_recover(&outcome, tree->path, is_other_release, (char *)(uintptr_t) "pkg/b.py");
        assert_text(tree, "pkg/b.py", "other release");
        assert_true(at < 100);
    }
    assert_true(at > 3);
    no_faults();
    assert_false(is_pending(tree));
    assert_text(tree, "pkg/a.py", "old a");
    assert_int_equal(tree_count(tree), 4);
}

/* ---- what somebody else has left there ---- */

static void recover_does_not_follow_a_planted_link(void **state)
{
    const struct tree *tree = *state;

    interrupt(tree);
    assert_int_equal(renameat(tree->fd, "pkg", tree->fd, "away"), 0);
    tree_link(tree, "away", "pkg");
    assert_no_recover(tree, NULL, NULL, SP_ECANNOT, "'pkg' is a symbolic link");
    assert_text(tree, "away/b.py", "old b");
}

static void an_unreadable_journal_is_pending_and_explained(void **state)
{
    const struct tree *tree = *state;
    struct sp_txn *txn;
    char *command;
    bool pending;

    tree_put(tree, ".sgl-pcie/journal.commit", "garbage");
    assert_int_equal(sp_txn_pending(&pending, &command, tree->fd), 0);
    assert_true(pending);
    assert_null(command);
    assert_int_equal(sp_txn_begin(&txn, tree->path, "apply"), SP_EINTERRUPTED);
    assert_no_recover(tree, NULL, NULL, SP_EINTERRUPTED, "'.sgl-pcie/journal.commit' was not written by this tool");
    assert_text(tree, ".sgl-pcie/journal.commit", "garbage");
    tree_put(tree, ".sgl-pcie/journal.done", "garbage");
    assert_true(is_pending(tree));
    assert_no_recover(tree, NULL, NULL, SP_EINTERRUPTED, "are both there");
}

static void an_emptied_state_directory_is_no_obstacle(void **state)
{
    const struct tree *tree = *state;
    struct sp_txn *txn;

    tree_mkdir(tree, ".sgl-pcie");
    txn = planned(tree);
    commit(txn);
    assert_new(tree);
}

static void a_quote_in_the_path_does_not_break_the_hint(void **state)
{
    const struct tree *tree = *state;
    char root[256], expected[256];
    struct sp_txn *txn;

    tree_put(tree, "o'neill/.sgl-pcie/journal.new", "{");
    snprintf(root, sizeof root, "%s/o'neill", tree->path);
    snprintf(expected, sizeof expected, "sgl-pcie recover --site '%s/o'\\''neill'", tree->path);
    assert_int_equal(sp_txn_begin(&txn, root, "apply"), SP_EINTERRUPTED);
    assert_string_equal(sp_err_hint_text(), expected);
}

static void leftovers_of_a_kill_are_swept_up(void **state)
{
    const struct tree *tree = *state;

    tree_mkdir(tree, ".sgl-pcie");
    assert_false(is_pending(tree));
    assert_string_equal(recover(tree), "nothing to do");
    assert_int_equal(tree_count(tree), 0);
    tree_put(tree, ".sgl-pcie/journal.new", "{\"sch");
    tree_put(tree, ".sgl-pcie/manifest.json", "{}");
    assert_true(is_pending(tree));
    assert_string_equal(recover(tree), "rolled back");
    assert_text(tree, ".sgl-pcie/manifest.json", "{}");
    assert_int_equal(tree_count(tree), 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_TREE(an_interrupted_tree_is_not_written_to),
        IN_TREE(a_command_at_work_is_not_called_interrupted),
        IN_TREE(recover_finishes_what_was_decided),
        IN_TREE(recover_goes_back_when_it_cannot_go_forward),
        IN_TREE(recover_without_images_says_so_and_writes_nothing),
        IN_TREE(a_damaged_image_is_never_put_in_place),
        IN_TREE(recover_stops_at_foreign_changes_and_names_them),
        IN_TREE(a_file_of_another_release_is_left_and_the_rest_rolled_back),
        IN_TREE(a_file_that_the_other_release_lacks_stays_away),
        IN_TREE(an_edited_file_beside_a_reinstalled_one_still_stops_recover),
        IN_TREE(a_recover_after_a_reinstall_may_fail_anywhere_and_be_repeated),
        IN_TREE(recover_does_not_follow_a_planted_link),
        IN_TREE(an_unreadable_journal_is_pending_and_explained),
        IN_TREE(an_emptied_state_directory_is_no_obstacle),
        IN_TREE(a_quote_in_the_path_does_not_break_the_hint),
        IN_TREE(leftovers_of_a_kill_are_swept_up),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
