#include "base/change.h"
#include "base/err.h"
#include "base/image.h"
#include "base/lock.h"
#include "base/shell.h"
#include "base/txn.h"

#include <fcntl.h>
#include <stdio.h>
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

/* What recover works on. */
struct repair {
    int root;
    const char *root_path;
    struct sp_journal journal;
    sp_txn_released *released;
    void *context;
    bool *left;        /* for each change: somebody else has settled this file, leave it alone */
    size_t left_count; /* of them */
};

/* Files that are neither image, which no direction can help. */
struct drift {
    size_t count;
    size_t first; /* index of the first change */
    struct sp_oid found;
};

static bool is_settled(const struct repair *repair, const char *path, const struct sp_oid *live)
{
    return !live->hex[0] || (repair->released && repair->released(repair->context, path, live));
}

/* Who has been here since? */
static int survey(struct drift *drift, struct repair *repair)
{
    const struct sp_journal *journal = &repair->journal;

    repair->left = calloc(journal->count + 1, sizeof *repair->left);
    if (!repair->left)
        return sp_err(SP_ECANNOT, "out of memory");
    for (size_t i = 0; i < journal->count; i++) {
        const struct sp_journal_change *change = &journal->changes[i];
        struct sp_oid live;
        int rc = sp_image_id(&live, NULL, repair->root, change->path);

        if (rc < 0)
            return rc;
        if (sp_oid_same(&live, &change->pre) || sp_oid_same(&live, &change->post))
            continue;
        repair->left[i] = is_settled(repair, change->path, &live);
        repair->left_count += repair->left[i];
        if (!repair->left[i] && !drift->count++) {
            drift->first = i;
            drift->found = live;
        }
    }
    return SP_OK;
}

/* Can every file be brought to its image of this direction? 1 yes, 0 no, or an error. */
static int reachable(const struct repair *repair, enum sp_direction to)
{
    const struct sp_journal *journal = &repair->journal;
    int all = 1;

    for (size_t i = 0; i < journal->count && all; i++) {
        const struct sp_oid *target = sp_target_of(&journal->changes[i], to);
        struct sp_place place;
        struct sp_oid live, side;
        int rc = sp_image_id(&live, NULL, repair->root, journal->changes[i].path);

        if (rc < 0)
            return rc;
        if (repair->left[i] || sp_oid_same(&live, target) || !target->hex[0])
            continue;
        sp_place_name(&place, journal, i);
        rc = sp_image_id(&side, NULL, repair->root, place.side_path[to]);
        if (rc < 0)
            return rc;
        all = sp_oid_same(&side, target);
    }
    return all;
}

/* Which side is right is not for us to say: our images may be of another release than what is there now. */
static int explain_drift(const struct repair *repair, const struct drift *drift)
{
    char site[SP_QUOTED_MAX];
    int rc = sp_drifted(&repair->journal.changes[drift->first], &drift->found);

    if (drift->count > 1)
        sp_err_wrap(rc, "%zu files, the first", drift->count);
    sp_err_add(rc, ": put back by hand what was there before or after the interruption, or install SGLang again");
    return sp_err_hint(rc, "sgl-pcie recover --site %s", sp_shell_quote(site, repair->root_path));
}

static int explain_missing_images(const struct repair *repair)
{
    char site[SP_QUOTED_MAX];

    sp_err(SP_EDRIFT, "neither all old nor all new files can be restored: images in " SP_STATE_DIR "-%s-* are missing",
           repair->journal.id);
    return sp_err_hint(SP_EDRIFT, "move %s/" SP_STATE_DIR "/journal.* away, then reinstall SGLang",
                       sp_shell_quote(site, repair->root_path));
}

/* The direction that the journal asks for, or else the other one, if every file can go there. Beside files of another
 * install there is only the way back: what is new here may not fit what is there. */
static int choose(enum sp_direction *to, struct repair *repair)
{
    struct drift drift = {0};
    int rc = survey(&drift, repair);

    if (rc >= 0 && drift.count)
        rc = explain_drift(repair, &drift);
    if (rc < 0)
        return rc;
    if (repair->left_count)
        *to = SP_BACK;
    rc = reachable(repair, *to);
    if (rc == 0 && !repair->left_count) {
        *to = *to == SP_FORWARD ? SP_BACK : SP_FORWARD;
        rc = reachable(repair, *to);
    }
    return rc == 0 ? explain_missing_images(repair) : rc;
}

/* Returns the state to clean up from: STAGE or DONE. */
static int replay(enum sp_journal_state *state, struct repair *repair)
{
    enum sp_direction to = *state == SP_JOURNAL_COMMIT ? SP_FORWARD : SP_BACK;
    const struct sp_journal *journal = &repair->journal;
    enum sp_journal_state during, after;
    size_t reached;
    int rc = choose(&to, repair);

    if (rc < 0)
        return rc;
    during = to == SP_FORWARD ? SP_JOURNAL_COMMIT : SP_JOURNAL_ABORT;
    after = to == SP_FORWARD ? SP_JOURNAL_DONE : SP_JOURNAL_STAGE;
    rc = *state == during ? SP_OK : sp_journal_advance(repair->root, *state, during);
    if (rc >= 0)
        rc = to == SP_FORWARD ? sp_publish(repair->root, journal, &reached)
                              : sp_put_back(repair->root, journal, journal->count, repair->left);
    if (rc >= 0)
        rc = sp_journal_advance(repair->root, during, after);
    *state = after;
    return rc;
}

static const char *name_outcome(enum sp_journal_state state, const struct repair *repair)
{
    if (state == SP_JOURNAL_DONE)
        return "rolled forward";
    return repair->left_count ? "rolled back; files that were reinstalled since are left as they are" : "rolled back";
}

static int recover(const char **outcome, struct repair *repair)
{
    enum sp_journal_state state;
    int rc = sp_journal_find(&state, repair->root);

    if (rc >= 0 && state == SP_JOURNAL_NONE) /* killed before or after everything: perhaps an empty directory is left */
        (void)unlinkat(repair->root, SP_STATE_DIR, AT_REMOVEDIR);
    if (rc < 0 || state == SP_JOURNAL_NONE)
        return rc;
    if (state > SP_JOURNAL_LEFTOVER)
        rc = sp_journal_read(&repair->journal, repair->root, state);
    if (rc >= 0 && (state == SP_JOURNAL_COMMIT || state == SP_JOURNAL_ABORT))
        rc = replay(&state, repair);
    if (rc >= 0)
        rc = sp_clean_up(repair->root, &repair->journal, state);
    *outcome = name_outcome(state, repair);
    return rc;
}

int sp_txn_recover(const char **outcome, const char *root, sp_txn_released *released, void *context)
{
    struct repair repair = {.root_path = root, .released = released, .context = context};
    sigset_t before;
    int rc = sp_lock_dir(&repair.root, root, SP_LOCK_WAIT_MS);

    *outcome = "nothing to do";
    if (rc < 0)
        return rc;
    sp_hold_signals(&before);
    rc = recover(outcome, &repair);
    sp_release_signals(&before);
    sp_journal_free(&repair.journal);
    free(repair.left);
    close(repair.root);
    return rc < 0 ? sp_err_wrap(rc, "cannot recover '%s'", root) : rc;
}
