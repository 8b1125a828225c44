#include "verify/verdict/state.h"
#include "base/err.h"
#include "base/file.h"
#include "base/json.h"
#include "base/lock.h"
#include "verify/verdict/bound.h"
#include "verify/verdict/sound.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pwd.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SYSTEM "/var/lib/sgl-pcie"

enum { FILE_MAX = 4 << 20, KEY_HEX = 16, FOLDERS = 2 };

struct folders {
    char folder[FOLDERS][PATH_MAX];
    size_t count;
};

/* ---- where ---- */

static void add(struct folders *out, const char *folder, const char *below)
{
    if (snprintf(out->folder[out->count], PATH_MAX, "%s%s", folder, below) < PATH_MAX)
        out->count++;
}

/* The home of the passwd database, not $HOME: sudo and services set that to anything. SP_EUSAGE: a folder is named that
 * would be another one for whoever is started elsewhere. */
static int find_folders(struct folders *out)
{
    const char *named = getenv(SP_STATE_ENV);
    const struct passwd *user = getpwuid(geteuid());

    out->count = 0;
    if (named && named[0] && named[0] != '/') {
        sp_err(SP_EUSAGE, "$" SP_STATE_ENV " is '%s', another folder wherever a command is run", named);
        return sp_err_hint(SP_EUSAGE, "set $" SP_STATE_ENV " to a path that begins with /, or unset it");
    }
    if (named && named[0]) {
        add(out, named, "");
        return SP_OK;
    }
    if (geteuid() != 0 && user)
        add(out, user->pw_dir, "/.local/state/sgl-pcie");
    add(out, SYSTEM, "");
    return SP_OK;
}

static int key_of(char key[KEY_HEX + 1], const char *site)
{
    char real[PATH_MAX], sum[SP_SHA256_HEX + 1];
    const char *path = realpath(site, real) ? real : site;
    int rc = sp_sha256(sum, path, strlen(path));

    (void)snprintf(key, KEY_HEX + 1, "%.*s", KEY_HEX, rc == SP_OK ? sum : "");
    return rc;
}

/* ---- reading ---- */

static int explain(char **reason, const char *path, const char *why)
{
    free(*reason);
    return asprintf(reason, "%s: %s", path, why) < 0 ? (*reason = NULL, sp_err(SP_ECANNOT, "out of memory")) : SP_OK;
}

/* NULL, or why this file does not count. */
static const char *read_owned(struct sp_buf *out, int fd)
{
    struct stat st;
    ssize_t got = 1;
    char block[16384];

    if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode))
        return "not a file";
    if (st.st_uid != 0 && st.st_uid != geteuid())
        return "belongs to another user";
    if (st.st_mode & 022)
        return "others than its owner may write it";
    if (st.st_size > FILE_MAX)
        return "too large";
    while (got > 0 && out->len <= FILE_MAX) {
        got = read(fd, block, sizeof block);
        if (got > 0 && sp_buf_append(out, block, (size_t)got) < 0)
            return "out of memory";
    }
    return got < 0 ? "cannot be read" : NULL;
}

static const char *parse(json_t **content, const struct sp_buf *bytes, const char *schema)
{
    json_error_t error;
    json_t *root = json_loadb(bytes->data ? bytes->data : "", bytes->len, JSON_REJECT_DUPLICATES, &error);
    const char *why = root && !sp_json_is(root, "schema", schema) ? "of another schema" : NULL;

    if (!root) {
        sp_err(SP_EFAIL, "not JSON: %s", error.text);
        why = sp_err_message();
    }
    if (!why && sp_sound_check(root) < 0) {
        sp_err_wrap(SP_EFAIL, "damaged");
        why = sp_err_message();
    }
    if (!why)
        *content = json_incref(root);
    json_decref(root);
    return why;
}

/* 0 also when it does not count; *reason says why, unless there is simply no file. */
static int try_file(json_t **content, char **reason, const char *path, const char *schema)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    struct sp_buf bytes = SP_BUF_INIT;
    const char *why = NULL;
    int rc;

    if (fd < 0 && (errno == ENOENT || errno == ENOTDIR))
        return SP_OK;
    if (fd < 0)
        return explain(reason, path, errno == ELOOP ? "a symbolic link" : strerror(errno));
    why = read_owned(&bytes, fd);
    close(fd);
    if (!why)
        why = parse(content, &bytes, schema);
    sp_buf_free(&bytes);
    rc = why ? explain(reason, path, why) : SP_OK;
    if (rc == SP_OK)
        sp_err_clear();
    return rc;
}

/* Is what it is bound to still so? */
static int holds(bool *out, const json_t *content, const char *site)
{
    json_t *changes = NULL;
    int rc = sp_bound_since(&changes, json_object_get(content, "bound"), site);

    *out = rc == SP_OK && json_array_size(changes) == 0;
    json_decref(changes);
    return rc;
}

