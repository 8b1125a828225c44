#include "base/image.h"

#include "base/err.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/xattr.h>
#include <unistd.h>

int sp_image_id(struct sp_oid *out, struct stat *st, int root, const char *path)
{
    struct sp_buf bytes = SP_BUF_INIT;
    int rc = sp_read_beneath(&bytes, st, root, path, SP_IMAGE_MAX);

    memset(out, 0, sizeof *out);
    if (rc == 0)
        rc = sp_blob_id(out, bytes.data, bytes.len);
    sp_buf_free(&bytes);
    return rc < 0 ? rc : SP_OK;
}

/* ---- attributes ---- */

/* Hashes and signatures of the old bytes would be wrong on the new ones. */
static bool is_about_content(const char *attr)
{
    return strcmp(attr, "security.ima") == 0 || strcmp(attr, "security.evm") == 0;
}

/* A label that only the system may set is set by it; a file system without attributes has none to keep. */
static bool may_be_lost(const char *attr, int why)
{
    if (why == ENOTSUP || why == ENODATA)
        return true;
    return (why == EPERM || why == EACCES) && (strncmp(attr, "security.", 9) == 0 || strncmp(attr, "trusted.", 8) == 0);
}

static int copy_xattr(int to, int from, const char *attr, const char *name)
{
    ssize_t len = fgetxattr(from, attr, NULL, 0);
    char *value = len >= 0 ? malloc((size_t)len + 1) : NULL;
    int rc = SP_OK;

    if (value)
        len = fgetxattr(from, attr, value, (size_t)len);
    if (len >= 0 && !value)
        rc = sp_err(SP_ECANNOT, "out of memory");
    else if ((len < 0 || fsetxattr(to, attr, value, (size_t)len, 0) < 0) && !may_be_lost(attr, errno))
        rc = sp_err_sys(SP_ECANNOT, "cannot keep attribute '%s' of '%s'", attr, name);
    free(value);
    return rc;
}

static int copy_xattrs(int to, int from, const char *name)
{
    ssize_t len = flistxattr(from, NULL, 0);
    char *attrs;
    int rc = SP_OK;

    if (len < 0)
        return errno == ENOTSUP ? SP_OK : sp_err_sys(SP_ECANNOT, "cannot list the attributes of '%s'", name);
    attrs = malloc((size_t)len + 1);
    if (!attrs)
        return sp_err(SP_ECANNOT, "out of memory");
    len = flistxattr(from, attrs, (size_t)len);
    if (len < 0)
        rc = sp_err_sys(SP_ECANNOT, "cannot list the attributes of '%s'", name);
    for (ssize_t at = 0; at < len && rc >= 0; at += (ssize_t)strlen(attrs + at) + 1)
        if (!is_about_content(attrs + at))
            rc = copy_xattr(to, from, attrs + at, name);
    free(attrs);
    return rc;
}

/* Owner first: changing it clears set-id bits; the mode before the attributes: it would change an access list. */
static int copy_owner(int to, const struct stat *st, const char *name)
{
    struct stat now;

    if (fstat(to, &now) < 0)
        return sp_err_sys(SP_ECANNOT, "cannot read the owner of '%s'", name);
    if ((now.st_uid == st->st_uid && now.st_gid == st->st_gid) || fchown(to, st->st_uid, st->st_gid) == 0)
        return SP_OK;
    if (now.st_uid == st->st_uid) {
        sp_err_sys(SP_ECANNOT, "cannot keep the group of '%s' (group %u)", name, st->st_gid);
        return sp_err_hint(SP_ECANNOT, "run the command as a member of that group, or as root");
    }
    sp_err_sys(SP_ECANNOT, "cannot keep the owner of '%s' (user %u, group %u)", name, st->st_uid, st->st_gid);
    return sp_err_hint(SP_ECANNOT, "run the command as that user, or as root");
}

static int copy_attributes(int to, int from, const struct stat *st, const char *name)
{
    int rc = copy_owner(to, st, name);

    if (rc >= 0 && fchmod(to, st->st_mode & 07777) < 0)
        rc = sp_err_sys(SP_ECANNOT, "cannot keep the mode of '%s'", name);
    return rc < 0 ? rc : copy_xattrs(to, from, name);
}

/* ---- writing ---- */

