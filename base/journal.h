/*
 * The journal of a transaction (base/txn.h): what is being changed, kept in <root>/.sgl-pcie/.
 *
 * The text never changes once it is written; how far the transaction has come is the file's name:
 *
 *     journal.new      being written; nothing else has been written yet
 *     journal.stage    side files may exist, nothing visible has changed; also: everything has been put back
 *     journal.commit   being published; all that this needs is on disk
 *     journal.abort    being put back
 *     journal.done     published; only side files and empty directories are left to remove
 *
 * A step is thus one rename(2), which needs no space on a full disk and cannot be torn.
 *
 * Text (JSON, schema "sgl-pcie-journal/1"):
 *
 *     {"schema": ..., "id": "<16 hex digits>", "command": "apply",
 *      "changes": [{"path": "sglang/x.py", "pre": "<blob id>" or null, "post": "<blob id>" or null}, ...],
 *      "made": ["sgl_pcie", ...], "pruned": [...]}
 *
 * pre null: the file is created; post null: it is removed. Change number i has its side files in the directory of
 * its path, named ".sgl-pcie-<id>-<i>.new" and ".old": the names follow from the id, so that a journal cannot point
 * anywhere else. A journal is read as if an attacker had written it: every path must be safe (sp_path_is_safe),
 * none may be the state directory's own, none may occur twice, and unknown fields are refused.
 */
#ifndef SP_BASE_JOURNAL_H
#define SP_BASE_JOURNAL_H

#include "base/file.h"

#include <stdbool.h>

enum sp_journal_state {
    SP_JOURNAL_NONE,
    SP_JOURNAL_LEFTOVER, /* only journal.new: killed before everything */
    SP_JOURNAL_STAGE,
    SP_JOURNAL_COMMIT,
    SP_JOURNAL_ABORT,
    SP_JOURNAL_DONE
};

enum { SP_JOURNAL_ID_HEX = 16, SP_JOURNAL_MAX_CHANGES = 4096, SP_JOURNAL_MAX_BYTES = 4 << 20, SP_SIDE_MAX = 64 };

struct sp_journal_change {
    char *path;
    struct sp_oid pre, post; /* hex "" for none */
};

struct sp_strings {
    char **item;
    size_t count;
};

struct sp_journal {
    char id[SP_JOURNAL_ID_HEX + 1];
    char *command;
    struct sp_journal_change *changes; /* in the order of publication */
    size_t count;
    struct sp_strings made;   /* directories that staging makes, parents first */
    struct sp_strings pruned; /* directories to remove if empty after a commit */
};

/* Free and set to zero; safe on a zeroed journal. */
void sp_journal_free(struct sp_journal *journal);

/* Append; strings are copied. *out of sp_journal_add (may be NULL) is valid until the next one. */
int sp_journal_add(struct sp_journal_change **out, struct sp_journal *journal, const char *path);
int sp_strings_add(struct sp_strings *strings, const char *text);
bool sp_strings_has(const struct sp_strings *strings, const char *text);

/* A fresh random id. */
int sp_journal_new_id(struct sp_journal *journal);

/* Name of a side file, without its directory. suffix: "new" or "old". */
void sp_journal_side(char out[SP_SIDE_MAX], const struct sp_journal *journal, size_t index, const char *suffix);

/* True for a safe path that is not a journal's own and does not look like a side file. */
bool sp_journal_may_change(const char *path);

/* SP_EFAIL, naming the field, for what this tool would not write. */
int sp_journal_parse(struct sp_journal *out, const char *data, size_t len);
int sp_journal_format(struct sp_buf *out, const struct sp_journal *journal);

/* How far is the transaction beneath root? NONE also for an empty state directory. SP_EINTERRUPTED when there is more
 * than one journal. */
int sp_journal_find(enum sp_journal_state *state, int root);

/* As sp_txn_pending() in base/txn.h, without regard to a writer at work. */
int sp_journal_pending(bool *out, char **command, int dirfd);

/* Read the journal in this state (STAGE to DONE). SP_EINTERRUPTED, with what to do, when it cannot be understood. */
int sp_journal_read(struct sp_journal *out, int root, enum sp_journal_state state);

/* Write it as journal.stage, durably. SP_ECANNOT when another journal is being written. On error nothing is left. */
int sp_journal_create(const struct sp_journal *journal, int root);

/* Rename it, durably. */
int sp_journal_advance(int root, enum sp_journal_state from, enum sp_journal_state to);

/* Remove the journal (NONE or LEFTOVER: what is there of one), then the state directory if it is empty. */
int sp_journal_remove(int root, enum sp_journal_state state);

/* fsync a directory; file systems that cannot are left alone. */
int sp_sync_dir(int fd, const char *name);

#endif
