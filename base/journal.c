#include "base/journal.h"

#include "base/err.h"
#include "base/json.h"
#include "base/shell.h"
#include "base/txn.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#define SCHEMA        "sgl-pcie-journal/1"
#define SCHEMA_FAMILY "sgl-pcie-journal/"
#define NEW_NAME      "journal.new"

enum { COMMAND_MAX = 256 };

static const char *const state_names[] = {
    [SP_JOURNAL_STAGE] = "journal.stage",
    [SP_JOURNAL_COMMIT] = "journal.commit",
    [SP_JOURNAL_ABORT] = "journal.abort",
    [SP_JOURNAL_DONE] = "journal.done",
};

/* ---- the structure ---- */

static void strings_free(struct sp_strings *strings)
{
    for (size_t i = 0; i < strings->count; i++)
        free(strings->item[i]);
    free(strings->item);
}

void sp_journal_free(struct sp_journal *journal)
{
    for (size_t i = 0; i < journal->count; i++)
        free(journal->changes[i].path);
    free(journal->changes);
    free(journal->command);
    strings_free(&journal->made);
    strings_free(&journal->pruned);
    memset(journal, 0, sizeof *journal);
}

int sp_journal_add(struct sp_journal_change **out, struct sp_journal *journal, const char *path)
{
    struct sp_journal_change *grown, *change;

    if (journal->count == SP_JOURNAL_MAX_CHANGES)
        return sp_err(SP_ECANNOT, "more than %d files in one change", SP_JOURNAL_MAX_CHANGES);
    grown = realloc(journal->changes, (journal->count + 1) * sizeof *grown);
    if (!grown)
        return sp_err(SP_ECANNOT, "out of memory");
    journal->changes = grown;
    change = &grown[journal->count];
    memset(change, 0, sizeof *change);
    change->path = strdup(path);
    if (!change->path)
        return sp_err(SP_ECANNOT, "out of memory");
    journal->count++;
    if (out)
        *out = change;
    return SP_OK;
}

int sp_strings_add(struct sp_strings *strings, const char *text)
{
    char **grown = realloc(strings->item, (strings->count + 1) * sizeof *grown);

    if (!grown)
        return sp_err(SP_ECANNOT, "out of memory");
    strings->item = grown;
    grown[strings->count] = strdup(text);
    if (!grown[strings->count])
        return sp_err(SP_ECANNOT, "out of memory");
    strings->count++;
    return SP_OK;
}

bool sp_strings_has(const struct sp_strings *strings, const char *text)
{
    for (size_t i = 0; i < strings->count; i++)
        if (strcmp(strings->item[i], text) == 0)
            return true;
    return false;
}

int sp_journal_new_id(struct sp_journal *journal)
{
    uint64_t bits;

    if (getrandom(&bits, sizeof bits, 0) != (ssize_t)sizeof bits)
        return sp_err_sys(SP_ECANNOT, "cannot get random bytes");
    snprintf(journal->id, sizeof journal->id, "%016llx", (unsigned long long)bits);
    return SP_OK;
}

void sp_journal_side(char out[SP_SIDE_MAX], const struct sp_journal *journal, size_t index, const char *suffix)
{
    snprintf(out, SP_SIDE_MAX, SP_STATE_DIR "-%s-%zu.%s", journal->id, index, suffix);
}

/* ---- reading the text ---- */

static bool is_hex(const char *text, size_t len)
{
    return strlen(text) == len && strspn(text, "0123456789abcdef") == len;
}

bool sp_journal_may_change(const char *path)
{
    const char *slash = strrchr(path, '/');
    const char *name = slash ? slash + 1 : path;

    return sp_path_is_safe(path) && strncmp(path, SP_STATE_DIR "/journal.", strlen(SP_STATE_DIR "/journal.")) != 0 &&
           strncmp(name, SP_STATE_DIR "-", strlen(SP_STATE_DIR "-")) != 0;
}

static int parse_oid(struct sp_oid *out, const json_t *object, const char *key)
{
    const char *hex;
    int rc = sp_json_opt_string(&hex, object, key);

    if (rc < 0 || !hex)
        return rc;
    if (!is_hex(hex, SP_OID_HEX))
        return sp_err(SP_EFAIL, "field '%s' is not a blob id", key);
    memcpy(out->hex, hex, SP_OID_HEX + 1);
    return SP_OK;
}

