#include "base/txn.h"

#include "base/err.h"
#include "base/image.h"
#include "base/journal.h"
#include "base/lock.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LOCK_WAIT_MS = 5000 };

/* What a planned change needs beyond its line in the journal. */
struct content {
    struct sp_buf data; /* the new image, unless the file is removed */
    mode_t mode;        /* of a created file */
};

struct sp_txn {
    int root;
    char *root_path;
    struct sp_journal journal;
    struct content *contents; /* one for each change of the journal */
    size_t broken_links;
    bool ended; /* commit was called */
};

enum direction { FORWARD, BACK };

/* ---- messages that survive what is done about the error ---- */

struct saved_error {
    char *message, *hint;
};

static struct saved_error save_error(void)
{
    struct saved_error saved = {strdup(sp_err_message()), strdup(sp_err_hint_text())};

    return saved;
}

static int restore_error(int rc, struct saved_error *saved)
{
    sp_err(rc, "%s", saved->message ? saved->message : "out of memory");
    if (saved->hint && saved->hint[0])
        sp_err_hint(rc, "%s", saved->hint);
    free(saved->message);
    free(saved->hint);
    return rc;
}

static int hint_recover(int rc, const char *root_path)
{
    return sp_err_hint(rc, "sgl-pcie recover --site '%s'", root_path);
}

/* ---- signals: a commit takes milliseconds; being interrupted in it would cost a recover ---- */

static void hold_signals(sigset_t *before)
{
    sigset_t held;

    sigemptyset(&held);
    sigaddset(&held, SIGHUP);
    sigaddset(&held, SIGINT);
    sigaddset(&held, SIGQUIT);
    sigaddset(&held, SIGTERM);
    sigprocmask(SIG_BLOCK, &held, before);
}

static void release_signals(const sigset_t *before)
{
    sigprocmask(SIG_SETMASK, before, NULL);
}

/* ---- planning ---- */

static int refuse_pending(const char *root_path, int root)
{
    enum sp_journal_state state;
    char *command = NULL;
    bool pending;
    int rc;

    rc = sp_journal_find(&state, root);
    if (rc < 0 || state == SP_JOURNAL_NONE)
        return rc;
    rc = sp_txn_pending(&pending, &command, root);
    if (rc >= 0) {
        rc = sp_err(SP_EINTERRUPTED, "an earlier %s in '%s' was interrupted", command ? command : "write", root_path);
        hint_recover(rc, root_path);
    }
    free(command);
    return rc;
}

int sp_txn_begin(struct sp_txn **out, const char *root, const char *command)
{
    struct sp_txn *txn = calloc(1, sizeof *txn);
    int rc;

    *out = NULL;
    if (!txn)
        return sp_err(SP_ECANNOT, "out of memory");
    txn->root = -1;
    txn->root_path = strdup(root);
    txn->journal.command = strdup(command);
    rc = txn->root_path && txn->journal.command ? sp_journal_new_id(&txn->journal)
                                                : sp_err(SP_ECANNOT, "out of memory");
    if (rc >= 0)
        rc = sp_lock_dir(&txn->root, root, LOCK_WAIT_MS);
    if (rc >= 0)
        rc = refuse_pending(root, txn->root);
    if (rc < 0)
        sp_txn_free(txn);
    else
        *out = txn;
    return rc;
}

int sp_txn_dirfd(const struct sp_txn *txn)
{
    return txn->root;
}

static int check_path(const struct sp_txn *txn, const char *path)
{
    if (!sp_journal_may_change(path) || strlen(path) + SP_SIDE_MAX >= PATH_MAX)
        return sp_err(SP_ECANNOT, "unsafe path '%s'", path);
    for (size_t i = 0; i < txn->journal.count; i++)
        if (strcmp(txn->journal.changes[i].path, path) == 0)
            return sp_err(SP_ECANNOT, "'%s' is changed twice in one transaction", path);
    return SP_OK;
}

