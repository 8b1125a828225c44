/* The transaction: what a commit does, and what it refuses. What a kill leaves is tests/fault's business. */
#include "txn_tree.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <cmocka.h>

/* ---- all goes well ---- */

static void without_commit_nothing_is_written(void **state)
{
    const struct tree *tree = *state;
    struct sp_txn *txn = planned(tree);

    sp_txn_free(txn);
    assert_old(tree);
}

static void a_commit_leaves_the_new_files_and_nothing_else(void **state)
{
    const struct tree *tree = *state;
    struct sp_txn *txn = planned(tree);

    assert_int_equal(sp_txn_commit(txn), 0);
    assert_new(tree);
    assert_false(is_pending(tree));
    assert_commit(txn, SP_ECANNOT, NULL);
    assert_string_equal(recover(tree), "nothing to do");
}

static void mode_owner_and_attributes_are_kept(void **state)
{
    const struct tree *tree = *state;
    char value[16] = "";
    struct sp_txn *txn;
    struct stat st;
    bool attributes;

    tree_put(tree, "a", "old");
    assert_int_equal(fchmodat(tree->fd, "a", 0640, 0), 0);
    if (geteuid() == 0)
        assert_int_equal(fchownat(tree->fd, "a", 12, 34, 0), 0);
    assert_int_equal(fchdir(tree->fd), 0);
    attributes = setxattr("a", "user.note", "kept", 4, 0) == 0; /* not every file system has them */
    txn = begin(tree);
    assert_int_equal(replace(txn, "a", "old", "new"), 0);
    commit(txn);
    st = tree_stat(tree, "a");
    assert_int_equal(st.st_mode & 07777, 0640);
    if (geteuid() == 0) {
        assert_int_equal(st.st_uid, 12);
        assert_int_equal(st.st_gid, 34);
    }
    if (attributes) {
        assert_int_equal(getxattr("a", "user.note", value, sizeof value), 4);
        assert_string_equal(value, "kept");
    }
    assert_int_equal(chdir("/"), 0);
}

static void bytecode_of_the_old_file_goes_stale(void **state)
{
    const struct tree *tree = *state;
    struct timespec now[2] = {{.tv_nsec = UTIME_NOW}, {.tv_nsec = UTIME_NOW}};
    struct sp_txn *txn;
    time_t old;

    tree_put(tree, "a", "old");
    assert_int_equal(utimensat(tree->fd, "a", now, 0), 0);
    old = tree_stat(tree, "a").st_mtim.tv_sec;
    txn = begin(tree);
    assert_int_equal(replace(txn, "a", "old", "new"), 0); /* the same size, within the same second */
    commit(txn);
    assert_int_not_equal(tree_stat(tree, "a").st_mtim.tv_sec, old);
}

static void a_cache_behind_a_hard_link_keeps_its_bytes(void **state)
{
    const struct tree *tree = *state;
    struct sp_txn *txn;

    put_old(tree);
    assert_int_equal(linkat(tree->fd, "pkg/a.py", tree->fd, "cache", 0), 0);
    txn = begin_all(tree);
    assert_int_equal(sp_txn_broken_links(txn), 1);
    commit(txn);
    assert_text(tree, "cache", "old a");
    assert_int_equal(tree_stat(tree, "cache").st_nlink, 1);
    assert_text(tree, "pkg/a.py", "new a");
}

static void a_strict_umask_does_not_hide_new_files(void **state)
{
    const struct tree *tree = *state;
    mode_t before = umask(077);
    struct sp_txn *txn = begin(tree);

    assert_int_equal(sp_txn_create(txn, "x/y/z", 0644, NULL, 0), 0);
    assert_int_equal(create(txn, ".sgl-pcie/manifest.json", "{}"), 0);
    assert_int_equal(sp_txn_commit(txn), 0);
    umask(before);
    sp_txn_free(txn);
    assert_int_equal(tree_stat(tree, "x").st_mode & 07777, 0755);
    assert_int_equal(tree_stat(tree, "x/y").st_mode & 07777, 0755);
    assert_int_equal(tree_stat(tree, ".sgl-pcie").st_mode & 07777, 0755);
    assert_int_equal(tree_stat(tree, "x/y/z").st_mode & 07777, 0644);
    assert_text(tree, "x/y/z", "");
}

