/*
 * The transaction. What a kill leaves is tests/fault's business; here are the rules, and failures that only a test can
 * make: renameat, renameat2, linkat, fsync and fchown go through this file (see CMakeLists.txt).
 */
#include "base/err.h"
#include "base/journal.h"
#include "base/txn.h"
#include "tree.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <cmocka.h>

/* ---- failing calls ---- */

struct fault {
    int at;      /* which call fails, from 1; 0: none */
    int why;     /* errno */
    bool onward; /* and all later ones */
    int seen;
};

static struct fault on_renameat, on_renameat2, on_linkat, on_fsync, on_fchown;
static void (*before_renameat)(void);

static bool strikes(struct fault *fault)
{
    fault->seen++;
    if (!fault->at || (fault->onward ? fault->seen < fault->at : fault->seen != fault->at))
        return false;
    errno = fault->why;
    return true;
}

int __real_renameat(int from, const char *old, int to, const char *new);
int __wrap_renameat(int from, const char *old, int to, const char *new);
int __real_renameat2(int from, const char *old, int to, const char *new, unsigned int flags);
int __wrap_renameat2(int from, const char *old, int to, const char *new, unsigned int flags);
int __real_linkat(int from, const char *old, int to, const char *new, int flags);
int __wrap_linkat(int from, const char *old, int to, const char *new, int flags);
int __real_fsync(int fd);
int __wrap_fsync(int fd);
int __real_fchown(int fd, uid_t user, gid_t group);
int __wrap_fchown(int fd, uid_t user, gid_t group);

int __wrap_renameat(int from, const char *old, int to, const char *new)
{
    if (before_renameat)
        before_renameat();
    return strikes(&on_renameat) ? -1 : __real_renameat(from, old, to, new);
}

int __wrap_renameat2(int from, const char *old, int to, const char *new, unsigned int flags)
{
    return strikes(&on_renameat2) ? -1 : __real_renameat2(from, old, to, new, flags);
}

int __wrap_linkat(int from, const char *old, int to, const char *new, int flags)
{
    return strikes(&on_linkat) ? -1 : __real_linkat(from, old, to, new, flags);
}

int __wrap_fsync(int fd)
{
    return strikes(&on_fsync) ? -1 : __real_fsync(fd);
}

int __wrap_fchown(int fd, uid_t user, gid_t group)
{
    return strikes(&on_fchown) ? -1 : __real_fchown(fd, user, group);
}

static void no_faults(void)
{
    const struct fault none = {0};

    on_renameat = on_renameat2 = on_linkat = on_fsync = on_fchown = none;
    before_renameat = NULL;
}

/* ---- a transaction for most tests ---- */

static const char *test_root;

static int setup(void **state)
{
    int rc = tree_setup(state);
    const struct tree *tree = *state;

    no_faults();
    test_root = tree->path;
    return rc;
}

static int teardown(void **state)
{
    no_faults();
    return tree_teardown(state);
}

static struct sp_txn *begin(const struct tree *tree)
{
    struct sp_txn *txn;

    assert_int_equal(sp_txn_begin(&txn, tree->path, "apply"), 0);
    return txn;
}

static int replace(struct sp_txn *txn, const char *path, const char *from, const char *to)
{
    struct sp_oid pre = oid_of(from);

    return sp_txn_replace(txn, path, &pre, to, strlen(to));
}

static int drop(struct sp_txn *txn, const char *path, const char *from)
{
    struct sp_oid pre = oid_of(from);

    return sp_txn_remove(txn, path, &pre);
}

static void put_old(const struct tree *tree)
{
    tree_put(tree, "pkg/a.py", "old a");
    tree_put(tree, "pkg/b.py", "old b");
    tree_put(tree, "pkg/gone.py", "old gone");
}

static void plan_all(struct sp_txn *txn)
{
    assert_int_equal(replace(txn, "pkg/a.py", "old a", "new a"), 0);
    assert_int_equal(replace(txn, "pkg/b.py", "old b", "new b"), 0);
    assert_int_equal(drop(txn, "pkg/gone.py", "old gone"), 0);
    assert_int_equal(sp_txn_create(txn, "added/deep/c.py", 0644, "new c", 5), 0);
}

/* The tree of before, and everything planned that a commit does. */
static struct sp_txn *planned(const struct tree *tree)
{
    struct sp_txn *txn;

    put_old(tree);
    txn = begin(tree);
    plan_all(txn);
    return txn;
}