/* data NULL: no new image. */
static int add_change(struct sp_txn *txn, const char *path, const struct sp_oid *pre, mode_t mode, const void *data,
                      size_t len)
{
    struct sp_journal_change *change;
    struct content *grown = realloc(txn->contents, (txn->journal.count + 1) * sizeof *grown);
    struct content *content;
    int rc;

    if (!grown)
        return sp_err(SP_ECANNOT, "out of memory");
    txn->contents = grown;
    content = &grown[txn->journal.count];
    memset(content, 0, sizeof *content);
    content->mode = mode;
    rc = data ? sp_buf_set(&content->data, data, len) : SP_OK;
    if (rc >= 0)
        rc = sp_journal_add(&change, &txn->journal, path);
    if (rc < 0) {
        sp_buf_free(&content->data);
        return rc;
    }
    if (pre)
        change->pre = *pre;
    return data ? sp_blob_id(&change->post, data, len) : SP_OK;
}

/* The live file must be the image that the caller planned with. */
static int check_pre(struct stat *st, const struct sp_txn *txn, const char *path, const struct sp_oid *pre)
{
    struct sp_oid found;
    int rc = sp_image_id(&found, st, txn->root, path);

    if (rc < 0 || strcmp(found.hex, pre->hex) == 0)
        return rc;
    if (!found.hex[0])
        return sp_err(SP_EDRIFT, "'%s' is missing: expected blob id %s", path, pre->hex);
    return sp_err(SP_EDRIFT, "'%s' has changed: expected blob id %s, found %s", path, pre->hex, found.hex);
}

int sp_txn_replace(struct sp_txn *txn, const char *path, const struct sp_oid *pre, const void *data, size_t len)
{
    struct stat st;
    int rc = check_path(txn, path);

    if (rc >= 0)
        rc = check_pre(&st, txn, path, pre);
    if (rc >= 0)
        rc = add_change(txn, path, pre, st.st_mode, data, len);
    if (rc >= 0 && st.st_nlink > 1)
        txn->broken_links++;
    return rc;
}

int sp_txn_remove(struct sp_txn *txn, const char *path, const struct sp_oid *pre)
{
    struct stat st;
    int rc = check_path(txn, path);

    if (rc >= 0)
        rc = check_pre(&st, txn, path, pre);
    return rc < 0 ? rc : add_change(txn, path, pre, 0, NULL, 0);
}

/* Note the missing parent directories of path; a link or a file among the others is an error. */
static int plan_parents(struct sp_txn *txn, const char *path)
{
    char parent[PATH_MAX];

    for (size_t len = strcspn(path, "/"); path[len]; len += 1 + strcspn(path + len + 1, "/")) {
        int fd, rc;

        snprintf(parent, sizeof parent, "%.*s", (int)len, path);
        if (sp_strings_has(&txn->journal.made, parent))
            continue;
        rc = sp_open_beneath(&fd, txn->root, parent, O_PATH | O_DIRECTORY, 0);
        if (rc >= 0)
            close(fd);
        else if (errno == ENOENT)
            rc = sp_strings_add(&txn->journal.made, parent);
        if (rc < 0)
            return rc;
    }
    return SP_OK;
}

int sp_txn_create(struct sp_txn *txn, const char *path, mode_t mode, const void *data, size_t len)
{
    struct sp_oid found;
    struct stat st;
    int rc = check_path(txn, path);

    if (rc >= 0)
        rc = plan_parents(txn, path);
    if (rc >= 0)
        rc = sp_image_id(&found, &st, txn->root, path);
    if (rc >= 0 && found.hex[0])
        rc = sp_err(SP_EDRIFT, "'%s' is already there (blob id %s)", path, found.hex);
    return rc < 0 ? rc : add_change(txn, path, NULL, mode, data ? data : "", len);
}

int sp_txn_prune(struct sp_txn *txn, const char *dir)
{
    if (!sp_path_is_safe(dir))
        return sp_err(SP_ECANNOT, "unsafe path '%s'", dir);
    return sp_strings_has(&txn->journal.pruned, dir) ? SP_OK : sp_strings_add(&txn->journal.pruned, dir);
}

size_t sp_txn_broken_links(const struct sp_txn *txn)
{
    return txn->broken_links;
}

