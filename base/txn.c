#include "base/txn.h"

#include "base/change.h"
#include "base/err.h"
#include "base/image.h"
#include "base/journal.h"
#include "base/lock.h"
#include "base/shell.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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
    char site[SP_QUOTED_MAX];

    return sp_err_hint(rc, "sgl-pcie recover --site %s", sp_shell_quote(site, root_path));
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
    rc = sp_journal_pending(&pending, &command, root);
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
    rc =
        txn->root_path && txn->journal.command ? sp_journal_new_id(&txn->journal) : sp_err(SP_ECANNOT, "out of memory");
    if (rc >= 0)
        rc = sp_lock_dir(&txn->root, root, SP_LOCK_WAIT_MS);
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
    bool below;
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
    below = strcmp(dir, ".") != 0;
    if (faccessat(fd, ".", W_OK | X_OK, AT_EACCESS) < 0) {
        rc = sp_err_sys(SP_ECANNOT, "cannot write in '%s%s%s'", txn->root_path, below ? "/" : "", below ? dir : "");
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

/* ---- stage ---- */

static int make_dir(int root, const char *path)
{
    char parent[PATH_MAX];
    const char *slash = strrchr(path, '/');
    int up, fd, rc;

    sp_dir_of(parent, path);
    rc = sp_open_beneath(&up, root, parent, O_RDONLY | O_DIRECTORY, 0);
    if (rc < 0)
        return rc;
    rc = sp_make_dir(&fd, up, slash ? slash + 1 : path, path);
    if (rc == 0)
        rc = sp_sync_dir(up, parent);
    if (fd >= 0)
        close(fd);
    close(up);
    return rc < 0 ? rc : SP_OK;
}

/* The flag says by its owner for whom it holds (sgl-pcie enable --help): root's must stay root's. */
static bool speaks_for_its_maker(const char *path)
{
    return strcmp(path, SP_STATE_DIR "/flag.json") == 0;
}

static int stage_change(const struct sp_txn *txn, size_t index)
{
    const struct sp_journal_change *change = &txn->journal.changes[index];
    const struct content *content = &txn->contents[index];
    struct sp_place place;
    int rc = sp_place_open(&place, txn->root, &txn->journal, index);

    if (rc == 1)
        return sp_err(SP_EDRIFT, "the directory of '%s' has gone", change->path);
    if (rc >= 0 && change->pre.hex[0])
        rc = sp_image_keep(place.dir, place.name, place.side[SP_BACK], &change->pre);
    if (rc >= 0 && change->post.hex[0])
        rc = sp_image_write(place.dir, place.side[SP_FORWARD], content->data.data, content->data.len, content->mode,
                            change->pre.hex[0] ? place.name : NULL, !speaks_for_its_maker(change->path));
    sp_place_close(&place);
    return rc < 0 ? sp_err_wrap(rc, "'%s'", change->path) : rc;
}

static int stage(const struct sp_txn *txn)
{
    int rc = SP_OK;

    for (size_t i = 0; i < txn->journal.made.count && rc >= 0; i++)
        rc = make_dir(txn->root, txn->journal.made.item[i]);
    for (size_t i = 0; i < txn->journal.count && rc >= 0; i++)
        rc = stage_change(txn, i);
    return rc < 0 ? rc : sp_sync_dirs(txn->root, &txn->journal);
}

/* ---- commit ---- */

/* An error before the decision: the tree is old. The error stays, or becomes SP_EINTERRUPTED. */
static int undo_stage(struct sp_txn *txn, int why)
{
    struct saved_error saved = save_error();
    int rc = sp_clean_up(txn->root, &txn->journal, SP_JOURNAL_STAGE);

    restore_error(why, &saved);
    if (rc >= 0)
        return sp_err_wrap(why, "%s has changed nothing in '%s'", txn->journal.command, txn->root_path);
    sp_err_wrap(SP_EINTERRUPTED, "%s has changed nothing, but could not remove its temporary files from '%s'",
                txn->journal.command, txn->root_path);
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
        rc = sp_put_back(txn->root, &txn->journal, count, NULL);
    if (rc >= 0)
        rc = sp_journal_advance(txn->root, SP_JOURNAL_ABORT, SP_JOURNAL_STAGE);
    if (rc >= 0)
        rc = sp_clean_up(txn->root, &txn->journal, SP_JOURNAL_STAGE);
    restore_error(why, &saved);
    if (rc >= 0)
        return sp_err_wrap(why, "%s was taken back in '%s'", txn->journal.command, txn->root_path);
    sp_err_wrap(SP_EINTERRUPTED, "%s was interrupted half-way in '%s'", txn->journal.command, txn->root_path);
    return hint_recover(SP_EINTERRUPTED, txn->root_path);
}

/* The tree is new, durably. */
static int finish(struct sp_txn *txn)
{
    int rc = sp_clean_up(txn->root, &txn->journal, SP_JOURNAL_DONE);

    if (rc >= 0)
        return rc;
    sp_err_wrap(SP_EINTERRUPTED, "%s has changed everything, but could not remove its temporary files from '%s'",
                txn->journal.command, txn->root_path);
    return hint_recover(SP_EINTERRUPTED, txn->root_path);
}

static int commit(struct sp_txn *txn)
{
    size_t published = 0;
    int rc = check_all_writable(txn);

    if (rc >= 0)
        rc = order_changes(txn);
    if (rc < 0)
        return rc;
    rc = sp_journal_create(&txn->journal, txn->root);
    if (rc < 0)
        return sp_err_wrap(rc, "%s has changed nothing in '%s'", txn->journal.command, txn->root_path);
    rc = stage(txn);
    if (rc < 0)
        return undo_stage(txn, rc);
    rc = sp_journal_advance(txn->root, SP_JOURNAL_STAGE, SP_JOURNAL_COMMIT);
    if (rc >= 0)
        rc = sp_publish(txn->root, &txn->journal, &published);
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
    sp_hold_signals(&before);
    rc = commit(txn);
    sp_release_signals(&before);
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