static void assert_commit(struct sp_txn *txn, int rc)
{
    assert_int_equal(sp_txn_commit(txn), rc);
    sp_txn_free(txn);
}

static void commit(struct sp_txn *txn)
{
    assert_commit(txn, SP_OK);
}

static void assert_old(const struct tree *tree)
{
    assert_text(tree, "pkg/a.py", "old a");
    assert_text(tree, "pkg/b.py", "old b");
    assert_text(tree, "pkg/gone.py", "old gone");
    assert_int_equal(tree_count(tree), 4);
}

static void assert_new(const struct tree *tree)
{
    assert_text(tree, "pkg/a.py", "new a");
    assert_text(tree, "pkg/b.py", "new b");
    assert_text(tree, "added/deep/c.py", "new c");
    assert_int_equal(tree_count(tree), 6);
}

static bool is_pending(const struct tree *tree)
{
    bool pending;

    assert_int_equal(sp_txn_pending(&pending, NULL, tree->fd), 0);
    return pending;
}

/* Leave the tree interrupted while publishing: the first image is in, and nothing can be renamed any more. */
static void interrupt(const struct tree *tree)
{
    struct sp_txn *txn = planned(tree);

    on_renameat = (struct fault){.at = 3, .why = EIO, .onward = true}; /* 1: decide, 2: the first replaced file */
    assert_int_equal(sp_txn_commit(txn), SP_EINTERRUPTED);
    no_faults();
    sp_txn_free(txn);
    assert_true(is_pending(tree));
    assert_text(tree, "pkg/a.py", "new a");
    assert_text(tree, "pkg/b.py", "old b");
}

static const char *recover(const struct tree *tree)
{
    const char *outcome;

    if (sp_txn_recover(&outcome, tree->path, NULL, NULL) < 0)
        fail_msg("%s", sp_err_message());
    assert_false(is_pending(tree));
    return outcome;
}

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
    assert_commit(txn, SP_ECANNOT);
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
    txn = begin(tree);
    plan_all(txn);
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
    assert_int_equal(sp_txn_create(txn, ".sgl-pcie/manifest.json", 0644, "{}", 2), 0);
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

    assert_int_equal(sp_txn_create(txn, "\xff\xfe", 0644, "x", 1), 0);
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
    assert_int_equal(sp_txn_create(txn, "a", 0644, "new", 3), SP_EDRIFT);
    assert_said("'a' is already there");
    commit(txn);
    assert_text(tree, "a", "mine");
}

static void a_file_changed_between_plan_and_commit_survives(void **state)
{
    const struct tree *tree = *state;
    struct sp_txn *txn = planned(tree);

    tree_put(tree, "pkg/b.py", "mine");
    assert_int_equal(sp_txn_commit(txn), SP_EDRIFT);
    assert_said("'pkg/b.py'");
    sp_txn_free(txn);
    assert_text(tree, "pkg/a.py", "old a");
    assert_text(tree, "pkg/b.py", "mine");
    assert_int_equal(tree_count(tree), 4);
}

static void change_b_in_place(void)
{
    char path[128];
    int fd;

    snprintf(path, sizeof path, "%s/pkg/b.py", test_root);
    fd = open(path, O_WRONLY | O_TRUNC);
    assert_int_equal(write(fd, "mine", 4), 4);
    close(fd);
}

static void a_file_changed_while_publishing_survives(void **state)
{
    const struct tree *tree = *state;
    struct sp_txn *txn = planned(tree);

    before_renameat = change_b_in_place;
    assert_int_equal(sp_txn_commit(txn), SP_EDRIFT);
    assert_said("apply was taken back");
    sp_txn_free(txn);
    assert_text(tree, "pkg/a.py", "old a");
    assert_text(tree, "pkg/b.py", "mine");
    assert_int_equal(tree_count(tree), 4);
}

static void create_c(void)
{
    char path[128];
    int fd;

    snprintf(path, sizeof path, "%s/added/deep/c.py", test_root);
    fd = open(path, O_WRONLY | O_CREAT, 0644);
    assert_true(fd >= 0);
    close(fd);
}