/* ---- before anything is written ---- */

/* The deepest directory of path that is there must take new names. */
static int check_writable(const struct sp_txn *txn, const char *path)
{
    char dir[PATH_MAX];
    int fd, rc;

    snprintf(dir, sizeof dir, "%s", path);
    do {
        char *slash = strrchr(dir, '/');

        if (slash)
            *slash = '\0';
        else
            strcpy(dir, ".");
        rc = sp_open_beneath(&fd, txn->root, dir, O_PATH | O_DIRECTORY, 0);
    } while (rc < 0 && errno == ENOENT && strcmp(dir, ".") != 0);
    if (rc < 0)
        return rc;
    if (faccessat(fd, ".", W_OK | X_OK, AT_EACCESS) < 0) {
        rc = sp_err_sys(SP_ECANNOT, "cannot write in '%s/%s'", txn->root_path, dir);
        sp_err_hint(rc, "run it as the owner of the install; in an image, in a RUN step of its Dockerfile");
    }
    close(fd);
    return rc;
}

static int check_all_writable(const struct sp_txn *txn)
{
    int rc = check_writable(txn, SP_STATE_DIR "/x");

    for (size_t i = 0; i < txn->journal.count && rc >= 0; i++)
        rc = check_writable(txn, txn->journal.changes[i].path);
    return rc;
}

/* Order of publication: what is new, what is replaced (and may use it), what is removed (and is used no more). */
static int rank(const struct sp_journal_change *change)
{
    return !change->pre.hex[0] ? 0 : change->post.hex[0] ? 1 : 2;
}

static int order_changes(struct sp_txn *txn)
{
    size_t count = txn->journal.count, at = 0;
    struct sp_journal_change *changes = calloc(count + 1, sizeof *changes);
    struct content *contents = calloc(count + 1, sizeof *contents);

    if (!changes || !contents) {
        free(changes);
        free(contents);
        return sp_err(SP_ECANNOT, "out of memory");
    }
    for (int pass = 0; pass < 3; pass++)
        for (size_t i = 0; i < count; i++)
            if (rank(&txn->journal.changes[i]) == pass) {
                changes[at] = txn->journal.changes[i];
                contents[at++] = txn->contents[i];
            }
    free(txn->journal.changes);
    free(txn->contents);
    txn->journal.changes = changes;
    txn->contents = contents;
    return SP_OK;
}

/* ---- the places of a change ---- */

/* A directory and the names in it that belong to one change. */
struct place {
    int dir;
    const char *name;
    char side[2][SP_SIDE_MAX];      /* by direction: FORWARD the new image, BACK the old one */
    char side_path[2][PATH_MAX + SP_SIDE_MAX];
};

static void dir_of(char out[PATH_MAX], const char *path)
{
    const char *slash = strrchr(path, '/');

    if (slash)
        snprintf(out, PATH_MAX, "%.*s", (int)(slash - path), path);
    else
        snprintf(out, PATH_MAX, ".");
}

static void name_sides(struct place *place, const struct sp_journal *journal, size_t index)
{
    static const char *const suffix[] = {[FORWARD] = "new", [BACK] = "old"};
    const char *path = journal->changes[index].path;
    const char *slash = strrchr(path, '/');

    place->name = slash ? slash + 1 : path;
    for (int to = FORWARD; to <= BACK; to++) {
        char side[SP_SIDE_MAX];

        sp_journal_side(side, journal, index, suffix[to]);
        memcpy(place->side[to], side, sizeof side);
        snprintf(place->side_path[to], sizeof place->side_path[to], "%.*s%s", (int)(place->name - path), path, side);
    }
}

/* place->dir is the caller's to close; 1 and -1 there when the directory is not there. */
static int open_place(struct place *place, int root, const struct sp_journal *journal, size_t index)
{
    char dir[PATH_MAX];
    int rc;

    name_sides(place, journal, index);
    dir_of(dir, journal->changes[index].path);
    rc = sp_open_beneath(&place->dir, root, dir, O_RDONLY | O_DIRECTORY, 0);
    return rc < 0 && errno == ENOENT ? 1 : rc;
}

