/*
 * Patch sets: which texts of which files we know, and what they become.
 *
 * patches/manifest.json (schema "sgl-pcie-patches/1") names for every set the texts that it can patch. A text
 * is a path and the blob id of its bytes; its patch turns exactly these bytes into exactly those of the post
 * id. A release is a list of paths and pre ids; its version is only used in messages. A set with "base": "checkout" is
 * of files that only a source checkout has; where they lie there may change with the release, as the paths of any set
 * may.
 *
 * The manifest and the patch files are ours, but are read as if they were not: sizes are bounded, paths must be
 * safe, ids full, and every patch file must have the sha256 that the manifest states.
 */
#ifndef SP_PATCHER_PATCHSET_H
#define SP_PATCHER_PATCHSET_H

#include "base/file.h"

#include <stdbool.h>

struct sp_patch {
    unsigned revision;
    struct sp_oid post;
    char *file; /* relative to the patches directory */
    char sha256[SP_SHA256_HEX + 1];
};

struct sp_text {
    char *path;
    struct sp_oid pre;
    struct sp_patch patch; /* the current revision */
    struct sp_patch *old;  /* earlier revisions, that an install may still carry */
    size_t old_count;
};

struct sp_release_file {
    char *path;
    struct sp_oid pre;
};

struct sp_release {
    char *version;
    char *refuse; /* why this release is not patched, or NULL */
    struct sp_release_file *files;
    size_t file_count;
};

struct sp_patchset {
    char *name;
    char *summary;
    bool checkout; /* its paths start at a source checkout, not at the folder that holds sglang/ */
    unsigned revision;
    struct sp_text *texts;
    size_t text_count;
    struct sp_release *releases; /* oldest first */
    size_t release_count;
};

struct sp_patchsets {
    char *dir; /* directory of manifest.json */
    struct sp_patchset *sets;
    size_t count;
};

/* dir: NULL for the data directory of this program. SP_EFAIL with path and reason for malformed data. */
int sp_patchsets_load(struct sp_patchsets **out, const char *dir);

/* Parse the manifest from memory (name is used in messages); for the loader and the fuzzer. */
int sp_patchsets_parse(struct sp_patchsets **out, const char *json, size_t len, const char *name);
void sp_patchsets_free(struct sp_patchsets *sets);
const struct sp_patchset *sp_patchset_find(const struct sp_patchsets *sets, const char *name);

/* The patch file's bytes, checked against its sha256. */
int sp_patch_read(struct sp_buf *out, const struct sp_patchsets *sets, const struct sp_patch *patch);

#endif
