/*
 * A transaction over an install: several files changed together, or none.
 *
 * Purpose. Patching touches a handful of files that Python imports together. Whatever happens in between
 * (an error, a full disk, kill -9, a power cut), the tree must be the old one, the new one, or one that
 * `recover` brings to either; no file is ever torn, and no mixture is ever called fine.
 *
 * Calling sequence.
 *
 *     struct sp_txn *txn;
 *     sp_txn_begin(&txn, root, "apply");              // lock; refuses while an old journal is pending
 *     sp_txn_replace(txn, "a/b.py", &pre, data, len);  // only if the file's blob id is still pre
 *     sp_txn_create(txn, "c/d.py", 0644, data, len);   // only if nothing is there
 *     sp_txn_remove(txn, "c/e.py", &pre);
 *     rc = sp_txn_commit(txn);                        // all or nothing
 *     sp_txn_free(txn);                               // without commit: nothing was written
 *
 * What commit does, in this order, each step made durable (fsync of file and directory) before the next:
 *   1. stage: the journal in <root>/.sgl-pcie/ (base/journal.h) names every path with its old and new blob id; then
 *      missing directories are made, every new image is written to a side file in the target's own directory (mode,
 *      owner and extended attributes as the old file), and every old image is kept as a second side file (a hard
 *      link where possible, so that putting it back restores the very inode). Nothing visible has changed but
 *      empty directories. A crash here is rolled back by deleting side files.
 *   2. decide: the journal is renamed to say "commit". A crash from here on is rolled forward; all bytes that this
 *      needs are already on disk.
 *   3. publish: every live file is hashed once more, then renamed over (rename(2) is atomic; a hard link or a mapped
 *      file elsewhere keeps the old inode). Created files come first, then replaced ones, removed ones last.
 *   4. done: the old images go, then directories that became empty, then the journal.
 * An error in 1 undoes 1. An error in 3 renames the journal to say "abort" and puts the old images back; if even that
 * fails the journal stays and the code is SP_EINTERRUPTED. SIGHUP, SIGINT, SIGQUIT and SIGTERM wait until it is over;
 * a file size limit (ulimit -f) is an error like a full disk where SIGXFSZ is ignored, as main() does.
 *
 * Concurrency: an exclusive flock(2) on the root directory itself, which leaves no lock file behind. The
 * loser waits up to a few seconds, then gets SP_ECANNOT naming the holder's pid if it can be known.
 * Readers need no lock: sp_txn_pending() tells them that a journal is there; it waits as long for a writer at work.
 */
#ifndef SP_BASE_TXN_H
#define SP_BASE_TXN_H

#include "base/file.h"

#include <stdbool.h>

#define SP_STATE_DIR ".sgl-pcie"

struct sp_txn;

/* root: an existing directory, opened and locked here. command: recorded in the journal, shown by status. */
int sp_txn_begin(struct sp_txn **out, const char *root, const char *command);

/* Directory descriptor of the root, for reading under the lock; owned by the transaction. */
int sp_txn_dirfd(const struct sp_txn *txn);

/* Plan one change. The bytes are copied. Paths must be safe (sp_path_is_safe) and may appear once.
 * replace keeps the file's mode, owner and extended attributes; SP_EDRIFT if its blob id is not pre.
 * create makes missing parent directories (0755, modified by the parent's set-gid as usual). What root creates belongs
 * to the owner and group of the directory that it is made in; all but the flag, whose owner has a meaning. */
int sp_txn_replace(struct sp_txn *txn, const char *path, const struct sp_oid *pre, const void *data, size_t len);
int sp_txn_create(struct sp_txn *txn, const char *path, mode_t mode, const void *data, size_t len);
int sp_txn_remove(struct sp_txn *txn, const char *path, const struct sp_oid *pre);

/* Also remove this directory if it is empty after the commit (deepest first; not an error if it is not). */
int sp_txn_prune(struct sp_txn *txn, const char *dir);

/* Number of hard-linked files (st_nlink > 1) among the replaced ones: their links are broken by the rename. */
size_t sp_txn_broken_links(const struct sp_txn *txn);

/* SP_OK, or nothing has changed (SP_EDRIFT, SP_ECANNOT), or SP_EINTERRUPTED: run recover. */
int sp_txn_commit(struct sp_txn *txn);
void sp_txn_free(struct sp_txn *txn);

/* Is a journal there, or the beginning of one? *out = true also for a journal that cannot be read: the tree is then not
 * fine either. An empty state directory means nothing. command (may be NULL): the command that was interrupted, for the
 * caller to free; NULL when unreadable. Not to be called while holding a transaction. */
int sp_txn_pending(bool *out, char **command, int dirfd);

/* Is this the blob id of a released file of this path, of whatever release? */
typedef bool sp_txn_released(void *context, const char *path, const struct sp_oid *live);

/* Finish or roll back what a journal describes. *outcome: "nothing to do", "rolled forward", "rolled back", or "rolled
 * back; files that ...". May be killed and run again at any point.
 *
 * A file that is neither the old nor the new image was written by somebody else since. One that is released (NULL: none
 * is), or that is missing, was reinstalled or uninstalled: it is left alone, and all others are rolled back, whatever
 * the journal says, because what is new here may not fit it. Any other stops recover before any write: SP_EDRIFT names
 * it. */
int sp_txn_recover(const char **outcome, const char *root, sp_txn_released *released, void *context);

#endif