static void a_file_created_meanwhile_is_not_replaced(void **state)
{
    const struct tree *tree = *state;
    struct sp_txn *txn = planned(tree);

    before_renameat = create_c;
    assert_commit(txn, SP_EDRIFT);
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
    assert_int_equal(sp_txn_create(txn, "../x", 0644, "x", 1), SP_ECANNOT);
    assert_int_equal(sp_txn_create(txn, "/tmp/x", 0644, "x", 1), SP_ECANNOT);
    assert_int_equal(sp_txn_create(txn, ".sgl-pcie/journal.done", 0644, "x", 1), SP_ECANNOT);
    assert_int_equal(sp_txn_create(txn, "link/new", 0644, "x", 1), SP_ECANNOT);
    assert_said("'link' is a symbolic link");
    assert_int_equal(replace(txn, "dirlink", "x", "y"), SP_ECANNOT);
    assert_int_equal(sp_txn_prune(txn, "../x"), SP_ECANNOT);
    assert_int_equal(sp_txn_create(txn, "once", 0644, "x", 1), 0);
    assert_int_equal(sp_txn_create(txn, "once", 0644, "x", 1), SP_ECANNOT);
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
    assert_int_equal(sp_txn_commit(txn), SP_EINTERRUPTED); /* it cannot be put back through the link either */
    assert_said("'pkg' is a symbolic link");
    sp_txn_free(txn);
    assert_text(tree, "away/a.py", "old a");
    assert_text(tree, "away/b.py", "old b");
    assert_int_equal(unlinkat(tree->fd, "pkg", 0), 0);
    assert_int_equal(__real_renameat(tree->fd, "away", tree->fd, "pkg"), 0);
    recover(tree);
    assert_old(tree);
}

/* ---- what cannot be written ---- */

