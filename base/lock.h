/*
 * One writer at a time: an exclusive flock(2) on a directory itself.
 *
 * It leaves no lock file behind and ends with the process, however that ends. Network file systems may keep it
 * to one host; the journal's exclusive creation (base/journal.h) then decides between two hosts.
 */
#ifndef SP_BASE_LOCK_H
#define SP_BASE_LOCK_H

#include <signal.h>

enum { SP_LOCK_WAIT_MS = 5000 };

/* Open and lock; close *fd to unlock. Waits up to wait_ms, then SP_ECANNOT with the holder's pid if it can be known. */
int sp_lock_dir(int *fd, const char *path, int wait_ms);

/* The same for an open directory; kind is flock's LOCK_SH or LOCK_EX. *fd is a new descriptor. */
int sp_lock_fd(int *fd, int dirfd, int kind, int wait_ms);

/* Tried once; kind as above. 1: another process has it, *pid, or 0 where that cannot be known. */
int sp_lock_try(int *fd, int *pid, const char *path, int kind);

/* Whose lock it is, in words, and the hint to wait for it; pid 0: another process. Returns rc. */
enum { SP_LOCK_WHO = 32 };
const char *sp_lock_who(char out[SP_LOCK_WHO], int pid);
int sp_lock_hint(int rc, int pid);

/* Let SIGHUP, SIGINT, SIGQUIT and SIGTERM wait: a commit takes milliseconds, an interrupted one costs a recover. */
void sp_hold_signals(sigset_t *before);
void sp_release_signals(const sigset_t *before);

#endif