static const char *created(const json_t *content)
{
    const char *when = json_string_value(json_object_get(content, "created"));
    return when ? when : "";
}

/* One that holds; of two that do, or two that do not, the newer. */
static int take(size_t *at, json_t *const seen[FOLDERS], const char *site)
{
    bool near = true, far = true;
    int rc = SP_OK;

    *at = seen[0] ? 0 : 1;
    if (seen[0] && seen[1]) {
        rc = holds(&near, seen[0], site);
        rc = rc == SP_OK ? holds(&far, seen[1], site) : rc;
        *at = near != far ? far : strcmp(created(seen[1]), created(seen[0])) > 0;
    }
    return rc;
}

int sp_state_read(json_t **content, char **found, const char *name, const char *schema, const char *site)
{
    json_t *seen[FOLDERS] = {NULL};
    struct folders folders;
    char key[KEY_HEX + 1], path[2 * PATH_MAX];
    size_t at = 0;
    int rc = key_of(key, site);

    *content = NULL;
    *found = strdup("there is none for this machine");
    if (rc == SP_OK)
        rc = find_folders(&folders);
    for (size_t i = 0; rc == SP_OK && i < folders.count; i++) {
        (void)snprintf(path, sizeof path, "%s/%s/%s", folders.folder[i], key, name);
        rc = try_file(&seen[i], found, path, schema);
    }
    if (rc == SP_OK)
        rc = take(&at, seen, site);
    if (rc == SP_OK && seen[at]) {
        *content = json_incref(seen[at]);
        (void)snprintf(path, sizeof path, "%s/%s/%s", folders.folder[at], key, name);
        free(*found);
        *found = strdup(path);
    }
    if (rc == SP_OK && !*found)
        rc = sp_err(SP_ECANNOT, "out of memory");
    for (size_t i = 0; i < FOLDERS; i++)
        json_decref(seen[i]);
    return rc;
}

/* ---- writing ---- */

/* What helps, by the errno of what failed; at once, before something else sets it. */
static int with_hint(int rc)
{
    const int error = errno;
    const char *hint = error == ENOSPC || error == EDQUOT ? "free space there, or set $" SP_STATE_ENV
                                                            " to a folder where there is some"
                       : error == EISDIR ? "move it away, or set $" SP_STATE_ENV " to another folder"
                                         : "set $" SP_STATE_ENV " to a folder that you can write";

    return rc < 0 && *sp_err_hint_text() == '\0' ? sp_err_hint(rc, "%s", hint) : rc;
}

/* A folder that root makes in somebody's is his, like the one above it. */
static int adopt_folder(const char *path)
{
    char above[2 * PATH_MAX];
    int dir, fd, rc;

    (void)snprintf(above, sizeof above, "%s/..", path);
    dir = open(above, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    rc = dir < 0 || fd < 0 ? sp_err_sys(SP_ECANNOT, "cannot open '%s'", path) : sp_adopt(fd, dir, path);
    if (dir >= 0)
        close(dir);
    if (fd >= 0)
        close(fd);
    return rc;
}

/* Folders above ours are made as the system makes them; ours are readable by all, whatever the umask. */
static int make_folder(const char *path, bool ours)
{
    int rc = SP_OK;

    if (mkdir(path, 0755) != 0)
        return errno == EEXIST ? SP_OK : with_hint(sp_err_sys(SP_ECANNOT, "cannot make '%s'", path));
    if (ours && chmod(path, 0755) != 0)
        rc = sp_err_sys(SP_ECANNOT, "cannot open '%s' to all", path);
    return rc == SP_OK ? adopt_folder(path) : rc;
}

static int make_folders(const char *folder, const char *key)
{
    char path[2 * PATH_MAX];
    int rc = SP_OK;

    (void)snprintf(path, sizeof path, "%s", folder);
    for (char *slash = strchr(path + 1, '/'); slash && rc == SP_OK; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        rc = make_folder(path, false);
        *slash = '/';
    }
    if (rc == SP_OK)
        rc = make_folder(path, true);
    (void)snprintf(path, sizeof path, "%s/%s", folder, key);
    return rc == SP_OK ? make_folder(path, true) : rc;
}

static int write_beside(const char *path, const char *beside, const char *text)
{
    int fd = open(beside, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0644);
    int rc = fd < 0 ? sp_err_sys(SP_ECANNOT, "cannot make '%s'", beside) : sp_write_all(fd, text, strlen(text), beside);

    if (rc == SP_OK && (fchmod(fd, 0644) != 0 || fsync(fd) != 0))
        rc = sp_err_sys(SP_ECANNOT, "cannot finish '%s'", beside);
    rc = with_hint(rc);
    if (fd >= 0)
        close(fd);
    if (rc == SP_OK && rename(beside, path) != 0)
        rc = with_hint(sp_err_sys(SP_ECANNOT, "cannot put '%s' in place", path));
    if (rc < 0 && fd >= 0)
        unlink(beside);
    return rc;
}

/* The new name must outlive a power cut. */
static void sync_folder(const char *path)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    if (fd >= 0) {
        (void)fsync(fd);
        close(fd);
    }
}