static void emptied_directories_go_and_others_stay(void **state)
{
    const struct tree *tree = *state;
    struct sp_txn *txn;

    tree_put(tree, "x/y/z", "1");
    tree_put(tree, "x/keep", "2");
    tree_put(tree, "w/v", "3");
    txn = begin(tree);
    assert_int_equal(drop(txn, "x/y/z", "1"), 0);
    assert_int_equal(drop(txn, "w/v", "3"), 0);
    assert_int_equal(sp_txn_prune(txn, "x"), 0);
    assert_int_equal(sp_txn_prune(txn, "x/y"), 0);
    assert_int_equal(sp_txn_prune(txn, "never/there"), 0);
    commit(txn);
    assert_false(tree_has(tree, "x/y"));
    assert_true(tree_has(tree, "x/keep"));
    assert_true(tree_has(tree, "w"));
    assert_int_equal(tree_count(tree), 3);
}

static void blanks_and_other_alphabets_are_no_obstacle(void **state)
{
    const struct tree *tree = *state;
    struct sp_txn *txn;

    tree_put(tree, "a b/\xc3\xa9'\".py", "old");
    txn = begin(tree);
    assert_int_equal(replace(txn, "a b/\xc3\xa9'\".py", "old", "new"), 0);
    commit(txn);
    assert_text(tree, "a b/\xc3\xa9'\".py", "new");
}

static void a_name_that_no_journal_can_hold_is_refused(void **state)
{
    const struct tree *tree = *state;
    struct sp_txn *txn = begin(tree);

    assert_int_equal(create(txn, "\xff\xfe", "x"), 0);
    assert_true(sp_txn_commit(txn) < 0);
    assert_said("not UTF-8");
    sp_txn_free(txn);
    assert_int_equal(tree_count(tree), 0);
}

/* ---- what is not as planned ---- */

static void a_changed_file_is_refused_when_planned(void **state)
{
    const struct tree *tree = *state;
    struct sp_txn *txn;

    tree_put(tree, "a", "mine");
    txn = begin(tree);
    assert_int_equal(replace(txn, "a", "old", "new"), SP_EDRIFT);
    assert_said("'a' has changed: expected blob id");
    assert_int_equal(drop(txn, "a", "old"), SP_EDRIFT);
    assert_int_equal(replace(txn, "b", "old", "new"), SP_EDRIFT);
    assert_said("'b' is missing");
    assert_int_equal(create(txn, "a", "new"), SP_EDRIFT);
    assert_said("'a' is already there");
    commit(txn);
    assert_text(tree, "a", "mine");
}

static void a_file_changed_between_plan_and_commit_survives(void **state)
{
    const struct tree *tree = *state;
    struct sp_txn *txn = planned(tree);

    tree_put(tree, "pkg/b.py", "mine");
    assert_commit(txn, SP_EDRIFT, "'pkg/b.py'");
    assert_mine_in_b(tree);
}

/* For before_renameat: a file below the tree, opened with these flags. */
static void write_meanwhile(const char *name, int flags, const char *text)
{
    char path[128];
    int fd;

    snprintf(path, sizeof path, "%s/%s", test_root, name);
    fd = open(path, O_WRONLY | flags, 0644);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
    close(fd);
}

static void change_b_in_place(void)
{
    write_meanwhile("pkg/b.py", O_TRUNC, "mine");
}