static int create(int *fd, int dir, const char *side)
{
    *fd = openat(dir, side, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    return *fd < 0 ? sp_err_sys(SP_ECANNOT, "cannot create '%s'", side) : SP_OK;
}

/* The last error of a write may come only here (NFS, quota). */
static int sync_and_close(int fd, const char *side, int rc)
{
    if (rc >= 0 && fsync(fd) < 0)
        rc = sp_err_sys(SP_ECANNOT, "cannot make '%s' durable", side);
    if (close(fd) < 0 && rc >= 0)
        rc = sp_err_sys(SP_ECANNOT, "cannot write '%s'", side);
    return rc;
}

/* Bytecode is found stale by size and by the source's seconds: never leave both the same. */
static int avoid_mtime(int fd, const struct stat *old, const char *side)
{
    struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, old->st_mtim};
    struct stat now;

    if (fstat(fd, &now) < 0)
        return sp_err_sys(SP_ECANNOT, "cannot read the time of '%s'", side);
    if (now.st_mtim.tv_sec != old->st_mtim.tv_sec)
        return SP_OK;
    times[1].tv_sec++;
    return futimens(fd, times) < 0 ? sp_err_sys(SP_ECANNOT, "cannot set the time of '%s'", side) : SP_OK;
}

static int imitate(int fd, int dir, const char *side, const char *like)
{
    struct stat st;
    int live, rc;

    rc = sp_open_beneath(&live, dir, like, O_RDONLY | O_NONBLOCK | O_NOCTTY, 0);
    if (rc < 0)
        return rc;
    if (fstat(live, &st) < 0)
        rc = sp_err_sys(SP_ECANNOT, "cannot read the mode of '%s'", like);
    if (rc >= 0)
        rc = copy_attributes(fd, live, &st, like);
    if (rc >= 0)
        rc = avoid_mtime(fd, &st, side);
    close(live);
    return rc;
}

int sp_image_write(int dir, const char *side, const void *data, size_t len, mode_t mode, const char *like, bool adopt)
{
    int fd, rc = create(&fd, dir, side);

    if (rc < 0)
        return rc;
    rc = sp_write_all(fd, data, len, side);
    if (rc >= 0 && like)
        rc = imitate(fd, dir, side, like);
    else if (rc >= 0 && adopt)
        rc = sp_adopt(fd, dir, side);
    if (rc >= 0 && !like && fchmod(fd, mode & 07777) < 0)
        rc = sp_err_sys(SP_ECANNOT, "cannot set the mode of '%s'", side);
    return sync_and_close(fd, side, rc);
}

/* ---- keeping ---- */

static int copy_image(int dir, const char *name, const char *side)
{
    struct sp_buf bytes = SP_BUF_INIT;
    struct timespec times[2];
    struct stat st;
    int live = -1, fd = -1, rc;

    rc = sp_read_beneath(&bytes, &st, dir, name, SP_IMAGE_MAX);
    if (rc == 1)
        rc = sp_err(SP_EDRIFT, "'%s' has gone", name);
    if (rc >= 0)
        rc = sp_open_beneath(&live, dir, name, O_RDONLY | O_NONBLOCK | O_NOCTTY, 0);
    if (rc >= 0)
        rc = create(&fd, dir, side);
    if (rc < 0)
        goto out;
    rc = sp_write_all(fd, bytes.data, bytes.len, side);
    if (rc >= 0)
        rc = copy_attributes(fd, live, &st, name);
    times[0] = st.st_atim;
    times[1] = st.st_mtim;
    if (rc >= 0 && futimens(fd, times) < 0)
        rc = sp_err_sys(SP_ECANNOT, "cannot set the time of '%s'", side);
    rc = sync_and_close(fd, side, rc);
out:
    if (live >= 0)
        close(live);
    sp_buf_free(&bytes);
    return rc;
}

/* No links on this file system, or not to this file (protected_hardlinks, too many)? */
static bool links_refused(int why)
{
    return why == EPERM || why == EOPNOTSUPP || why == ENOSYS || why == EMLINK || why == EXDEV;
}

/* The live file may have been written a moment ago, and not by us. */
static int sync_kept(int dir, const char *side)
{
    int fd, rc = sp_open_beneath(&fd, dir, side, O_RDONLY | O_NONBLOCK | O_NOCTTY, 0);

    return rc < 0 ? rc : sync_and_close(fd, side, rc);
}

int sp_image_keep(int dir, const char *name, const char *side, const struct sp_oid *pre)
{
    struct sp_oid kept;
    int rc;

    if (linkat(dir, name, dir, side, 0) == 0)
        rc = sync_kept(dir, side);
    else if (links_refused(errno))
        rc = copy_image(dir, name, side);
    else
        rc = sp_err_sys(SP_ECANNOT, "cannot keep '%s' as '%s'", name, side);
    if (rc >= 0)
        rc = sp_image_id(&kept, NULL, dir, side);
    if (rc >= 0 && strcmp(kept.hex, pre->hex) != 0)
        rc = sp_err(SP_EDRIFT, "'%s' was changed by somebody else: expected %s, found %s", name, pre->hex, kept.hex);
    return rc;
}
