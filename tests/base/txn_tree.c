#include "txn_tree.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

struct fault on_renameat, on_renameat2, on_linkat, on_fsync, on_fchown;
void (*before_renameat)(void);
const char *test_root;

/* ---- failing calls ---- */

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

void no_faults(void)
{
    const struct fault none = {0};

    on_renameat = on_renameat2 = on_linkat = on_fsync = on_fchown = none;
    before_renameat = NULL;
}

/* ---- life ---- */

int txn_setup(void **state)
{
    int rc = tree_setup(state);
    const struct tree *tree = *state;

    no_faults();
    test_root = tree->path;
    return rc;
}

int txn_teardown(void **state)
{
    no_faults();
    return tree_teardown(state);
}

void needs_root(void)
{
    if (geteuid() != 0)
        skip();
}

/* ---- a transaction ---- */

struct sp_txn *begin(const struct tree *tree)
{
    struct sp_txn *txn;

    assert_int_equal(sp_txn_begin(&txn, tree->path, "apply"), 0);
    return txn;
}

int replace(struct sp_txn *txn, const char *path, const char *from, const char *to)
{
    struct sp_oid pre = oid_of(from);

    return sp_txn_replace(txn, path, &pre, to, strlen(to));
}

int drop(struct sp_txn *txn, const char *path, const char *from)
{
    struct sp_oid pre = oid_of(from);

    return sp_txn_remove(txn, path, &pre);
}

int create(struct sp_txn *txn, const char *path, const char *text)
{
    return sp_txn_create(txn, path, 0644, text, strlen(text));
}

void put_old(const struct tree *tree)
{
    tree_put(tree, "pkg/a.py", "old a");
    tree_put(tree, "pkg/b.py", "old b");
    tree_put(tree, "pkg/gone.py", "old gone");
}

struct sp_txn *begin_all(const struct tree *tree)
{
    struct sp_txn *txn = begin(tree);

    assert_int_equal(replace(txn, "pkg/a.py", "old a", "new a"), 0);
    assert_int_equal(replace(txn, "pkg/b.py", "old b", "new b"), 0);
    assert_int_equal(drop(txn, "pkg/gone.py", "old gone"), 0);
    assert_int_equal(create(txn, "added/deep/c.py", "new c"), 0);
    return txn;
}

struct sp_txn *planned(const struct tree *tree)
{
    put_old(tree);
    return begin_all(tree);
}

void assert_commit(struct sp_txn *txn, int rc, const char *said)
{
    assert_int_equal(sp_txn_commit(txn), rc);
    if (said)
        assert_said(said);
    sp_txn_free(txn);
}

void commit(struct sp_txn *txn)
{
    assert_commit(txn, SP_OK, NULL);
}

/* ---- what is there then ---- */

void assert_old(const struct tree *tree)
{
    assert_text(tree, "pkg/a.py", "old a");
    assert_text(tree, "pkg/b.py", "old b");
    assert_text(tree, "pkg/gone.py", "old gone");
    assert_int_equal(tree_count(tree), 4);
}

void assert_new(const struct tree *tree)
{
    assert_text(tree, "pkg/a.py", "new a");
    assert_text(tree, "pkg/b.py", "new b");
    assert_text(tree, "added/deep/c.py", "new c");
    assert_int_equal(tree_count(tree), 6);
}

void assert_mine_in_b(const struct tree *tree)
{
    assert_text(tree, "pkg/a.py", "old a");
    assert_text(tree, "pkg/b.py", "mine");
    assert_int_equal(tree_count(tree), 4);
}

bool is_pending(const struct tree *tree)
{
    bool pending;

    assert_int_equal(sp_txn_pending(&pending, NULL, tree->fd), 0);
    return pending;
}

void interrupt(const struct tree *tree)
{
    struct sp_txn *txn = planned(tree);

    on_renameat = (struct fault){.at = 3, .why = EIO, .onward = true}; /* 1: decide, 2: the first replaced file */
    assert_commit(txn, SP_EINTERRUPTED, NULL);
    no_faults();
    assert_true(is_pending(tree));
    assert_text(tree, "pkg/a.py", "new a");
    assert_text(tree, "pkg/b.py", "old b");
}

const char *recover(const struct tree *tree)
{
    const char *outcome;

    if (sp_txn_recover(&outcome, tree->path, NULL, NULL) < 0)
        fail_msg("%s", sp_err_message());
    assert_false(is_pending(tree));
    return outcome;
}

int status_of(pid_t child)
{
    int status;

    assert_true(child > 0);
    assert_int_equal(waitpid(child, &status, 0), child);
    return status;
}