static void close_place(struct place *place)
{
    if (place->dir >= 0)
        close(place->dir);
    place->dir = -1;
}

/* fsync the directory of path; one that has gone needs none. */
static int sync_dir_of(int root, const char *path)
{
    char dir[PATH_MAX];
    int fd, rc;

    dir_of(dir, path);
    rc = sp_open_beneath(&fd, root, dir, O_RDONLY | O_DIRECTORY, 0);
    if (rc < 0)
        return errno == ENOENT ? SP_OK : rc;
    rc = sp_sync_dir(fd, dir);
    close(fd);
    return rc;
}

/* Changes of one directory mostly follow each other: one fsync for each run of them. */
static int sync_dirs(int root, const struct sp_journal *journal)
{
    char last[PATH_MAX] = "", dir[PATH_MAX];
    int rc = SP_OK;

    for (size_t i = 0; i < journal->count && rc >= 0; i++) {
        dir_of(dir, journal->changes[i].path);
        if (strcmp(dir, last) != 0)
            rc = sync_dir_of(root, journal->changes[i].path);
        memcpy(last, dir, sizeof last);
    }
    return rc;
}

/* ---- stage ---- */

/* Mode 0755 whatever the umask is: every user of this Python imports from it. */
static int make_dir(int root, const char *path)
{
    char parent[PATH_MAX];
    const char *slash = strrchr(path, '/');
    const char *name = slash ? slash + 1 : path;
    struct stat st;
    int up = -1, fd = -1, rc;

    dir_of(parent, path);
    rc = sp_open_beneath(&up, root, parent, O_RDONLY | O_DIRECTORY, 0);
    if (rc < 0)
        return rc;
    if (mkdirat(up, name, 0755) < 0) {
        rc = errno == EEXIST ? SP_OK : sp_err_sys(SP_ECANNOT, "cannot make '%s'", path);
        goto out;
    }
    rc = sp_open_beneath(&fd, root, path, O_RDONLY | O_DIRECTORY, 0);
    if (rc >= 0 && (fstat(fd, &st) < 0 || fchmod(fd, 0755 | (st.st_mode & S_ISGID)) < 0))
        rc = sp_err_sys(SP_ECANNOT, "cannot set the mode of '%s'", path);
    if (rc >= 0)
        rc = sp_sync_dir(up, parent);
out:
    if (fd >= 0)
        close(fd);
    close(up);
    return rc;
}

static int stage_change(const struct sp_txn *txn, size_t index)
{
    const struct sp_journal_change *change = &txn->journal.changes[index];
    const struct content *content = &txn->contents[index];
    struct place place;
    int rc = open_place(&place, txn->root, &txn->journal, index);

    if (rc == 1)
        return sp_err(SP_EDRIFT, "the directory of '%s' has gone", change->path);
    if (rc >= 0 && change->pre.hex[0])
        rc = sp_image_keep(place.dir, place.name, place.side[BACK], &change->pre);
    if (rc >= 0 && change->post.hex[0])
        rc = sp_image_write(place.dir, place.side[FORWARD], content->data.data, content->data.len, content->mode,
                            change->pre.hex[0] ? place.name : NULL);
    close_place(&place);
    return rc < 0 ? sp_err_wrap(rc, "'%s'", change->path) : rc;
}

static int stage(const struct sp_txn *txn)
{
    int rc = SP_OK;

    for (size_t i = 0; i < txn->journal.made.count && rc >= 0; i++)
        rc = make_dir(txn->root, txn->journal.made.item[i]);
    for (size_t i = 0; i < txn->journal.count && rc >= 0; i++)
        rc = stage_change(txn, i);
    return rc < 0 ? rc : sync_dirs(txn->root, &txn->journal);
}

/* ---- publish, and put back ---- */

static bool same(const struct sp_oid *a, const struct sp_oid *b)
{
    return strcmp(a->hex, b->hex) == 0;
}

static const struct sp_oid *target_of(const struct sp_journal_change *change, enum direction to)
{
    return to == FORWARD ? &change->post : &change->pre;
}

