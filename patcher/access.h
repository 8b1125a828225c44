/*
 * May we write here? Asked before anything is written, so that a read-only image or another user's environment gets an
 * answer that says what to do instead.
 */
#ifndef SP_PATCHER_ACCESS_H
#define SP_PATCHER_ACCESS_H

/* Can entries be made and replaced in the folder of path (relative to dirfd)? A folder that is not there yet is no
 * obstacle. SP_ECANNOT with the reason; shown: the directory that dirfd is, for the message. */
int sp_access_check(int dirfd, const char *shown, const char *path);

#endif