static int as_nobody(const struct tree *tree, int (*run)(const struct tree *))
{
    pid_t child = fork();
    int status;

    assert_true(child >= 0);
    if (child == 0) {
        if (geteuid() == 0 && (setgid(65534) < 0 || setuid(65534) < 0))
            _exit(100);
        _exit(run(tree));
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static int commit_as_nobody(const struct tree *tree)
{
    struct sp_oid b = oid_of("old b");
    struct sp_txn *txn;
    int rc = sp_txn_begin(&txn, tree->path, "apply");

    if (rc >= 0)
        rc = sp_txn_replace(txn, "pkg/b.py", &b, "new b", 5);
    if (rc >= 0)
        rc = sp_txn_commit(txn);
    sp_txn_free(txn);
    return rc == SP_ECANNOT && strstr(sp_err_message(), "cannot write in") && sp_err_hint_text()[0] ? 0 : 1;
}

static void a_read_only_folder_is_found_before_anything_is_written(void **state)
{
    const struct tree *tree = *state;
    struct timespec before;

    put_old(tree);
    assert_int_equal(fchmod(tree->fd, 0777), 0); /* the journal could be written, the file's folder cannot */
    assert_int_equal(fchmodat(tree->fd, "pkg", 0555, 0), 0);
    before = tree_stat(tree, ".").st_mtim;
    assert_int_equal(as_nobody(tree, commit_as_nobody), 0);
    assert_int_equal(before.tv_nsec, tree_stat(tree, ".").st_mtim.tv_nsec);
    assert_int_equal(fchmodat(tree->fd, "pkg", 0755, 0), 0);
    assert_old(tree);
}

static void an_owner_that_cannot_be_kept_is_not_changed(void **state)
{
    const struct tree *tree = *state;
    struct sp_txn *txn;

    if (geteuid() != 0)
        skip();
    put_old(tree);
    assert_int_equal(fchownat(tree->fd, "pkg/a.py", 12, 34, 0), 0);
    txn = begin(tree);
    plan_all(txn);
    on_fchown = (struct fault){.at = 1, .why = EPERM, .onward = true};
    assert_int_equal(sp_txn_commit(txn), SP_ECANNOT);
    assert_said("cannot keep the owner");
    assert_said("apply has changed nothing");
    assert_non_null(strstr(sp_err_hint_text(), "as that user"));
    sp_txn_free(txn);
    assert_old(tree);
}

/* A file of ours that belongs to a group which we are not in. */
static void a_group_that_cannot_be_kept_is_told(void **state)
{
    const struct tree *tree = *state;
    struct sp_txn *txn;

    if (geteuid() != 0)
        skip();
    put_old(tree);
    assert_int_equal(fchownat(tree->fd, "pkg/a.py", geteuid(), 34, 0), 0);
    txn = begin(tree);
    plan_all(txn);
    on_fchown = (struct fault){.at = 1, .why = EPERM, .onward = true};
    assert_int_equal(sp_txn_commit(txn), SP_ECANNOT);
    assert_said("cannot keep the group");
    assert_said("(group 34)");
    assert_non_null(strstr(sp_err_hint_text(), "member of that group"));
    sp_txn_free(txn);
    assert_old(tree);
}

/* sudo sgl-pcie apply on somebody's venv. */
static void assert_owned(const struct tree *tree, const char *path, mode_t mode)
{
    struct stat st = tree_stat(tree, path);

    assert_int_equal(st.st_uid, 12);
    assert_int_equal(st.st_gid, 34);
    assert_int_equal(st.st_mode & 07777, mode);
}

static void what_root_makes_belongs_to_the_owner_of_the_tree(void **state)
{
    const struct tree *tree = *state;
    struct sp_txn *txn;

    if (geteuid() != 0)
        skip();
    put_old(tree);
    assert_int_equal(fchown(tree->fd, 12, 34), 0);
    assert_int_equal(fchmod(tree->fd, 02755), 0);
    txn = begin(tree);
    plan_all(txn);
    assert_int_equal(sp_txn_create(txn, ".sgl-pcie/manifest.json", 0644, "{}", 2), 0);
    assert_int_equal(sp_txn_create(txn, ".sgl-pcie/flag.json", 0644, "{}", 2), 0);
    commit(txn);
    assert_int_equal(tree_stat(tree, ".sgl-pcie/flag.json").st_uid, 0); /* root's word holds for every user */
    assert_owned(tree, "added", 02755);
    assert_owned(tree, "added/deep", 02755);
    assert_owned(tree, "added/deep/c.py", 0644);
    assert_owned(tree, ".sgl-pcie", 02755);
    assert_owned(tree, ".sgl-pcie/manifest.json", 0644);
    assert_int_equal(tree_stat(tree, "pkg/a.py").st_uid, 0); /* as it was */
}

static void what_root_interrupted_can_be_read_by_the_owner_of_the_tree(void **state)
{
    const struct tree *tree = *state;
    mode_t before;

    if (geteuid() != 0)
        skip();
    assert_int_equal(fchown(tree->fd, 12, 34), 0);
    before = umask(077);
    interrupt(tree);
    umask(before);
    assert_owned(tree, ".sgl-pcie", 0755);
    assert_owned(tree, ".sgl-pcie/journal.commit", 0644);
}

static void a_root_that_may_not_give_files_away_keeps_them(void **state)
{
    const struct tree *tree = *state;
    struct sp_txn *txn;

    if (geteuid() != 0)
        skip();
    assert_int_equal(fchown(tree->fd, 12, 34), 0);
    txn = begin(tree);
    assert_int_equal(sp_txn_create(txn, "x/y", 0644, "y", 1), 0);
    on_fchown = (struct fault){.at = 1, .why = EPERM, .onward = true};
    commit(txn);
    assert_text(tree, "x/y", "y");
    assert_int_equal(tree_stat(tree, "x/y").st_uid, 0);
}

/* ---- errors half-way ---- */

static void an_error_while_publishing_restores_the_very_inodes(void **state)
{
    const struct tree *tree = *state;
    struct stat before, after;
    struct sp_txn *txn;

    put_old(tree);
    assert_int_equal(linkat(tree->fd, "pkg/a.py", tree->fd, "cache", 0), 0);
    before = tree_stat(tree, "pkg/a.py");
    txn = begin(tree);
    plan_all(txn);
    on_renameat = (struct fault){.at = 3, .why = ENOSPC}; /* 1: decide, 2: a.py */
    assert_int_equal(sp_txn_commit(txn), SP_ECANNOT);
    assert_said("apply was taken back");
    assert_said("No space left");
    assert_said("pkg/b.py");
    sp_txn_free(txn);
    after = tree_stat(tree, "pkg/a.py");
    assert_int_equal(before.st_ino, after.st_ino);
    assert_int_equal(after.st_nlink, 2);
    assert_int_equal(before.st_mtim.tv_nsec, after.st_mtim.tv_nsec);
    assert_int_equal(unlinkat(tree->fd, "cache", 0), 0);
    assert_old(tree);
}

static void without_hard_links_a_copy_is_put_back(void **state)
{
    const struct tree *tree = *state;
    struct stat before, after;
    struct sp_txn *txn;

    put_old(tree);
    assert_int_equal(fchmodat(tree->fd, "pkg/a.py", 0600, 0), 0);
    before = tree_stat(tree, "pkg/a.py");
    txn = begin(tree);
    plan_all(txn);
    on_linkat = (struct fault){.at = 1, .why = EPERM, .onward = true};
    on_renameat = (struct fault){.at = 3, .why = EIO};
    assert_commit(txn, SP_ECANNOT);
    after = tree_stat(tree, "pkg/a.py");
    assert_int_equal(after.st_mode, before.st_mode);
    assert_int_equal(after.st_mtim.tv_sec, before.st_mtim.tv_sec);
    assert_int_equal(after.st_mtim.tv_nsec, before.st_mtim.tv_nsec);
    assert_old(tree);
}

static void a_file_system_without_noreplace_will_do(void **state)
{
    const struct tree *tree = *state;
    struct sp_txn *txn;

    for (int links = 0; links < 2; links++) {
        char name[16];

        snprintf(name, sizeof name, "n%d", links);
        no_faults();
        txn = begin(tree);
        assert_int_equal(sp_txn_create(txn, name, 0644, "x", 1), 0);
        on_renameat2 = (struct fault){.at = 1, .why = EINVAL, .onward = true};
        on_linkat = (struct fault){.at = links, .why = EOPNOTSUPP, .onward = true};
        commit(txn);
        assert_text(tree, name, "x");
        assert_int_equal(tree_count(tree), links + 1);
    }
}

static void a_full_disk_at_any_fsync_leaves_the_old_tree(void **state)
{
    const struct tree *tree = *state;
    int rc = -1;

    put_old(tree);
    for (int at = 1; rc < 0; at++) {
        struct sp_txn *txn = begin(tree);

        plan_all(txn);
        no_faults();
        on_fsync = (struct fault){.at = at, .why = ENOSPC};
        rc = sp_txn_commit(txn);
        sp_txn_free(txn);
        assert_true(rc == 0 || rc == SP_ECANNOT || rc == SP_EINTERRUPTED);
        if (rc == SP_ECANNOT)
            assert_old(tree);
        if (rc == SP_EINTERRUPTED) { /* while cleaning up: everything is new */
            no_faults();
            assert_string_equal(recover(tree), "rolled forward");
            break;
        }
    }
    assert_new(tree);
}

static void a_folder_that_cannot_be_synced_is_no_error(void **state)
{
    const struct tree *tree = *state;
    struct sp_txn *txn = begin(tree);

    assert_int_equal(sp_txn_create(txn, "a", 0644, "x", 1), 0);
    on_fsync = (struct fault){.at = 2, .why = EINVAL}; /* 1: the journal's file, 2: its folder */
    commit(txn);
    assert_text(tree, "a", "x");
}

static void terminate(void)
{
    raise(SIGTERM);
}

static void ctrl_c_waits_for_the_commit(void **state)
{
    const struct tree *tree = *state;
    pid_t child;
    int status;

    put_old(tree);
    child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        struct sp_txn *txn = begin(tree);

        plan_all(txn);
        before_renameat = terminate;
        (void)sp_txn_commit(txn);
        _exit(1); /* the signal came first */
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status));
    assert_int_equal(WTERMSIG(status), SIGTERM);
    assert_new(tree);
}

