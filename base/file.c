#include "base/file.h"

#include "base/err.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

/* ---- bytes ---- */

void sp_buf_free(struct sp_buf *buf)
{
    free(buf->data);
    buf->data = NULL;
    buf->len = 0;
}

int sp_buf_append(struct sp_buf *buf, const void *data, size_t len)
{
    char *grown;

    if (len > SIZE_MAX - buf->len - 1)
        return sp_err(SP_ECANNOT, "out of memory");
    grown = realloc(buf->data, buf->len + len + 1);
    if (!grown)
        return sp_err(SP_ECANNOT, "out of memory");
    buf->data = grown;
    if (len)
        memcpy(buf->data + buf->len, data, len);
    buf->len += len;
    buf->data[buf->len] = '\0';
    return SP_OK;
}

int sp_buf_set(struct sp_buf *buf, const void *data, size_t len)
{
    struct sp_buf fresh = SP_BUF_INIT;
    int rc = sp_buf_append(&fresh, data, len); /* data may point into buf */

    if (rc < 0)
        return rc;
    sp_buf_free(buf);
    *buf = fresh;
    return SP_OK;
}

int sp_buf_printf(struct sp_buf *buf, const char *fmt, ...)
{
    va_list args;
    char *text;
    int len, rc;

    va_start(args, fmt);
    len = vasprintf(&text, fmt, args);
    va_end(args);
    if (len < 0)
        return sp_err(SP_ECANNOT, "out of memory");
    rc = sp_buf_append(buf, text, (size_t)len);
    free(text);
    return rc;
}

/* ---- paths ---- */

static bool is_dots(const char *name, size_t len)
{
    return (len == 1 && name[0] == '.') || (len == 2 && name[0] == '.' && name[1] == '.');
}