static const struct sp_oid *source_of(const struct sp_journal_change *change, enum direction to)
{
    return to == FORWARD ? &change->pre : &change->post;
}

static int drifted(const struct sp_journal_change *change, const struct sp_oid *found)
{
    const char *none = "no file";

    return sp_err(SP_EDRIFT, "'%s' was changed by somebody else: expected %s or %s, found %s", change->path,
                  change->pre.hex[0] ? change->pre.hex : none, change->post.hex[0] ? change->post.hex : none,
                  found->hex[0] ? found->hex : none);
}

static int move_in(const struct place *place, const struct sp_journal_change *change, enum direction to)
{
    int rc;

    if (source_of(change, to)->hex[0])
        rc = renameat(place->dir, place->side[to], place->dir, place->name);
    else
        rc = sp_rename_noreplace(place->dir, place->side[to], place->name);
    if (rc == 0)
        return SP_OK;
    if (errno == EEXIST)
        return sp_err(SP_EDRIFT, "'%s' was created by somebody else", change->path);
    return sp_err_sys(SP_ECANNOT, "cannot rename '%s' to '%s'", place->side_path[to], change->path);
}

/* Bring one file to its image of this direction: nothing to do, or the other image must be there. */
static int settle(int root, const struct sp_journal *journal, size_t index, enum direction to)
{
    const struct sp_journal_change *change = &journal->changes[index];
    const struct sp_oid *target = target_of(change, to);
    struct sp_oid live, side;
    struct place place = {.dir = -1};
    int rc = open_place(&place, root, journal, index);

    if (rc == 1) /* a directory that staging never made */
        rc = target->hex[0] ? sp_err(SP_EDRIFT, "the directory of '%s' has gone", change->path) : SP_OK;
    if (rc < 0 || place.dir < 0)
        return rc;
    if (target->hex[0]) {
        rc = sp_image_id(&side, NULL, root, place.side_path[to]);
        if (rc < 0)
            goto out;
    }
    rc = sp_image_id(&live, NULL, root, change->path); /* last: as near to the rename as can be */
    if (rc < 0 || same(&live, target))
        goto out;
    if (!same(&live, source_of(change, to)))
        rc = drifted(change, &live);
    else if (!target->hex[0])
        rc = unlinkat(place.dir, place.name, 0) < 0 ? sp_err_sys(SP_ECANNOT, "cannot remove '%s'", change->path) : 0;
    else if (!same(&side, target))
        rc = sp_err(SP_EDRIFT, "'%s' is missing or damaged", place.side_path[to]);
    else
        rc = move_in(&place, change, to);
out:
    close_place(&place);
    return rc;
}

/* Publish all, and say how many were; a failure in number n leaves n, and perhaps n + 1, published. */
static int publish(int root, const struct sp_journal *journal, size_t *reached)
{
    int rc = SP_OK;

    for (*reached = 0; *reached < journal->count; ++*reached) {
        rc = settle(root, journal, *reached, FORWARD);
        if (rc < 0)
            return rc;
    }
    return sync_dirs(root, journal);
}

/* Put back the first count changes, last first. */
static int put_back(int root, const struct sp_journal *journal, size_t count)
{
    int rc = SP_OK;

    while (count-- && rc >= 0)
        rc = settle(root, journal, count, BACK);
    return rc < 0 ? rc : sync_dirs(root, journal);
}

/* ---- clean up ---- */

static int remove_side(const struct place *place, enum direction which)
{
    if (unlinkat(place->dir, place->side[which], 0) < 0 && errno != ENOENT)
        return sp_err_sys(SP_ECANNOT, "cannot remove '%s'", place->side_path[which]);
    return SP_OK;
}

static int remove_sides(int root, const struct sp_journal *journal)
{
    int rc = SP_OK;

    for (size_t i = 0; i < journal->count && rc >= 0; i++) {
        struct place place;

        rc = open_place(&place, root, journal, i);
        if (rc == 1)
            continue;
        if (rc >= 0)
            rc = remove_side(&place, FORWARD);
        if (rc >= 0)
            rc = remove_side(&place, BACK);
        close_place(&place);
    }
    return rc < 0 ? rc : sync_dirs(root, journal);
}