/* In a child: the limit is for good. */
static void commit_large_file_and_exit(const struct tree *tree, rlim_t limit)
{
    static char large[8192];
    struct sp_oid old = oid_of("old b");
    struct sp_txn *txn = begin(tree);
    struct rlimit at = {limit, limit};
    int rc = sp_txn_create(txn, "x/small.py", 0644, "x", 1);

    memset(large, '#', sizeof large);
    (void)signal(SIGXFSZ, SIG_IGN);
    if (rc == 0)
        rc = sp_txn_replace(txn, "pkg/b.py", &old, large, sizeof large);
    if (rc == 0 && setrlimit(RLIMIT_FSIZE, &at) == 0)
        rc = sp_txn_commit(txn);
    _exit(rc == SP_ECANNOT && strstr(sp_err_message(), "File too large") ? 0 : 1);
}

static void a_file_size_limit_does_not_kill_half_way(void **state)
{
    static const rlim_t limits[] = {0, 4096}; /* the journal does not fit; it does, but the file does not */
    const struct tree *tree = *state;

    put_old(tree);
    for (size_t i = 0; i < sizeof limits / sizeof limits[0]; i++) {
        pid_t child = fork();
        int status;

        assert_true(child >= 0);
        if (child == 0)
            commit_large_file_and_exit(tree, limits[i]);
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(WIFEXITED(status));
        assert_int_equal(WEXITSTATUS(status), 0);
        assert_old(tree);
        assert_false(is_pending(tree));
    }
}

