#include "base/change.h"

#include "base/err.h"
#include "base/image.h"
#include "base/shell.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- the places of a change ---- */

void sp_dir_of(char out[PATH_MAX], const char *path)
{
    const char *slash = strrchr(path, '/');

    if (slash)
        snprintf(out, PATH_MAX, "%.*s", (int)(slash - path), path);
    else
        snprintf(out, PATH_MAX, ".");
}

void sp_place_name(struct sp_place *place, const struct sp_journal *journal, size_t index)
{
    static const char *const suffix[] = {[SP_FORWARD] = "new", [SP_BACK] = "old"};
    const char *path = journal->changes[index].path;
    const char *slash = strrchr(path, '/');

    place->name = slash ? slash + 1 : path;
    for (int to = SP_FORWARD; to <= SP_BACK; to++) {
        char side[SP_SIDE_MAX];

        sp_journal_side(side, journal, index, suffix[to]);
        memcpy(place->side[to], side, sizeof side);
        snprintf(place->side_path[to], sizeof place->side_path[to], "%.*s%s", (int)(place->name - path), path, side);
    }
}

/* place->dir is the caller's to close; 1 and -1 there when the directory is not there. */
int sp_place_open(struct sp_place *place, int root, const struct sp_journal *journal, size_t index)
{
    char dir[PATH_MAX];
    int rc;

    sp_place_name(place, journal, index);
    sp_dir_of(dir, journal->changes[index].path);
    rc = sp_open_beneath(&place->dir, root, dir, O_RDONLY | O_DIRECTORY, 0);
    return rc < 0 && errno == ENOENT ? 1 : rc;
}

void sp_place_close(struct sp_place *place)
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

    sp_dir_of(dir, path);
    rc = sp_open_beneath(&fd, root, dir, O_RDONLY | O_DIRECTORY, 0);
    if (rc < 0)
        return errno == ENOENT ? SP_OK : rc;
    rc = sp_sync_dir(fd, dir);
    close(fd);
    return rc;
}

/* Changes of one directory mostly follow each other: one fsync for each run of them. */
int sp_sync_dirs(int root, const struct sp_journal *journal)
{
    char last[PATH_MAX] = "", dir[PATH_MAX];
    int rc = SP_OK;

    for (size_t i = 0; i < journal->count && rc >= 0; i++) {
        sp_dir_of(dir, journal->changes[i].path);
        if (strcmp(dir, last) != 0)
            rc = sync_dir_of(root, journal->changes[i].path);
        memcpy(last, dir, sizeof last);
    }
    return rc;
}

/* ---- publish, and put back ---- */

bool sp_oid_same(const struct sp_oid *a, const struct sp_oid *b)
{
    return strcmp(a->hex, b->hex) == 0;
}

const struct sp_oid *sp_target_of(const struct sp_journal_change *change, enum sp_direction to)
{
    return to == SP_FORWARD ? &change->post : &change->pre;
}

static const struct sp_oid *source_of(const struct sp_journal_change *change, enum sp_direction to)
{
    return to == SP_FORWARD ? &change->pre : &change->post;
}

int sp_drifted(const struct sp_journal_change *change, const struct sp_oid *found)
{
    const char *none = "no file";

    return sp_err(SP_EDRIFT, "'%s' was changed by somebody else: expected %s or %s, found %s", change->path,
                  change->pre.hex[0] ? change->pre.hex : none, change->post.hex[0] ? change->post.hex : none,
                  found->hex[0] ? found->hex : none);
}

/* The kernel refuses what the modes allow: an attribute of chattr(1), or a file that is mounted by itself. */
static int blocked(const struct sp_place *place, const char *name, int rc, int error)
{
    char folder[SP_QUOTED_MAX], file[SP_QUOTED_MAX];

    if (error == EPERM)
        rc = sp_err_hint(rc, "lsattr -d %s %s", sp_shell_quote_at(folder, place->dir, ""),
                         sp_shell_quote_at(file, place->dir, name));
    else if (error == EBUSY)
        rc = sp_err_hint(rc, "findmnt %s", sp_shell_quote_at(file, place->dir, name));
    return rc;
}