/* A directory that has gone, or is not empty, is as good as removed. */
static int remove_dir(int root, const char *path)
{
    char parent[PATH_MAX];
    const char *slash = strrchr(path, '/');
    int up, rc;

    dir_of(parent, path);
    rc = sp_open_beneath(&up, root, parent, O_RDONLY | O_DIRECTORY, 0);
    if (rc < 0)
        return errno == ENOENT ? SP_OK : rc;
    if (unlinkat(up, slash ? slash + 1 : path, AT_REMOVEDIR) == 0)
        rc = sp_sync_dir(up, parent);
    else if (errno != ENOENT && errno != ENOTEMPTY && errno != EEXIST)
        rc = sp_err_sys(SP_ECANNOT, "cannot remove '%s'", path);
    close(up);
    return rc;
}

/* A child's path is longer than its parent's. */
static int deeper_first(const void *a, const void *b)
{
    size_t x = strlen(*(char *const *)a), y = strlen(*(char *const *)b);

    return x < y ? 1 : x > y ? -1 : 0;
}

static int remove_dirs(int root, struct sp_strings *dirs)
{
    int rc = SP_OK;

    if (dirs->count)
        qsort(dirs->item, dirs->count, sizeof *dirs->item, deeper_first);
    for (size_t i = 0; i < dirs->count && rc >= 0; i++)
        rc = remove_dir(root, dirs->item[i]);
    return rc;
}

/* The last step both ways; state is STAGE (everything is old) or DONE (everything is new). */
static int clean_up(int root, struct sp_journal *journal, enum sp_journal_state state)
{
    int rc = remove_sides(root, journal);

    if (rc >= 0)
        rc = remove_dirs(root, state == SP_JOURNAL_DONE ? &journal->pruned : &journal->made);
    return rc < 0 ? rc : sp_journal_remove(root, state);
}

/* ---- commit ---- */

/* An error before the decision: the tree is old. The error stays, or becomes SP_EINTERRUPTED. */
static int undo_stage(struct sp_txn *txn, int why)
{
    struct saved_error saved = save_error();
    int rc = clean_up(txn->root, &txn->journal, SP_JOURNAL_STAGE);

    restore_error(why, &saved);
    if (rc >= 0)
        return sp_err_wrap(why, "%s has changed nothing", txn->journal.command);
    sp_err_wrap(SP_EINTERRUPTED, "%s has changed nothing, but could not remove its temporary files",
                txn->journal.command);
    return hint_recover(SP_EINTERRUPTED, txn->root_path);
}

/* An error after the decision: put back what was published, and the file that failed unless it is somebody else's.
 * A rename of the journal that failed may have happened all the same, so look. */
static int undo_publish(struct sp_txn *txn, int why, size_t published)
{
    size_t count = published + (published < txn->journal.count && why != SP_EDRIFT);
    struct saved_error saved = save_error();
    enum sp_journal_state state;
    int rc = sp_journal_find(&state, txn->root);

    if (rc >= 0 && state < SP_JOURNAL_STAGE)
        rc = sp_err(SP_EINTERRUPTED, "the journal has gone");
    if (rc >= 0 && state != SP_JOURNAL_ABORT)
        rc = sp_journal_advance(txn->root, state, SP_JOURNAL_ABORT);
    if (rc >= 0)
        rc = put_back(txn->root, &txn->journal, count);
    if (rc >= 0)
        rc = sp_journal_advance(txn->root, SP_JOURNAL_ABORT, SP_JOURNAL_STAGE);
    if (rc >= 0)
        rc = clean_up(txn->root, &txn->journal, SP_JOURNAL_STAGE);
    restore_error(why, &saved);
    if (rc >= 0)
        return sp_err_wrap(why, "%s was taken back", txn->journal.command);
    sp_err_wrap(SP_EINTERRUPTED, "%s was interrupted half-way", txn->journal.command);
    return hint_recover(SP_EINTERRUPTED, txn->root_path);
}