/* ---- interrupted ---- */

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
    assert_true(child >= 0);
    if (child == 0) {
        struct sp_txn *txn = begin(tree);

        plan_all(txn);
        before_renameat = linger;
        _exit(sp_txn_commit(txn) == 0 ? 0 : 1);
    }
    for (int i = 0; i < 5000 && !tree_has(tree, ".sgl-pcie/journal.stage"); i++)
        usleep(1000);
    assert_false(is_pending(tree));
    assert_new(tree);
    assert_int_equal(waitpid(child, NULL, 0), child);
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
    const char *outcome;
    int count;

    interrupt(tree);
    assert_int_equal(unlinkat(tree->fd, tree_find(tree, "-2.new"), 0), 0);
    assert_int_equal(unlinkat(tree->fd, tree_find(tree, "-1.old"), 0), 0);
    count = tree_count(tree);
    assert_int_equal(sp_txn_recover(&outcome, tree->path, NULL, NULL), SP_EDRIFT);
    assert_said("neither all old nor all new");
    assert_int_equal(tree_count(tree), count);
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
    const char *outcome;
    int count;

    interrupt(tree);
    tree_put(tree, "pkg/a.py", "mine");
    tree_put(tree, "pkg/gone.py", "mine too");
    count = tree_count(tree);
    assert_int_equal(sp_txn_recover(&outcome, tree->path, NULL, NULL), SP_EDRIFT);
    assert_said("2 files, the first: 'pkg/a.py' was changed by somebody else");
    assert_int_equal(tree_count(tree), count);
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
    const char *outcome;
    int count;

    interrupt(tree);
    reinstall(tree, "pkg/b.py", NULL);
    reinstall(tree, "pkg/a.py", "mine");
    count = tree_count(tree);
    assert_int_equal(sp_txn_recover(&outcome, tree->path, is_other_release, (char *)(uintptr_t) "pkg/a.py"), SP_EDRIFT);
    assert_said("'pkg/a.py' was changed by somebody else");
    assert_int_equal(tree_count(tree), count);
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

static void recover_does_not_follow_a_planted_link(void **state)
{
    const struct tree *tree = *state;
    const char *outcome;

    interrupt(tree);
    assert_int_equal(renameat(tree->fd, "pkg", tree->fd, "away"), 0);
    tree_link(tree, "away", "pkg");
    assert_int_equal(sp_txn_recover(&outcome, tree->path, NULL, NULL), SP_ECANNOT);
    assert_said("'pkg' is a symbolic link");
    assert_text(tree, "away/b.py", "old b");
}

static void an_unreadable_journal_is_pending_and_explained(void **state)
{
    const struct tree *tree = *state;
    const char *outcome;
    struct sp_txn *txn;
    char *command;
    bool pending;

    tree_put(tree, ".sgl-pcie/journal.commit", "garbage");
    assert_int_equal(sp_txn_pending(&pending, &command, tree->fd), 0);
    assert_true(pending);
    assert_null(command);
    assert_int_equal(sp_txn_begin(&txn, tree->path, "apply"), SP_EINTERRUPTED);
    assert_int_equal(sp_txn_recover(&outcome, tree->path, NULL, NULL), SP_EINTERRUPTED);
    assert_said("'.sgl-pcie/journal.commit' was not written by this tool");
    assert_text(tree, ".sgl-pcie/journal.commit", "garbage");
    tree_put(tree, ".sgl-pcie/journal.done", "garbage");
    assert_true(is_pending(tree));
    assert_int_equal(sp_txn_recover(&outcome, tree->path, NULL, NULL), SP_EINTERRUPTED);
    assert_said("are both there");
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

#define IN_TREE(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

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
        IN_TREE(a_read_only_folder_is_found_before_anything_is_written),
        IN_TREE(an_owner_that_cannot_be_kept_is_not_changed),
        IN_TREE(a_group_that_cannot_be_kept_is_told),
        IN_TREE(what_root_makes_belongs_to_the_owner_of_the_tree),
        IN_TREE(what_root_interrupted_can_be_read_by_the_owner_of_the_tree),
        IN_TREE(a_root_that_may_not_give_files_away_keeps_them),
        IN_TREE(an_error_while_publishing_restores_the_very_inodes),
        IN_TREE(without_hard_links_a_copy_is_put_back),
        IN_TREE(a_file_system_without_noreplace_will_do),
        IN_TREE(a_full_disk_at_any_fsync_leaves_the_old_tree),
        IN_TREE(a_folder_that_cannot_be_synced_is_no_error),
        IN_TREE(ctrl_c_waits_for_the_commit),
        IN_TREE(a_file_size_limit_does_not_kill_half_way),
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