static int parse_change(struct sp_journal *journal, const json_t *object)
{
    static const char *const fields[] = {"path", "pre", "post", NULL};
    struct sp_journal_change *change;
    const char *path;
    int rc;

    if (!json_is_object(object))
        return sp_err(SP_EFAIL, "not an object");
    rc = sp_json_only(object, fields);
    if (rc >= 0)
        rc = sp_json_string(&path, object, "path");
    if (rc < 0)
        return rc;
    if (!sp_journal_may_change(path))
        return sp_err(SP_EFAIL, "path '%s' is not allowed", path);
    rc = sp_journal_add(&change, journal, path);
    if (rc >= 0)
        rc = parse_oid(&change->pre, object, "pre");
    if (rc >= 0)
        rc = parse_oid(&change->post, object, "post");
    if (rc >= 0 && !change->pre.hex[0] && !change->post.hex[0])
        rc = sp_err(SP_EFAIL, "path '%s' has neither 'pre' nor 'post'", path);
    return rc;
}

static int compare_strings(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static int check_unique(const struct sp_journal *journal)
{
    const char **paths = calloc(journal->count + 1, sizeof *paths);
    int rc = SP_OK;

    if (!paths)
        return sp_err(SP_ECANNOT, "out of memory");
    for (size_t i = 0; i < journal->count; i++)
        paths[i] = journal->changes[i].path;
    qsort(paths, journal->count, sizeof *paths, compare_strings);
    for (size_t i = 1; i < journal->count && rc >= 0; i++)
        if (strcmp(paths[i - 1], paths[i]) == 0)
            rc = sp_err(SP_EFAIL, "path '%s' occurs twice", paths[i]);
    free(paths);
    return rc;
}

static int parse_changes(struct sp_journal *journal, const json_t *root)
{
    json_t *list, *item;
    size_t i;
    int rc = sp_json_array(&list, root, "changes", SP_JOURNAL_MAX_CHANGES);

    if (rc < 0)
        return rc;
    json_array_foreach(list, i, item)
    {
        rc = parse_change(journal, item);
        if (rc < 0)
            return sp_err_wrap(rc, "change %zu", i);
    }
    return check_unique(journal);
}

static int parse_strings(struct sp_strings *out, const json_t *root, const char *key)
{
    json_t *list, *item;
    size_t i;
    int rc = sp_json_array(&list, root, key, SP_JOURNAL_MAX_CHANGES);

    if (rc < 0)
        return rc;
    json_array_foreach(list, i, item)
    {
        const char *path = json_string_value(item);

        if (!path || !sp_path_is_safe(path))
            return sp_err(SP_EFAIL, "field '%s', item %zu: not a safe path", key, i);
        rc = sp_strings_add(out, path);
        if (rc < 0)
            return rc;
    }
    return SP_OK;
}

static int check_schema(const json_t *root)
{
    const char *schema;
    int rc = sp_json_string(&schema, root, "schema");

    if (rc < 0 || strcmp(schema, SCHEMA) == 0)
        return rc;
    if (strncmp(schema, SCHEMA_FAMILY, strlen(SCHEMA_FAMILY)) == 0)
        return sp_err(SP_EFAIL, "its format is '%s', this version knows '%s'", schema, SCHEMA);
    return sp_err(SP_EFAIL, "field 'schema' is '%s', not '%s'", schema, SCHEMA);
}

static int parse_root(struct sp_journal *out, const json_t *root)
{
    static const char *const fields[] = {"schema", "id", "command", "changes", "made", "pruned", NULL};
    const char *id, *command;
    int rc = check_schema(root);

    if (rc >= 0)
        rc = sp_json_only(root, fields);
    if (rc >= 0)
        rc = sp_json_string(&id, root, "id");
    if (rc >= 0 && !is_hex(id, SP_JOURNAL_ID_HEX))
        rc = sp_err(SP_EFAIL, "field 'id' is not %d hex digits", SP_JOURNAL_ID_HEX);
    if (rc >= 0)
        rc = sp_json_string(&command, root, "command");
    if (rc >= 0 && strlen(command) > COMMAND_MAX)
        rc = sp_err(SP_EFAIL, "field 'command' is longer than %d bytes", COMMAND_MAX);
    if (rc < 0)
        return rc;
    memcpy(out->id, id, sizeof out->id);
    out->command = strdup(command);
    rc = out->command ? parse_changes(out, root) : sp_err(SP_ECANNOT, "out of memory");
    if (rc >= 0)
        rc = parse_strings(&out->made, root, "made");
    if (rc >= 0)
        rc = parse_strings(&out->pruned, root, "pruned");
    return rc;
}

int sp_journal_parse(struct sp_journal *out, const char *data, size_t len)
{
    json_t *root;
    int rc;

    memset(out, 0, sizeof *out);
    rc = sp_json_load(&root, data, len, "journal");
    if (rc < 0)
        return rc;
    rc = parse_root(out, root);
    json_decref(root);
    if (rc < 0)
        sp_journal_free(out);
    return rc;
}

/* ---- writing the text ---- */

static json_t *oid_value(const struct sp_oid *oid)
{
    return oid->hex[0] ? json_string(oid->hex) : json_null();
}

static json_t *changes_value(const struct sp_journal *journal)
{
    json_t *list = json_array();

    for (size_t i = 0; list && i < journal->count; i++) {
        const struct sp_journal_change *change = &journal->changes[i];
        json_t *item = json_pack("{s:s, s:o, s:o}", "path", change->path, "pre", oid_value(&change->pre), "post",
                                 oid_value(&change->post));

        if (json_array_append_new(list, item) < 0) {
            json_decref(list);
            return NULL;
        }
    }
    return list;
}

static json_t *strings_value(const struct sp_strings *strings)
{
    json_t *list = json_array();

    for (size_t i = 0; list && i < strings->count; i++)
        if (json_array_append_new(list, json_string(strings->item[i])) < 0) {
            json_decref(list);
            return NULL;
        }
    return list;
}

int sp_journal_format(struct sp_buf *out, const struct sp_journal *journal)
{
    json_t *root = json_pack("{s:s, s:s, s:s, s:o, s:o, s:o}", "schema", SCHEMA, "id", journal->id, "command",
                             journal->command, "changes", changes_value(journal), "made", strings_value(&journal->made),
                             "pruned", strings_value(&journal->pruned));
    char *text = root ? json_dumps(root, JSON_INDENT(1) | JSON_SORT_KEYS) : NULL;
    int rc;

    json_decref(root);
    if (!text)
        return sp_err(SP_EUSAGE, "cannot write a journal: a path or the command is not UTF-8, or out of memory");
    rc = sp_buf_set(out, text, strlen(text));
    free(text);
    if (rc >= 0)
        rc = sp_buf_append(out, "\n", 1);
    if (rc >= 0 && out->len > SP_JOURNAL_MAX_BYTES)
        rc = sp_err(SP_ECANNOT, "cannot write a journal: more than %d bytes", SP_JOURNAL_MAX_BYTES);
    return rc;
}

/* ---- the file ---- */

int sp_sync_dir(int fd, const char *name)
{
    if (fsync(fd) < 0 && errno != EINVAL)
        return sp_err_sys(SP_ECANNOT, "cannot make '%s' durable", name);
    return SP_OK;
}

static int open_state_dir(int *fd, int root)
{
    return sp_open_beneath(fd, root, SP_STATE_DIR, O_RDONLY | O_DIRECTORY, 0);
}

static enum sp_journal_state state_of_name(const char *name)
{
    for (int state = SP_JOURNAL_STAGE; state <= SP_JOURNAL_DONE; state++)
        if (strcmp(name, state_names[state]) == 0)
            return (enum sp_journal_state)state;
    return strcmp(name, NEW_NAME) == 0 ? SP_JOURNAL_LEFTOVER : SP_JOURNAL_NONE;
}

/* Of this very directory: a hint that is pasted must not find another install. */
static int hint_recover(int rc, int root)
{
    char quoted[SP_QUOTED_MAX];

    return sp_err_hint(rc, "sgl-pcie recover --site %s", sp_shell_quote_at(quoted, root, ""));
}

static int two_journals(int root, enum sp_journal_state a, enum sp_journal_state b)
{
    sp_err(SP_EINTERRUPTED,
           "'" SP_STATE_DIR "/%s' and '" SP_STATE_DIR "/%s' are both there, which this tool never does: move "
           "the one away that was copied there",
           state_names[a], state_names[b]);
    return hint_recover(SP_EINTERRUPTED, root);
}

static int scan(enum sp_journal_state *state, DIR *dir, int root)
{
    struct dirent *entry;

    errno = 0;
    while ((entry = readdir(dir)) != NULL) {
        enum sp_journal_state seen = state_of_name(entry->d_name);

        if (seen > SP_JOURNAL_LEFTOVER && *state > SP_JOURNAL_LEFTOVER)
            return two_journals(root, *state, seen);
        if (seen > *state)
            *state = seen;
    }
    return errno ? sp_err_sys(SP_ECANNOT, "cannot read '" SP_STATE_DIR "'") : SP_OK;
}

/* An empty directory, or one of others' files alone, is no journal: a kill before or after everything does no harm. */
int sp_journal_find(enum sp_journal_state *state, int root)
{
    DIR *dir;
    int fd, rc;

    *state = SP_JOURNAL_NONE;
    rc = open_state_dir(&fd, root);
    if (rc < 0 && errno == ENOENT) {
        sp_err_clear();
        return SP_OK;
    }
    if (rc < 0)
        return errno == ENOTDIR ? sp_err_hint(rc, "move that file away: this tool keeps a directory there") : rc;
    dir = fdopendir(fd);
    if (!dir) {
        close(fd);
        return sp_err_sys(SP_ECANNOT, "cannot read '" SP_STATE_DIR "'");
    }
    rc = scan(state, dir, root);
    closedir(dir);
    return rc;
}

static int explain_unreadable(const char *path)
{
    int rc = sp_err_wrap(SP_EINTERRUPTED, "'%s' was not written by this tool, or was changed", path);
    sp_err_hint(rc, "restore that file, or move it away, reinstall SGLang and run sgl-pcie status; "
                    "side files to delete by hand: " SP_STATE_DIR "-*.new, " SP_STATE_DIR "-*.old");
    return rc;
}

/* A directory, a pipe, a link: whoever put it there, nothing is lost with it. */
static int explain_odd(int rc, int root, const char *path)
{
    struct stat st;

    if (fstatat(root, path, &st, AT_SYMLINK_NOFOLLOW) < 0 || S_ISREG(st.st_mode))
        return rc;
    rc = sp_err(SP_EINTERRUPTED,
                "'%s' is not a regular file, and was not made by this tool: move it out of " SP_STATE_DIR, path);
    return hint_recover(rc, root);
}

int sp_journal_read(struct sp_journal *out, int root, enum sp_journal_state state)
{
    struct sp_buf text = SP_BUF_INIT;
    char path[SP_SIDE_MAX];
    int rc;

    memset(out, 0, sizeof *out);
    snprintf(path, sizeof path, SP_STATE_DIR "/%s", state_names[state]);
    rc = sp_read_beneath(&text, NULL, root, path, SP_JOURNAL_MAX_BYTES);
    if (rc == 1) /* it was there a moment ago: another process has moved on */
        rc = sp_err(SP_EINTERRUPTED, "'%s' has just gone", path);
    else if (rc == 0)
        rc = sp_journal_parse(out, text.data, text.len);
    if (rc == SP_EFAIL)
        rc = explain_unreadable(path);
    else if (rc == SP_ECANNOT)
        rc = explain_odd(rc, root, path);
    sp_buf_free(&text);
    return rc;
}

/* O_EXCL: of two hosts on a network file system, where the lock may not reach, one wins. */
static int write_new(int dir, const struct sp_buf *text)
{
    int fd = openat(dir, NEW_NAME, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644), rc;

    if (fd < 0)
        return sp_err_sys(SP_ECANNOT, "cannot create '" SP_STATE_DIR "/" NEW_NAME "'");
    rc = sp_write_all(fd, text->data, text->len, SP_STATE_DIR "/" NEW_NAME);
    if (rc >= 0)
        rc = sp_adopt(fd, dir, SP_STATE_DIR "/" NEW_NAME);
    if (rc >= 0 && fchmod(fd, 0644) < 0) /* not the umask: others must be able to see what is pending */
        rc = sp_err_sys(SP_ECANNOT, "cannot set the mode of '" SP_STATE_DIR "/" NEW_NAME "'");
    if (rc >= 0 && fsync(fd) < 0)
        rc = sp_err_sys(SP_ECANNOT, "cannot make '" SP_STATE_DIR "/" NEW_NAME "' durable");
    if (close(fd) < 0 && rc >= 0)
        rc = sp_err_sys(SP_ECANNOT, "cannot write '" SP_STATE_DIR "/" NEW_NAME "'");
    if (rc >= 0 && sp_rename_noreplace(dir, NEW_NAME, state_names[SP_JOURNAL_STAGE]) < 0)
        rc = sp_err_sys(SP_ECANNOT, "cannot rename '" SP_STATE_DIR "/" NEW_NAME "'");
    if (rc < 0)
        unlinkat(dir, NEW_NAME, 0);
    return rc;
}

/* An empty one that a kill left may have no owner or mode yet: make it anew. */
static int make_state_dir(int *dir, int root)
{
    int rc;

    (void)unlinkat(root, SP_STATE_DIR, AT_REMOVEDIR);
    rc = sp_make_dir(dir, root, SP_STATE_DIR, SP_STATE_DIR);
    return rc < 0 ? rc : SP_OK;
}

int sp_journal_create(const struct sp_journal *journal, int root)
{
    struct sp_buf text = SP_BUF_INIT;
    int dir = -1, rc;
    bool ours = false; /* never remove another host's journal */

    rc = sp_journal_format(&text, journal);
    if (rc < 0)
        goto out;
    rc = make_state_dir(&dir, root);
    if (rc < 0)
        goto out;
    rc = write_new(dir, &text);
    ours = rc >= 0;
    if (rc >= 0)
        rc = sp_sync_dir(dir, SP_STATE_DIR);
    if (rc >= 0)
        rc = sp_sync_dir(root, ".");
    if (rc < 0 && ours)
        unlinkat(dir, state_names[SP_JOURNAL_STAGE], 0);
    if (rc < 0)
        unlinkat(root, SP_STATE_DIR, AT_REMOVEDIR);
out:
    if (dir >= 0)
        close(dir);
    sp_buf_free(&text);
    return rc;
}

int sp_journal_advance(int root, enum sp_journal_state from, enum sp_journal_state to)
{
    int dir, rc;

    rc = open_state_dir(&dir, root);
    if (rc < 0)
        return rc;
    if (renameat(dir, state_names[from], dir, state_names[to]) < 0)
        rc = sp_err_sys(SP_ECANNOT, "cannot rename '" SP_STATE_DIR "/%s' to '%s'", state_names[from], state_names[to]);
    if (rc >= 0)
        rc = sp_sync_dir(dir, SP_STATE_DIR);
    close(dir);
    return rc;
}

/* With the journal gone the transaction is over. What may fail after that is no reason to say that it failed: a power
 * cut may bring back a journal that only asks to remove what has been removed, and an empty directory asks nothing. */
static void remove_state_dir(int root, int dir)
{
    (void)fsync(dir);
    (void)unlinkat(root, SP_STATE_DIR, AT_REMOVEDIR);
    (void)fsync(root);
}

int sp_journal_remove(int root, enum sp_journal_state state)
{
    int dir, rc;

    rc = open_state_dir(&dir, root);
    if (rc < 0)
        return rc;
    if (unlinkat(dir, NEW_NAME, 0) < 0 && errno != ENOENT)
        rc = explain_odd(sp_err_sys(SP_ECANNOT, "cannot remove '" SP_STATE_DIR "/" NEW_NAME "'"), dir, NEW_NAME);
    if (rc >= 0 && state > SP_JOURNAL_LEFTOVER && unlinkat(dir, state_names[state], 0) < 0 && errno != ENOENT)
        rc = sp_err_sys(SP_ECANNOT, "cannot remove '" SP_STATE_DIR "/%s'", state_names[state]);
    if (rc >= 0)
        remove_state_dir(root, dir);
    close(dir);
    return rc;
}

int sp_journal_pending(bool *out, char **command, int dirfd)
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