static void a_file_changed_while_publishing_survives(void **state)
{
    const struct tree *tree = *state;
    struct sp_txn *txn = planned(tree);

    before_renameat = change_b_in_place;
    assert_commit(txn, SP_EDRIFT, "apply was taken back");
    assert_mine_in_b(tree);
}

static void create_c(void)
{
    write_meanwhile("added/deep/c.py", O_CREAT, "");
}

static void a_file_created_meanwhile_is_not_replaced(void **state)
{
    const struct tree *tree = *state;
    struct sp_txn *txn = planned(tree);

    before_renameat = create_c;
    assert_commit(txn, SP_EDRIFT, NULL);
    assert_text(tree, "added/deep/c.py", "");
    assert_text(tree, "pkg/a.py", "old a");
    assert_false(is_pending(tree));
}

static void paths_out_of_the_tree_are_refused(void **state)
{
    const struct tree *tree = *state;
    struct sp_txn *txn;

    tree_mkdir(tree, "real");
    tree_link(tree, "real", "link");
    tree_link(tree, "real", "dirlink");
    txn = begin(tree);
    assert_int_equal(create(txn, "../x", "x"), SP_ECANNOT);
    assert_int_equal(create(txn, "/tmp/x", "x"), SP_ECANNOT);
    assert_int_equal(create(txn, ".sgl-pcie/journal.done", "x"), SP_ECANNOT);
    assert_int_equal(create(txn, "link/new", "x"), SP_ECANNOT);
    assert_said("'link' is a symbolic link");
    assert_int_equal(replace(txn, "dirlink", "x", "y"), SP_ECANNOT);
    assert_int_equal(sp_txn_prune(txn, "../x"), SP_ECANNOT);
    assert_int_equal(create(txn, "once", "x"), 0);
    assert_int_equal(create(txn, "once", "x"), SP_ECANNOT);
    assert_said("twice");
    sp_txn_free(txn);
}

static void swap_pkg_for_a_link(void)
{
    char dir[128], away[128];

    before_renameat = NULL;
    snprintf(dir, sizeof dir, "%s/pkg", test_root);
    snprintf(away, sizeof away, "%s/away", test_root);
    assert_int_equal(rename(dir, away), 0);
    assert_int_equal(symlink("away", dir), 0);
}

static void a_link_planted_while_publishing_is_not_followed(void **state)
{
    const struct tree *tree = *state;
    struct sp_txn *txn = planned(tree);

    before_renameat = swap_pkg_for_a_link;
    /* it cannot be put back through the link either */
    assert_commit(txn, SP_EINTERRUPTED, "'pkg' is a symbolic link");
    assert_text(tree, "away/a.py", "old a");
    assert_text(tree, "away/b.py", "old b");
    assert_int_equal(unlinkat(tree->fd, "pkg", 0), 0);
    assert_int_equal(renameat(tree->fd, "away", tree->fd, "pkg"), 0);
    recover(tree);
    assert_old(tree);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_TREE(without_commit_nothing_is_written),
        IN_TREE(a_commit_leaves_the_new_files_and_nothing_else),
        IN_TREE(mode_owner_and_attributes_are_kept),
        IN_TREE(bytecode_of_the_old_file_goes_stale),
        IN_TREE(a_cache_behind_a_hard_link_keeps_its_bytes),
        IN_TREE(a_strict_umask_does_not_hide_new_files),
        IN_TREE(emptied_directories_go_and_others_stay),
        IN_TREE(blanks_and_other_alphabets_are_no_obstacle),
        IN_TREE(a_name_that_no_journal_can_hold_is_refused),
        IN_TREE(a_changed_file_is_refused_when_planned),
        IN_TREE(a_file_changed_between_plan_and_commit_survives),
        IN_TREE(a_file_changed_while_publishing_survives),
        IN_TREE(a_file_created_meanwhile_is_not_replaced),
        IN_TREE(paths_out_of_the_tree_are_refused),
        IN_TREE(a_link_planted_while_publishing_is_not_followed),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
