/*
 * One change of a journal on disk: where its files are, and the steps that bring it to its old or its new image.
 *
 * Shared by commit (base/txn.c) and recovery (base/recover.c). Publishing and putting back are the same step in two
 * directions: a file that is at its image of that direction is left alone, one that is at the other image is moved,
 * anything else is SP_EDRIFT. So every step here may be repeated after a kill.
 */
#ifndef SP_BASE_CHANGE_H
#define SP_BASE_CHANGE_H

#include "base/journal.h"

#include <limits.h>
#include <stdbool.h>

enum sp_direction { SP_FORWARD, SP_BACK };

/* A directory and the names in it that belong to one change. */
struct sp_place {
    int dir;
    const char *name;                          /* the live file */
    char side[2][SP_SIDE_MAX];                 /* by direction: FORWARD the new image, BACK the old one */
    char side_path[2][PATH_MAX + SP_SIDE_MAX]; /* the same, beneath the root */
};

/* Directory part of a relative path; "." for a name alone. */
void sp_dir_of(char out[PATH_MAX], const char *path);

/* Fill in the names; dir is left alone. The place borrows the journal's path. */
void sp_place_name(struct sp_place *place, const struct sp_journal *journal, size_t index);

/* The same, and open the directory. 1, and dir -1, when it is not there. */
int sp_place_open(struct sp_place *place, int root, const struct sp_journal *journal, size_t index);
void sp_place_close(struct sp_place *place);

/* Blob id, hex "" for none, that a file has after a move in this direction. */
const struct sp_oid *sp_target_of(const struct sp_journal_change *change, enum sp_direction to);
bool sp_oid_same(const struct sp_oid *a, const struct sp_oid *b);

/* SP_EDRIFT: the file is neither image. */
int sp_drifted(const struct sp_journal_change *change, const struct sp_oid *found);

/* fsync the directories of all changes. */
int sp_sync_dirs(int root, const struct sp_journal *journal);

/* Bring all files to their new images, durably. *reached: how many are there; on an error the next one may be too. */
int sp_publish(int root, const struct sp_journal *journal, size_t *reached);

/* Bring the first count files to their old images, last first, durably; except those with left[i] (may be NULL). */
int sp_put_back(int root, const struct sp_journal *journal, size_t count, const bool *left);

/* Remove side files, then directories (that staging made when state is STAGE, to prune when it is DONE), then the
 * journal. Sorts those lists. */
int sp_clean_up(int root, struct sp_journal *journal, enum sp_journal_state state);

#endif
