/*
 * Files below a directory, and bytes in memory.
 *
 * Everything that touches an install goes through a directory descriptor and a relative path that is
 * resolved beneath it without following a symbolic link in any component (openat2 with RESOLVE_BENEATH
 * and RESOLVE_NO_SYMLINKS; a walk with O_NOFOLLOW where the kernel or a sandbox lacks openat2). A patch
 * or a planted link can therefore never lead outside the install.
 *
 * Blob ids are git's: SHA-1 over "blob <size>\0" and the bytes, 40 lower-case hex digits.
 */
#ifndef SP_BASE_FILE_H
#define SP_BASE_FILE_H

#include <glob.h>
#include <stddef.h>
#include <sys/stat.h>
#include <sys/types.h>

struct sp_buf {
    char *data; /* NUL-terminated after every successful call, for convenience; owned by the buffer */
    size_t len;
};
#define SP_BUF_INIT                                                                                                    \
    {                                                                                                                  \
        NULL, 0                                                                                                        \
    }

enum { SP_OID_HEX = 40, SP_SHA256_HEX = 64 };
struct sp_oid {
    char hex[SP_OID_HEX + 1];
};

/* Free the bytes and set to zero; safe on a zeroed buffer. */
void sp_buf_free(struct sp_buf *buf);
int sp_buf_set(struct sp_buf *buf, const void *data, size_t len);
int sp_buf_append(struct sp_buf *buf, const void *data, size_t len);
int sp_buf_printf(struct sp_buf *buf, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Is there a folder, or a link to one? */
int sp_is_folder(const char *path);

/* glob(3) beneath a folder whose own path is no pattern, whatever is in it. Always to be followed by globfree();
 * nothing is found where memory is short. */
void sp_glob_beneath(glob_t *hits, const char *folder, const char *pattern);

/* True for a non-empty relative path without empty, "." or ".." components and not longer than PATH_MAX. */
int sp_path_is_safe(const char *path);

/* Open path beneath dirfd, O_CLOEXEC added. *fd = -1 on error; errno is kept for the caller to judge. */
int sp_open_beneath(int *fd, int dirfd, const char *path, int flags, mode_t mode);

/* Read a regular file of at most max bytes. ENOENT gives 1 and an empty buffer, so that "missing" is no error. */
int sp_read_beneath(struct sp_buf *out, struct stat *st, int dirfd, const char *path, size_t max);

/* The same by absolute or process-relative path, links followed: for our own data, not for an install. */
int sp_read_file(struct sp_buf *out, const char *path, size_t max);

/* The error of a write to name that failed with errno; of the limit on the size of files (ulimit -f) it says how much
 * that is. SP_ECANNOT. */
int sp_write_failed(const char *name);

/* Write all bytes to fd, EINTR and short writes handled. */
int sp_write_all(int fd, const void *data, size_t len, const char *name);

/* rename(2) within dir that fails with EEXIST rather than replace; where the file system cannot, the old name may stay
 * beside the new one. 0, or -1 with errno; sets no message. */
int sp_rename_noreplace(int dir, const char *from, const char *to);

/* Give what was just made in dir to dir's owner and group, when we are root: with sudo the owner of a tree must still
 * be able to change and to remove all of it. Not an error where root may not (user namespaces, NFS). */
int sp_adopt(int fd, int dir, const char *path);

/* Make directory name in dir, and open it: owner and group as dir (sp_adopt), mode 0755 whatever the umask is, since
 * every user of a Python imports from it, and the set-gid bit that dir hands on. 1 when it was there. */
int sp_make_dir(int *fd, int dir, const char *name, const char *path);

int sp_blob_id(struct sp_oid *out, const void *data, size_t len);
int sp_sha256(char out[SP_SHA256_HEX + 1], const void *data, size_t len);

#endif
