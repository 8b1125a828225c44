#include "base/change.h"
#include "base/err.h"
#include "base/image.h"
#include "base/lock.h"
#include "base/txn.h"

#include <stdlib.h>
#include <sys/file.h>
#include <unistd.h>

/* A journal may be that of a command at work: give it the time that another writer would give it. */
static void wait_for_writer(int dirfd)
{
    int fd;

    if (sp_lock_fd(&fd, dirfd, LOCK_SH, SP_LOCK_WAIT_MS) < 0)
        sp_err_clear(); /* still at work, or not to be locked: the journal decides */
    else
        close(fd);
}

int sp_txn_pending(bool *out, char **command, int dirfd)
{
    enum sp_journal_state state;
    int rc = sp_journal_find(&state, dirfd);

    if (rc < 0 && rc != SP_EINTERRUPTED) {
        *out = true;
        if (command)
            *command = NULL;
        return rc;
    }
    if (state != SP_JOURNAL_NONE)
        wait_for_writer(dirfd);
    return sp_journal_pending(out, command, dirfd);
}

/* Files that are neither image, which no direction can help. */
struct drift {
    size_t count;
    size_t first; /* index of the first change */
    struct sp_oid found;
};

static void note_drift(struct drift *drift, size_t index, const struct sp_oid *found)
{
    if (!drift->count++) {
        drift->first = index;
        drift->found = *found;
    }
}

/* Can every file be brought to its image of this direction? 1 yes, 0 no, or an error. */
static int reachable(struct drift *drift, int root, const struct sp_journal *journal, enum sp_direction to)
{
    int all = 1;

    drift->count = 0;

    for (size_t i = 0; i < journal->count; i++) {
        const struct sp_journal_change *change = &journal->changes[i];
        const struct sp_oid *target = sp_target_of(change, to);
        struct sp_place place;
        struct sp_oid live, side;
        int rc = sp_image_id(&live, NULL, root, change->path);

        if (rc < 0)
            return rc;
        if (sp_oid_same(&live, target))
            continue;
        if (!sp_oid_same(&live, sp_source_of(change, to))) {
            note_drift(drift, i, &live);
            all = 0;
            continue;
        }
        if (!target->hex[0])
            continue;
        sp_place_name(&place, journal, i);
        rc = sp_image_id(&side, NULL, root, place.side_path[to]);
        if (rc < 0)
            return rc;
        if (!sp_oid_same(&side, target))
            all = 0;
    }
    return all;
}

static int say_drift(const struct sp_journal *journal, const struct drift *drift)
{
    int rc = sp_drifted(&journal->changes[drift->first], &drift->found);

    return drift->count > 1 ? sp_err_wrap(rc, "%zu files, the first", drift->count) : rc;
}

/* Which of its two images can the user copy over the drifted file? */
static int explain_drift(int root, const char *root_path, const struct sp_journal *journal, const struct drift *drift)
{
    const struct sp_journal_change *change = &journal->changes[drift->first];
    struct sp_place place;
    int rc;

    sp_place_name(&place, journal, drift->first);
    for (int to = SP_FORWARD; to <= SP_BACK; to++) {
        const struct sp_oid *image = sp_target_of(change, (enum sp_direction)to);
        struct sp_oid side;

        if (!image->hex[0] || sp_image_id(&side, NULL, root, place.side_path[to]) < 0 || !sp_oid_same(&side, image))
            continue;
        rc = say_drift(journal, drift);
        return sp_err_hint(rc, "keep what you need of it, then: cp '%s/%s' '%s/%s' && sgl-pcie recover --site '%s'",
                           root_path, place.side_path[to], root_path, change->path, root_path);
    }
    rc = say_drift(journal, drift);
    return sp_err_hint(rc, "%s '%s/%s', then: sgl-pcie recover --site '%s'",
                       change->pre.hex[0] ? "put back the released" : "move away", root_path, change->path, root_path);
}

/* The direction that the journal asks for, or else the other one, if every file can go there. */
static int choose(enum sp_direction *to, int root, const char *root_path, const struct sp_journal *journal)
{
    struct drift drift;

    for (int tries = 0; tries < 2; tries++) {
        int rc = reachable(&drift, root, journal, *to);

        if (rc < 0)
            return rc;
        if (drift.count)
            return explain_drift(root, root_path, journal, &drift);
        if (rc == 1)
            return SP_OK;
        *to = *to == SP_FORWARD ? SP_BACK : SP_FORWARD;
    }
    sp_err(SP_EDRIFT, "neither all old nor all new files can be restored: images in " SP_STATE_DIR "-%s-* are missing",
           journal->id);
    return sp_err_hint(SP_EDRIFT, "move '%s/" SP_STATE_DIR "/journal.*' away, then reinstall SGLang", root_path);
}

/* Returns the state to clean up from: STAGE or DONE. */
static int replay(enum sp_journal_state *state, int root, const char *root_path, const struct sp_journal *journal)
{
    enum sp_direction to = *state == SP_JOURNAL_COMMIT ? SP_FORWARD : SP_BACK;
    enum sp_journal_state during, after;
    size_t reached;
    int rc = choose(&to, root, root_path, journal);

    if (rc < 0)
        return rc;
    during = to == SP_FORWARD ? SP_JOURNAL_COMMIT : SP_JOURNAL_ABORT;
    after = to == SP_FORWARD ? SP_JOURNAL_DONE : SP_JOURNAL_STAGE;
    if (*state != during)
        rc = sp_journal_advance(root, *state, during);
    if (rc >= 0)
        rc = to == SP_FORWARD ? sp_publish(root, journal, &reached) : sp_put_back(root, journal, journal->count);
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
        rc = sp_clean_up(root, &journal, state);
    *outcome = state == SP_JOURNAL_DONE ? "rolled forward" : "rolled back";
    sp_journal_free(&journal);
    return rc;
}

int sp_txn_recover(const char **outcome, const char *root)
{
    sigset_t before;
    int fd, rc = sp_lock_dir(&fd, root, SP_LOCK_WAIT_MS);

    *outcome = "nothing to do";
    if (rc < 0)
        return rc;
    sp_hold_signals(&before);
    rc = recover(outcome, fd, root);
    sp_release_signals(&before);
    close(fd);
    return rc < 0 ? sp_err_wrap(rc, "cannot recover '%s'", root) : rc;
}
