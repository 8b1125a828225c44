/* The transaction where it cannot be carried out: nothing has changed, or all is taken back. */
#include "txn_tree.h"

#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

/* ---- who may ---- */

static int as_nobody(const struct tree *tree, int (*run)(const struct tree *))
{
    pid_t child = fork();
    int status;

    if (child == 0) {
        if (geteuid() == 0 && (setgid(65534) < 0 || setuid(65534) < 0))
            _exit(100);
        _exit(run(tree));
    }
    status = status_of(child);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static int commit_as_nobody(const struct tree *tree)
{
    struct sp_txn *txn;
    int rc = sp_txn_begin(&txn, tree->path, "apply");

    if (rc >= 0)
        rc = replace(txn, "pkg/b.py", "old b", "new b");
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

/* a.py belongs to others, and cannot be given to them. */
static void assert_not_kept(const struct tree *tree, uid_t user, const char *what, const char *hint)
{
    struct sp_txn *txn;

    needs_root();
    put_old(tree);
    assert_int_equal(fchownat(tree->fd, "pkg/a.py", user, 34, 0), 0);
    txn = begin_all(tree);
    on_fchown = (struct fault){.at = 1, .why = EPERM, .onward = true};
    assert_commit(txn, SP_ECANNOT, what);
    assert_said("apply has changed nothing");
    assert_non_null(strstr(sp_err_hint_text(), hint));
    assert_old(tree);
}

static void an_owner_that_cannot_be_kept_is_not_changed(void **state)
{
    assert_not_kept(*state, 12, "cannot keep the owner", "as that user");
}

/* A file of ours that belongs to a group which we are not in. */
static void a_group_that_cannot_be_kept_is_told(void **state)
{
    assert_not_kept(*state, geteuid(), "cannot keep the group", "member of that group");
    assert_said("(group 34)");
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

    needs_root();
    put_old(tree);
    assert_int_equal(fchown(tree->fd, 12, 34), 0);
    assert_int_equal(fchmod(tree->fd, 02755), 0);
    txn = begin_all(tree);
    assert_int_equal(create(txn, ".sgl-pcie/manifest.json", "{}"), 0);
    assert_int_equal(create(txn, ".sgl-pcie/flag.json", "{}"), 0);
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

    needs_root();
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

    needs_root();
    assert_int_equal(fchown(tree->fd, 12, 34), 0);
    txn = begin(tree);
    assert_int_equal(create(txn, "x/y", "y"), 0);
    on_fchown = (struct fault){.at = 1, .why = EPERM, .onward = true};
    commit(txn);
    assert_text(tree, "x/y", "y");
    assert_int_equal(tree_stat(tree, "x/y").st_uid, 0);
}

/* ---- half-way ---- */

/* The third rename fails (1: decide, 2: a.py). The file that has been replaced by then is as it was. */
static struct stat assert_taken_back(const struct tree *tree, int why, const char *said)
{
    struct stat before = tree_stat(tree, "pkg/a.py"), after;
    struct sp_txn *txn = begin_all(tree);

    on_renameat = (struct fault){.at = 3, .why = why};
    assert_commit(txn, SP_ECANNOT, "apply was taken back");
    assert_said(said);
    assert_said("pkg/b.py");
    after = tree_stat(tree, "pkg/a.py");
    assert_int_equal(after.st_mode, before.st_mode);
    assert_int_equal(after.st_mtim.tv_sec, before.st_mtim.tv_sec);
    assert_int_equal(after.st_mtim.tv_nsec, before.st_mtim.tv_nsec);
    return after;
}

static void an_error_while_publishing_restores_the_very_inodes(void **state)
{
    const struct tree *tree = *state;
    struct stat before, after;

    put_old(tree);
    assert_int_equal(linkat(tree->fd, "pkg/a.py", tree->fd, "cache", 0), 0);
    before = tree_stat(tree, "pkg/a.py");
    after = assert_taken_back(tree, ENOSPC, "No space left");
    assert_int_equal(before.st_ino, after.st_ino);
    assert_int_equal(after.st_nlink, 2);
    assert_int_equal(unlinkat(tree->fd, "cache", 0), 0);
    assert_old(tree);
}

static void without_hard_links_a_copy_is_put_back(void **state)
{
    const struct tree *tree = *state;

    put_old(tree);
    assert_int_equal(fchmodat(tree->fd, "pkg/a.py", 0600, 0), 0);
    on_linkat = (struct fault){.at = 1, .why = EPERM, .onward = true};
    (void)assert_taken_back(tree, EIO, "Input/output error");
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
        assert_int_equal(create(txn, name, "x"), 0);
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
        struct sp_txn *txn = begin_all(tree);

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

    assert_int_equal(create(txn, "a", "x"), 0);
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
    if (child == 0) {
        struct sp_txn *txn = begin_all(tree);

        before_renameat = terminate;
        (void)sp_txn_commit(txn);
        _exit(1); /* the signal came first */
    }
    status = status_of(child);
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
    int rc = create(txn, "x/small.py", "x");

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

        if (child == 0)
            commit_large_file_and_exit(tree, limits[i]);
        assert_int_equal(status_of(child), 0);
        assert_old(tree);
        assert_false(is_pending(tree));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
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
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