/* The tree is new, durably. */
static int finish(struct sp_txn *txn)
{
    int rc = clean_up(txn->root, &txn->journal, SP_JOURNAL_DONE);

    if (rc >= 0)
        return rc;
    sp_err_wrap(SP_EINTERRUPTED, "%s has changed everything, but could not remove its temporary files",
                txn->journal.command);
    return hint_recover(SP_EINTERRUPTED, txn->root_path);
}

static int commit(struct sp_txn *txn)
{
    size_t published = 0;
    int rc = check_all_writable(txn);

    if (rc >= 0)
        rc = order_changes(txn);
    if (rc >= 0)
        rc = sp_journal_create(&txn->journal, txn->root);
    if (rc < 0)
        return rc;
    rc = stage(txn);
    if (rc < 0)
        return undo_stage(txn, rc);
    rc = sp_journal_advance(txn->root, SP_JOURNAL_STAGE, SP_JOURNAL_COMMIT);
    if (rc >= 0)
        rc = publish(txn->root, &txn->journal, &published);
    if (rc >= 0)
        rc = sp_journal_advance(txn->root, SP_JOURNAL_COMMIT, SP_JOURNAL_DONE);
    if (rc < 0)
        return undo_publish(txn, rc, published);
    return finish(txn);
}

int sp_txn_commit(struct sp_txn *txn)
{
    sigset_t before;
    int rc;

    if (txn->ended)
        return sp_err(SP_ECANNOT, "this transaction has already ended");
    txn->ended = true;
    if (!txn->journal.count)
        return SP_OK;
    hold_signals(&before);
    rc = commit(txn);
    release_signals(&before);
    return rc;
}

void sp_txn_free(struct sp_txn *txn)
{
    if (!txn)
        return;
    for (size_t i = 0; i < txn->journal.count; i++)
        sp_buf_free(&txn->contents[i].data);
    free(txn->contents);
    sp_journal_free(&txn->journal);
    free(txn->root_path);
    if (txn->root >= 0)
        close(txn->root);
    free(txn);
}

/* ---- recover ---- */

int sp_txn_pending(bool *out, char **command, int dirfd)
{
    struct sp_journal journal;
    enum sp_journal_state state;
    int rc;

    *out = true;
    if (command)
        *command = NULL;
    rc = sp_journal_find(&state, dirfd);
    if (rc == SP_EINTERRUPTED) { /* two journals */
        sp_err_clear();
        return SP_OK;
    }
    if (rc < 0)
        return rc;
    *out = state != SP_JOURNAL_NONE;
    if (!command || state < SP_JOURNAL_STAGE)
        return SP_OK;
    if (sp_journal_read(&journal, dirfd, state) < 0) {
        sp_err_clear();
        return SP_OK;
    }
    *command = journal.command;
    journal.command = NULL;
    sp_journal_free(&journal);
    return SP_OK;
}

/* Can every file be brought to its image of this direction? 1 yes, 0 no, or an error. *drift: the first file that is
 * neither image, which no direction can help. */
static int reachable(const struct sp_journal_change **drift, struct sp_oid *found, int root,
                     const struct sp_journal *journal, enum direction to)
{
    int all = 1;

    for (size_t i = 0; i < journal->count; i++) {
        const struct sp_journal_change *change = &journal->changes[i];
        const struct sp_oid *target = target_of(change, to);
        struct place place;
        struct sp_oid side;
        int rc = sp_image_id(found, NULL, root, change->path);

        if (rc < 0)
            return rc;
        if (same(found, target))
            continue;
        if (!same(found, source_of(change, to))) {
            *drift = change;
            return 0;
        }
        if (!target->hex[0])
            continue;
        name_sides(&place, journal, i);
        rc = sp_image_id(&side, NULL, root, place.side_path[to]);
        if (rc < 0)
            return rc;
        if (!same(&side, target))
            all = 0;
    }
    return all;
}