int sp_is_folder(const char *path)
{
    struct stat st;

    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

void sp_glob_beneath(glob_t *hits, const char *folder, const char *pattern)
{
    struct sp_buf whole = SP_BUF_INIT;
    int rc = SP_OK;

    memset(hits, 0, sizeof *hits);
    for (; *folder && rc == SP_OK; folder++)
        rc = sp_buf_printf(&whole, "%s%c", strchr("*?[\\", *folder) ? "\\" : "", *folder);
    if (rc == SP_OK)
        rc = sp_buf_printf(&whole, "/%s", pattern);
    if (rc == SP_OK)
        (void)glob(whole.data, 0, NULL, hits);
    sp_buf_free(&whole);
}

int sp_path_is_safe(const char *path)
{
    const char *name = path;

    if (strlen(path) >= PATH_MAX)
        return 0;
    for (;;) {
        size_t len = strcspn(name, "/");

        if (len == 0 || len > NAME_MAX || is_dots(name, len))
            return 0;
        if (name[len] == '\0')
            return 1;
        name += len + 1;
    }
}

/* ---- opening beneath a directory ---- */

/* errno ENOSYS: this kernel or sandbox has no openat2 (old seccomp profiles answer EPERM for what they do not know). */
static int open_by_openat2(int dirfd, const char *path, int flags, mode_t mode)
{
    struct open_how how = {
        .flags = (unsigned int)flags,
        .mode = (flags & O_CREAT) || (flags & O_TMPFILE) == O_TMPFILE ? mode : 0,
        .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS,
    };
    static _Thread_local bool absent;
    long fd;

    if (absent) {
        errno = ENOSYS;
        return -1;
    }
    do
        fd = syscall(SYS_openat2, dirfd, path, &how, sizeof how);
    while (fd < 0 && (errno == EAGAIN || errno == EINTR));
    if (fd < 0 && errno == EPERM) { /* the call, or the file? "." can always be opened for its path */
        struct open_how probe = {.flags = O_PATH | O_CLOEXEC, .resolve = RESOLVE_BENEATH};
        long fd2 = syscall(SYS_openat2, dirfd, ".", &probe, sizeof probe);

        if (fd2 >= 0)
            close((int)fd2);
        errno = fd2 < 0 && errno == EPERM ? ENOSYS : EPERM;
    }
    if (fd < 0 && errno == ENOSYS)
        absent = true;
    return (int)fd;
}

/* One component of the walk. A link answers ENOTDIR to O_DIRECTORY | O_NOFOLLOW: say ELOOP, as openat2 does. */
static int open_component(int dirfd, const char *name, int flags, mode_t mode)
{
    int fd = openat(dirfd, name, flags | O_NOFOLLOW, mode);
    struct stat st;

    if (fd >= 0 || errno != ENOTDIR)
        return fd;
    if (fstatat(dirfd, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISLNK(st.st_mode))
        errno = ELOOP;
    else
        errno = ENOTDIR;
    return -1;
}

static int open_by_walk(int dirfd, const char *path, int flags, mode_t mode)
{
    char name[NAME_MAX + 1];
    const char *rest = path;
    int at = dirfd, fd = -1;

    for (;;) {
        size_t len = strcspn(rest, "/");
        bool last = rest[len] == '\0';
        int saved;

        memcpy(name, rest, len);
        name[len] = '\0';
        fd = last ? open_component(at, name, flags, mode)
                  : open_component(at, name, O_PATH | O_DIRECTORY | O_CLOEXEC, 0);
        saved = errno;
        if (at != dirfd)
            close(at);
        errno = saved;
        if (last || fd < 0)
            return fd;
        at = fd;
        rest += len + 1;
    }
}

/* Which leading part of path is a symbolic link? For the message only. */
static void name_the_link(char link[PATH_MAX], int dirfd, const char *path)
{
    size_t len = 0;

    snprintf(link, PATH_MAX, "%s", path);
    for (;;) {
        struct stat st;

        len += strcspn(path + len, "/");
        link[len] = '\0';
        if (fstatat(dirfd, link, &st, AT_SYMLINK_NOFOLLOW) < 0 || S_ISLNK(st.st_mode) || !path[len])
            return;
        link[len] = '/';
        len++;
    }
}

static int open_failed(int dirfd, const char *path)
{
    int saved = errno, rc;

    if (saved == ELOOP) {
        char link[PATH_MAX];

        name_the_link(link, dirfd, path);
        rc = sp_err(SP_ECANNOT, "cannot open '%s': '%s' is a symbolic link, and links are not followed in an install",
                    path, link);
        sp_err_hint(rc,
                    "put the plain file there (an install: install SGLang again, with uv --link-mode=copy; a checkout: "
                    "git checkout), or name the folder that '%s' leads to",
                    link);
    } else {
        rc = sp_err_sys(SP_ECANNOT, "cannot open '%s'", path);
    }
    errno = saved;
    return rc;
}

int sp_open_beneath(int *fd, int dirfd, const char *path, int flags, mode_t mode)
{
    *fd = -1;
    if (strcmp(path, ".") != 0 && !sp_path_is_safe(path)) {
        errno = EINVAL;
        return sp_err(SP_ECANNOT, "unsafe path '%s': it is empty, absolute, or has empty, '.' or '..' parts", path);
    }
    flags |= O_CLOEXEC;
    *fd = open_by_openat2(dirfd, path, flags, mode);
    if (*fd < 0 && errno == ENOSYS)
        *fd = open_by_walk(dirfd, path, flags, mode);
    return *fd < 0 ? open_failed(dirfd, path) : SP_OK;
}

/* ---- reading and writing ---- */

/* Reads to the end rather than st_size bytes: the file may grow meanwhile, and /proc says 0. */
static int read_all(struct sp_buf *out, int fd, const struct stat *st, const char *path, size_t max)
{
    size_t room = (size_t)st->st_size < max ? (size_t)st->st_size + 1 : max + 1;
    char *data = malloc(room + 1);
    size_t len = 0;

    if (!data)
        return sp_err(SP_ECANNOT, "cannot read '%s': out of memory", path);
    for (;;) {
        ssize_t got = read(fd, data + len, room - len);

        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0) {
            free(data);
            return sp_err_sys(SP_ECANNOT, "cannot read '%s'", path);
        }
        if (got == 0)
            break;
        len += (size_t)got;
        if (len > max) {
            free(data);
            return sp_err(SP_ECANNOT, "cannot read '%s': larger than %zu bytes", path, max);
        }
        if (len == room) {
            size_t more = room < max / 2 ? room * 2 : max + 1;
            char *grown = realloc(data, more + 1);

            if (!grown) {
                free(data);
                return sp_err(SP_ECANNOT, "cannot read '%s': out of memory", path);
            }
            data = grown;
            room = more;
        }
    }
    data[len] = '\0';
    sp_buf_free(out);
    out->data = data;
    out->len = len;
    return SP_OK;
}

static int read_regular(struct sp_buf *out, struct stat *st, int fd, const char *path, size_t max)
{
    if (fstat(fd, st) < 0)
        return sp_err_sys(SP_ECANNOT, "cannot read '%s'", path);
    if (!S_ISREG(st->st_mode))
        return sp_err(SP_ECANNOT, "cannot read '%s': not a regular file", path);
    if (st->st_size < 0 || (size_t)st->st_size > max)
        return sp_err(SP_ECANNOT, "cannot read '%s': larger than %zu bytes", path, max);
    return read_all(out, fd, st, path, max);
}

/* O_NONBLOCK: a FIFO in place of the file must not hang us; regular files ignore it. */
enum { READ_FLAGS = O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC };

int sp_read_beneath(struct sp_buf *out, struct stat *st, int dirfd, const char *path, size_t max)
{
    struct stat here;
    int fd, rc;

    sp_buf_free(out);
    rc = sp_open_beneath(&fd, dirfd, path, READ_FLAGS, 0);
    if (rc < 0) {
        if (errno != ENOENT)
            return rc;
        sp_err_clear();
        return 1;
    }
    rc = read_regular(out, st ? st : &here, fd, path, max);
    close(fd);
    return rc;
}

int sp_read_file(struct sp_buf *out, const char *path, size_t max)
{
    struct stat st;
    int fd, rc;

    sp_buf_free(out);
    fd = open(path, READ_FLAGS);
    if (fd < 0)
        return sp_err_sys(SP_ECANNOT, "cannot open '%s'", path);
    rc = read_regular(out, &st, fd, path, max);
    close(fd);
    return rc;
}

int sp_write_failed(const char *name)
{
    struct rlimit limit;

    if (errno != EFBIG || getrlimit(RLIMIT_FSIZE, &limit) < 0 || limit.rlim_cur == RLIM_INFINITY)
        return sp_err_sys(SP_ECANNOT, "cannot write '%s'", name);
    sp_err(SP_ECANNOT, "cannot write '%s': %s: the limit is %llu bytes", name, strerror(EFBIG),
           (unsigned long long)limit.rlim_cur);
    return sp_err_hint(SP_ECANNOT, "ulimit -f unlimited # for a service: LimitFSIZE=infinity");
}

int sp_write_all(int fd, const void *data, size_t len, const char *name)
{
    const char *at = data;

    while (len) {
        ssize_t put = write(fd, at, len);

        if (put < 0 && errno == EINTR)
            continue;
        if (put < 0)
            return sp_write_failed(name);
        at += put;
        len -= (size_t)put;
    }
    return SP_OK;
}

/* File systems without RENAME_NOREPLACE (NFS) mostly have links; for the rest a look first must do. */
int sp_rename_noreplace(int dir, const char *from, const char *to)
{
    struct stat st;

    if (renameat2(dir, from, dir, to, RENAME_NOREPLACE) == 0)
        return 0;
    if (errno != EINVAL && errno != ENOSYS)
        return -1;
    if (linkat(dir, from, dir, to, 0) == 0) {
        unlinkat(dir, from, 0); /* the new name is there: that is what counts */
        return 0;
    }
    if (errno == EEXIST)
        return -1;
    if (fstatat(dir, to, &st, AT_SYMLINK_NOFOLLOW) == 0) {
        errno = EEXIST;
        return -1;
    }
    return renameat(dir, from, dir, to);
}

/* ---- what we make ---- */

int sp_adopt(int fd, int dir, const char *path)
{
    struct stat now, like;
    int rc = SP_OK;

    if (geteuid() != 0)
        return SP_OK;
    if (fstat(fd, &now) < 0 || fstat(dir, &like) < 0)
        rc = sp_err_sys(SP_ECANNOT, "cannot read the owner of '%s'", path);
    else if ((now.st_uid != like.st_uid || now.st_gid != like.st_gid) && fchown(fd, like.st_uid, like.st_gid) < 0 &&
             errno != EPERM && errno != EINVAL)
        rc = sp_err_sys(SP_ECANNOT, "cannot set the owner of '%s' (user %u, group %u)", path, like.st_uid, like.st_gid);
    return rc;
}

int sp_make_dir(int *fd, int dir, const char *name, const char *path)
{
    bool made = mkdirat(dir, name, 0755) == 0;
    struct stat st;
    int rc;

    *fd = -1;
    if (!made && errno != EEXIST)
        return sp_err_sys(SP_ECANNOT, "cannot make '%s'", path);
    rc = sp_open_beneath(fd, dir, name, O_RDONLY | O_DIRECTORY, 0);
    if (rc >= 0 && made)
        rc = sp_adopt(*fd, dir, path);
    if (rc >= 0 && made && (fstat(*fd, &st) < 0 || fchmod(*fd, 0755 | (st.st_mode & S_ISGID)) < 0))
        rc = sp_err_sys(SP_ECANNOT, "cannot set the mode of '%s'", path);
    if (rc < 0 && *fd >= 0) {
        close(*fd);
        *fd = -1;
    }
    if (rc < 0 && made)
        unlinkat(dir, name, AT_REMOVEDIR);
    return rc < 0 ? rc : !made;
}

/* ---- hashes ---- */

/* Without this the first digest reads openssl.cnf and the modules that it names: slow, and a way for a
 * machine's configuration to change what a blob id is. */
static void init_crypto(void)
{
    OPENSSL_init_crypto(OPENSSL_INIT_NO_LOAD_CONFIG | OPENSSL_INIT_NO_ATEXIT, NULL);
}

static void to_hex(char *out, const unsigned char *digest, unsigned int len)
{
    static const char digits[] = "0123456789abcdef";

    for (size_t i = 0; i < len; i++) {
        out[2 * i] = digits[digest[i] >> 4];
        out[2 * i + 1] = digits[digest[i] & 15];
    }
    out[2 * (size_t)len] = '\0';
}

static int digest_hex(char *out, const EVP_MD *md, const char *head, size_t head_len, const void *data, size_t len)
{
    unsigned char digest[EVP_MAX_MD_SIZE];
    unsigned int digest_len = 0;
    EVP_MD_CTX *ctx = EVP_MD_CTX_new();
    int ok = ctx && EVP_DigestInit_ex(ctx, md, NULL) && EVP_DigestUpdate(ctx, head, head_len) &&
             EVP_DigestUpdate(ctx, data, len) && EVP_DigestFinal_ex(ctx, digest, &digest_len);

    EVP_MD_CTX_free(ctx);
    if (!ok)
        return sp_err(SP_ECANNOT, "cannot compute a checksum: libcrypto refused (FIPS mode without SHA-1?)");
    to_hex(out, digest, digest_len);
    return SP_OK;
}

int sp_blob_id(struct sp_oid *out, const void *data, size_t len)
{
    char head[32];
    int head_len = snprintf(head, sizeof head, "blob %zu", len);

    init_crypto();
    return digest_hex(out->hex, EVP_sha1(), head, (size_t)head_len + 1, data ? data : "", len);
}

int sp_sha256(char out[SP_SHA256_HEX + 1], const void *data, size_t len)
{
    init_crypto();
    return digest_hex(out, EVP_sha256(), "", 0, data ? data : "", len);
}