static int cannot_remove(const struct sp_place *place, const char *name, const char *shown)
{
    const int error = errno;

    return blocked(place, name, sp_err_sys(SP_ECANNOT, "cannot remove '%s'", shown), error);
}

static int move_in(const struct sp_place *place, const struct sp_journal_change *change, enum sp_direction to)
{
    int error, rc;

    if (source_of(change, to)->hex[0])
        rc = renameat(place->dir, place->side[to], place->dir, place->name);
    else
        rc = sp_rename_noreplace(place->dir, place->side[to], place->name);
    if (rc == 0)
        return SP_OK;
    if (errno == EEXIST)
        return sp_err(SP_EDRIFT, "'%s' was created by somebody else", change->path);
    error = errno;
    rc = sp_err_sys(SP_ECANNOT, "cannot rename '%s' to '%s'", place->side_path[to], change->path);
    return blocked(place, place->name, rc, error);
}

/* Bring one file to its image of this direction: nothing to do, or the other image must be there. */
static int settle(int root, const struct sp_journal *journal, size_t index, enum sp_direction to)
{
    const struct sp_journal_change *change = &journal->changes[index];
    const struct sp_oid *target = sp_target_of(change, to);
    struct sp_oid live, side;
    struct sp_place place = {.dir = -1};
    int rc = sp_place_open(&place, root, journal, index);

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
    if (rc < 0 || sp_oid_same(&live, target))
        goto out;
    if (!sp_oid_same(&live, source_of(change, to)))
        rc = sp_drifted(change, &live);
    else if (!target->hex[0])
        rc = unlinkat(place.dir, place.name, 0) < 0 ? cannot_remove(&place, place.name, change->path) : 0;
    else if (!sp_oid_same(&side, target))
        rc = sp_err(SP_EDRIFT, "'%s' is missing or damaged", place.side_path[to]);
    else
        rc = move_in(&place, change, to);
out:
    sp_place_close(&place);
    return rc;
}

/* Publish all, and say how many were; a failure in number n leaves n, and perhaps n + 1, published. */
int sp_publish(int root, const struct sp_journal *journal, size_t *reached)
{
    int rc = SP_OK;

    for (*reached = 0; *reached < journal->count; ++*reached) {
        rc = settle(root, journal, *reached, SP_FORWARD);
        if (rc < 0)
            return rc;
    }
    return sp_sync_dirs(root, journal);
}

/* Put back the first count changes, last first. */
int sp_put_back(int root, const struct sp_journal *journal, size_t count, const bool *left)
{
    int rc = SP_OK;

    while (count-- && rc >= 0)
        if (!left || !left[count])
            rc = settle(root, journal, count, SP_BACK);
    return rc < 0 ? rc : sp_sync_dirs(root, journal);
}

/* ---- clean up ---- */

static int remove_side(const struct sp_place *place, enum sp_direction which)
{
    if (unlinkat(place->dir, place->side[which], 0) < 0 && errno != ENOENT)
        return cannot_remove(place, place->side[which], place->side_path[which]);
    return SP_OK;
}

static int remove_sides(int root, const struct sp_journal *journal)
{
    int rc = SP_OK;

    for (size_t i = 0; i < journal->count && rc >= 0; i++) {
        struct sp_place place;

        rc = sp_place_open(&place, root, journal, i);
        if (rc == 1)
            continue;
        if (rc >= 0)
            rc = remove_side(&place, SP_FORWARD);
        if (rc >= 0)
            rc = remove_side(&place, SP_BACK);
        sp_place_close(&place);
    }
    return rc < 0 ? rc : sp_sync_dirs(root, journal);
}

/* A directory that has gone, or is not empty, is as good as removed. */
static int remove_dir(int root, const char *path)
{
    char parent[PATH_MAX];
    const char *slash = strrchr(path, '/');
    int up, rc;

    sp_dir_of(parent, path);
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
int sp_clean_up(int root, struct sp_journal *journal, enum sp_journal_state state)
{
    int rc = remove_sides(root, journal);

    if (rc >= 0)
        rc = remove_dirs(root, state == SP_JOURNAL_DONE ? &journal->pruned : &journal->made);
    return rc < 0 ? rc : sp_journal_remove(root, state);
}