/* Which of its two images can the user copy over the drifted file? */
static int explain_drift(int root, const char *root_path, const struct sp_journal *journal,
                         const struct sp_journal_change *change, const struct sp_oid *found)
{
    size_t index = (size_t)(change - journal->changes);
    struct place place;
    int rc;

    name_sides(&place, journal, index);
    for (int to = FORWARD; to <= BACK; to++) {
        const struct sp_oid *image = target_of(change, to);
        struct sp_oid side;

        if (!image->hex[0] || sp_image_id(&side, NULL, root, place.side_path[to]) < 0 || !same(&side, image))
            continue;
        rc = drifted(change, found);
        return sp_err_hint(rc, "keep what you need of it, then: cp '%s/%s' '%s/%s' && sgl-pcie recover --site '%s'",
                           root_path, place.side_path[to], root_path, change->path, root_path);
    }
    rc = drifted(change, found);
    return sp_err_hint(rc, "%s '%s/%s', then: sgl-pcie recover --site '%s'",
                       change->pre.hex[0] ? "put back the released" : "move away", root_path, change->path, root_path);
}

/* The direction that the journal asks for, or else the other one, if every file can go there. */
static int choose(enum direction *to, int root, const char *root_path, const struct sp_journal *journal)
{
    const struct sp_journal_change *drift = NULL;
    struct sp_oid found;

    for (int tries = 0; tries < 2; tries++) {
        int rc = reachable(&drift, &found, root, journal, *to);

        if (rc < 0)
            return rc;
        if (drift)
            return explain_drift(root, root_path, journal, drift, &found);
        if (rc == 1)
            return SP_OK;
        *to = *to == FORWARD ? BACK : FORWARD;
    }
    sp_err(SP_EDRIFT, "neither all old nor all new files can be restored: images in " SP_STATE_DIR "-%s-* are missing",
           journal->id);
    return sp_err_hint(SP_EDRIFT, "move '%s/" SP_STATE_DIR "/journal.*' away, then reinstall SGLang", root_path);
}

/* Returns the state to clean up from: STAGE or DONE. */
static int replay(enum sp_journal_state *state, int root, const char *root_path, const struct sp_journal *journal)
{
    enum direction to = *state == SP_JOURNAL_COMMIT ? FORWARD : BACK;
    enum sp_journal_state during, after;
    size_t reached;
    int rc = choose(&to, root, root_path, journal);

    if (rc < 0)
        return rc;
    during = to == FORWARD ? SP_JOURNAL_COMMIT : SP_JOURNAL_ABORT;
    after = to == FORWARD ? SP_JOURNAL_DONE : SP_JOURNAL_STAGE;
    if (*state != during)
        rc = sp_journal_advance(root, *state, during);
    if (rc >= 0)
        rc = to == FORWARD ? publish(root, journal, &reached) : put_back(root, journal, journal->count);
    if (rc >= 0)
        rc = sp_journal_advance(root, during, after);
    *state = after;
    return rc;
}

static int recover(const char **outcome, int root, const char *root_path)
{
    struct sp_journal journal = {0};
    enum sp_journal_state state;
    int rc = sp_journal_find(&state, root);

    *outcome = "nothing to do";
    if (rc < 0 || state == SP_JOURNAL_NONE)
        return rc;
    if (state > SP_JOURNAL_LEFTOVER)
        rc = sp_journal_read(&journal, root, state);
    if (rc >= 0 && (state == SP_JOURNAL_COMMIT || state == SP_JOURNAL_ABORT))
        rc = replay(&state, root, root_path, &journal);
    if (rc >= 0)
        rc = clean_up(root, &journal, state);
    *outcome = state == SP_JOURNAL_DONE ? "rolled forward" : "rolled back";
    sp_journal_free(&journal);
    return rc;
}

int sp_txn_recover(const char **outcome, const char *root)
{
    sigset_t before;
    int fd, rc = sp_lock_dir(&fd, root, LOCK_WAIT_MS);

    *outcome = "nothing to do";
    if (rc < 0)
        return rc;
    hold_signals(&before);
    rc = recover(outcome, fd, root);
    release_signals(&before);
    close(fd);
    return rc < 0 ? sp_err_wrap(rc, "cannot recover '%s'", root) : rc;
}