static int write_text(char **path, const char *folder, const char *name, const char *text)
{
    char *beside = NULL;
    int rc = SP_OK;

    if (asprintf(path, "%s/%s", folder, name) < 0 || asprintf(&beside, "%s/.%s.%ld", folder, name, (long)getpid()) < 0)
        rc = sp_err(SP_ECANNOT, "out of memory");
    if (rc == SP_OK && unlink(beside) != 0 && errno != ENOENT) /* of a process of the same number that was killed */
        rc = sp_err_sys(SP_ECANNOT, "cannot remove '%s'", beside);
    if (rc == SP_OK)
        rc = write_beside(*path, beside, text);
    if (rc == SP_OK)
        sync_folder(folder);
    free(beside);
    return rc;
}

/* The folder of this install, made if need be. */
static int open_state(char folder[2 * PATH_MAX], const char *site)
{
    struct folders folders;
    char key[KEY_HEX + 1];
    int rc = key_of(key, site);

    if (rc == SP_OK)
        rc = find_folders(&folders);
    if (rc == SP_OK && folders.count == 0)
        rc = sp_err(SP_ECANNOT, "no folder for state: $" SP_STATE_ENV " is too long");
    if (rc == SP_OK)
        rc = make_folders(folders.folder[0], key);
    if (rc == SP_OK)
        (void)snprintf(folder, 2 * PATH_MAX, "%s/%s", folders.folder[0], key);
    return rc;
}

static int write_content(char **path, const char *folder, const char *name, const json_t *content)
{
    char *text = json_dumps(content, JSON_SORT_KEYS | JSON_INDENT(2));
    int rc = text ? write_text(path, folder, name, text) : sp_err(SP_ECANNOT, "out of memory");

    free(text);
    return rc;
}

/* Nothing can be renamed onto a folder; whatever else lies there is replaced. */
static int check_place(const char *folder, const char *name)
{
    char path[3 * PATH_MAX];
    struct stat st;

    (void)snprintf(path, sizeof path, "%s/%s", folder, name);
    if (lstat(path, &st) != 0 || !S_ISDIR(st.st_mode))
        return SP_OK;
    errno = EISDIR;
    return with_hint(sp_err_sys(SP_ECANNOT, "cannot write '%s'", path));
}

int sp_state_check(const char *site, const char *name)
{
    char folder[2 * PATH_MAX];
    int rc = open_state(folder, site);

    if (rc == SP_OK && faccessat(AT_FDCWD, folder, W_OK | X_OK, AT_EACCESS) != 0)
        rc = with_hint(sp_err_sys(SP_ECANNOT, "cannot write into '%s'", folder));
    return rc == SP_OK ? check_place(folder, name) : with_hint(rc);
}

int sp_state_remove(const char *path)
{
    char folder[PATH_MAX];
    const char *slash = strrchr(path, '/');

    if (unlink(path) != 0)
        return sp_err_sys(SP_ECANNOT, "cannot remove '%s'", path);
    (void)snprintf(folder, sizeof folder, "%.*s", slash ? (int)(slash - path) : 0, path);
    sync_folder(folder);
    return SP_OK;
}

int sp_state_write(char **path, const char *name, const json_t *content, const char *site)
{
    char folder[2 * PATH_MAX];
    int rc = with_hint(open_state(folder, site));

    *path = NULL;
    return rc == SP_OK ? write_content(path, folder, name, content) : rc;
}

int sp_state_update(char **path, json_t **content, const char *name, const char *schema, const char *site,
                    sp_state_change *change, const void *context)
{
    char folder[2 * PATH_MAX], *found = NULL;
    json_t *before = NULL;
    int lock = -1, rc = with_hint(open_state(folder, site));

    *path = NULL;
    *content = NULL;
    if (rc == SP_OK && sp_lock_dir(&lock, folder, SP_LOCK_WAIT_MS) < 0)
        sp_err_clear(); /* not every network file system locks a folder: two at once are rare, a verdict is not */
    if (rc == SP_OK)
        rc = sp_state_read(&before, &found, name, schema, site);
    if (rc == SP_OK)
        rc = change(content, before, context);
    if (rc == SP_OK)
        rc = write_content(path, folder, name, *content);
    if (rc < 0) {
        json_decref(*content);
        *content = NULL;
    }
    if (lock >= 0)
        close(lock);
    json_decref(before);
    free(found);
    return rc;
}
