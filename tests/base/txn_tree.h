/*
 * A tree with three files, a transaction over it that replaces two, removes one and adds one, and calls that fail:
 * renameat, renameat2, linkat, fsync and fchown go through here (see CMakeLists.txt). Failures are cmocka's.
 */
#ifndef SP_TESTS_BASE_TXN_TREE_H
#define SP_TESTS_BASE_TXN_TREE_H

#include "base/err.h"
#include "base/txn.h"
#include "tree.h"

struct fault {
    int at;      /* which call fails, from 1; 0: none */
    int why;     /* errno */
    bool onward; /* and all later ones */
    int seen;
};

extern struct fault on_renameat, on_renameat2, on_linkat, on_fsync, on_fchown;
extern void (*before_renameat)(void);

void no_faults(void);

/* Of the tree of the present test, for before_renameat. */
extern const char *test_root;

/* cmocka setup and teardown. */
int txn_setup(void **state);
int txn_teardown(void **state);
#define IN_TREE(test) cmocka_unit_test_setup_teardown(test, txn_setup, txn_teardown)

/* The test is of root's doings. */
void needs_root(void);

struct sp_txn *begin(const struct tree *tree);
int replace(struct sp_txn *txn, const char *path, const char *from, const char *to);
int drop(struct sp_txn *txn, const char *path, const char *from);
int create(struct sp_txn *txn, const char *path, const char *text);

void put_old(const struct tree *tree);

/* Everything planned, in a tree as put_old() makes it; planned() makes it. */
struct sp_txn *begin_all(const struct tree *tree);
struct sp_txn *planned(const struct tree *tree);

/* Commit and free. said: part of the message, or NULL. */
void commit(struct sp_txn *txn);
void assert_commit(struct sp_txn *txn, int rc, const char *said);

void assert_old(const struct tree *tree);
void assert_new(const struct tree *tree);

/* Somebody else's text in the second file, and nothing of ours. */
void assert_mine_in_b(const struct tree *tree);

bool is_pending(const struct tree *tree);

/* Leave the tree interrupted while publishing: the first image is in, and nothing can be renamed any more. */
void interrupt(const struct tree *tree);

/* It must work, and leave nothing pending. */
const char *recover(const struct tree *tree);

/* The status of a child, as waitpid() gives it. */
int status_of(pid_t child);

#endif
