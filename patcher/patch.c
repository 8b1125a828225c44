#include "patcher/patch.h"
#include "base/err.h"
#include "patcher/git.h"

#include <git2.h>
#include <git2/sys/mempack.h>
#include <git2/sys/odb_backend.h>
#include <git2/sys/repository.h>
#include <string.h>

/* A repository that exists in memory only. */
static int repository_in_memory(git_repository **out)
{
    git_odb *odb = NULL;
    git_odb_backend *memory = NULL;
    int rc;

    rc = git_odb_new(&odb);
    if (rc == 0)
        rc = git_mempack_new(&memory);
    if (rc == 0)
        rc = git_odb_add_backend(odb, memory, 1);
    if (rc == 0)
        rc = git_repository_wrap_odb(out, odb);
    git_odb_free(odb);
    return rc < 0 ? sp_git_failed("cannot make a repository in memory") : 0;
}

/* A tree with one file. */
static int tree_of(git_tree **out, git_repository *repo, const char *path, const struct sp_buf *bytes)
{
    git_index *index = NULL;
    git_index_entry entry = {.mode = GIT_FILEMODE_BLOB, .path = path};
    git_oid id;
    int rc;

    rc = git_blob_create_from_buffer(&entry.id, repo, bytes->data, bytes->len);
    if (rc == 0)
        rc = git_index_new(&index);
    if (rc == 0)
        rc = git_index_add(index, &entry);
    if (rc == 0)
        rc = git_index_write_tree_to(&id, index, repo);
    if (rc == 0)
        rc = git_tree_lookup(out, repo, &id);
    git_index_free(index);
    return rc < 0 ? sp_git_failed(path) : 0;
}

static int same_id(const git_diff_file *file, const struct sp_oid *id)
{
    char hex[GIT_OID_HEXSZ + 1];

    git_oid_tostr(hex, sizeof hex, &file->id);
    return file->id_abbrev == GIT_OID_HEXSZ && strcmp(hex, id->hex) == 0;
}

/* libgit2 compares neither ids nor modes, and takes renames and deletions: check the shape ourselves. */
static int check_shape(git_diff *diff, const char *path, const struct sp_oid *from, const struct sp_oid *to)
{
    const git_diff_delta *delta = git_diff_num_deltas(diff) == 1 ? git_diff_get_delta(diff, 0) : NULL;
    const char *fault = NULL;

    if (delta == NULL)
        fault = "does not patch exactly one file";
    else if (delta->status != GIT_DELTA_MODIFIED || delta->old_file.path == NULL || delta->new_file.path == NULL)
        fault = "adds, deletes or renames a file";
    else if (strcmp(delta->old_file.path, path) != 0 || strcmp(delta->new_file.path, path) != 0)
        fault = "patches another file";
    else if (delta->old_file.mode != delta->new_file.mode)
        fault = "changes the file's mode";
    else if (!same_id(&delta->old_file, from) || !same_id(&delta->new_file, to))
        fault = "carries other blob ids than the manifest";
    return fault ? sp_err(SP_EFAIL, "the patch for '%s' %s", path, fault) : 0;
}

static int copy_result(struct sp_buf *out, git_repository *repo, git_index *index, const char *path)
{
    const git_index_entry *entry = git_index_get_bypath(index, path, 0);
    git_blob *blob = NULL;
    int rc;

    if (entry == NULL)
        return sp_err(SP_EFAIL, "the patch removes '%s'", path);
    if (git_blob_lookup(&blob, repo, &entry->id) < 0)
        return sp_git_failed(path);
    rc = sp_buf_set(out, git_blob_rawcontent(blob), (size_t)git_blob_rawsize(blob));
    git_blob_free(blob);
    return rc;
}

static int apply(struct sp_buf *out, const struct sp_buf *in, const char *path, const struct sp_oid *from,
                 const struct sp_oid *to, const struct sp_buf *patch)
{
    git_apply_options options = {.version = GIT_APPLY_OPTIONS_VERSION};
    git_repository *repo = NULL;
    git_tree *tree = NULL;
    git_diff *diff = NULL;
    git_index *index = NULL;
    int rc;

    rc = sp_git_start();
    if (rc < 0)
        return rc;
    rc = repository_in_memory(&repo);
    if (rc == 0)
        rc = tree_of(&tree, repo, path, in);
    if (rc == 0 && git_diff_from_buffer(&diff, patch->data, patch->len) < 0)
        rc = sp_git_failed("cannot read the patch");
    if (rc == 0)
        rc = check_shape(diff, path, from, to);
    if (rc == 0 && git_apply_to_tree(&index, repo, tree, diff, &options) < 0)
        rc = sp_git_failed("the patch does not apply");
    if (rc == 0)
        rc = copy_result(out, repo, index, path);
    git_index_free(index);
    git_diff_free(diff);
    git_tree_free(tree);
    git_repository_free(repo);
    return rc;
}

static int check_id(const struct sp_buf *bytes, const struct sp_oid *expected, int code, const char *path)
{
    struct sp_oid id;
    int rc = sp_blob_id(&id, bytes->data, bytes->len);

    if (rc == 0 && strcmp(id.hex, expected->hex) != 0)
        rc = sp_err(code, "'%s' has blob id %s, expected %s", path, id.hex, expected->hex);
    return rc;
}

/* libgit2 1.5 copies a hunk's lines as strings and compares them by length: a NUL byte makes it read past their end. */
static int check_text(const struct sp_buf *patch, const char *path)
{
    if (patch->len == 0 || memchr(patch->data, '\0', patch->len) != NULL)
        return sp_err(SP_EFAIL, "the patch for '%s' is empty or not a text", path);
    return 0;
}

int sp_patch_run(struct sp_buf *out, const struct sp_buf *in, const char *path, const struct sp_oid *pre,
                 const struct sp_oid *post, const struct sp_buf *patch, int reverse)
{
    const struct sp_oid *from = reverse ? post : pre;
    const struct sp_oid *to = reverse ? pre : post;
    struct sp_buf inverted = SP_BUF_INIT;
    int rc;

    rc = check_id(in, from, SP_EDRIFT, path);
    if (rc == 0)
        rc = check_text(patch, path);
    if (rc == 0 && reverse)
        rc = sp_patch_invert(&inverted, patch);
    if (rc == 0)
        rc = apply(out, in, path, from, to, reverse ? &inverted : patch);
    if (rc == 0)
        rc = check_id(out, to, SP_EFAIL, path);
    if (rc < 0)
        sp_buf_free(out);
    sp_buf_free(&inverted);
    return rc;
}

/* "index <a>..<b> <mode>" -> "index <b>..<a> <mode>" */
static int invert_index_line(struct sp_buf *out, const char *line, size_t len)
{
    const size_t ids = strlen("index ");
    const char *after = line + ids + SP_OID_HEX + 2 + SP_OID_HEX;

    if (len < (size_t)(after - line) || strncmp(line + ids + SP_OID_HEX, "..", 2) != 0)
        return sp_err(SP_EFAIL, "the patch has no full blob ids");
    return sp_buf_printf(out, "index %.*s..%.*s%.*s", SP_OID_HEX, line + ids + SP_OID_HEX + 2, SP_OID_HEX, line + ids,
                         (int)(len - (size_t)(after - line)), after);
}

/* "@@ -<a> +<b> @@..." -> "@@ -<b> +<a> @@..." */
static int invert_hunk_line(struct sp_buf *out, const char *line, size_t len)
{
    const char *old = line + strlen("@@ -");
    const char *plus = memmem(old, len - strlen("@@ -"), " +", 2);
    const char *end = plus ? memmem(plus, len - (size_t)(plus - line), " @@", 3) : NULL;

    if (end == NULL)
        return sp_err(SP_EFAIL, "the patch has a malformed hunk header");
    return sp_buf_printf(out, "@@ -%.*s +%.*s%.*s", (int)(end - plus - 2), plus + 2, (int)(plus - old), old,
                         (int)(len - (size_t)(end - line)), end);
}

static int invert_line(struct sp_buf *out, const char *line, size_t len, int in_hunk)
{
    char first = line[0];
    int rc;

    if (len > strlen("@@ -") && strncmp(line, "@@ -", 4) == 0)
        return invert_hunk_line(out, line, len);
    if (!in_hunk && len > strlen("index ") && strncmp(line, "index ", 6) == 0)
        return invert_index_line(out, line, len);
    if (in_hunk && first == '-')
        first = '+';
    else if (in_hunk && first == '+')
        first = '-';
    rc = sp_buf_append(out, &first, 1);
    return rc < 0 ? rc : sp_buf_append(out, line + 1, len - 1);
}

int sp_patch_invert(struct sp_buf *out, const struct sp_buf *patch)
{
    const char *line = patch->data, *end = patch->data + patch->len;
    int in_hunk = 0, rc = sp_buf_set(out, "", 0);

    while (rc == 0 && line < end) {
        const char *newline = memchr(line, '\n', (size_t)(end - line));
        size_t len = newline ? (size_t)(newline - line) + 1 : (size_t)(end - line);

        in_hunk = in_hunk || (len > 4 && strncmp(line, "@@ -", 4) == 0);
        rc = invert_line(out, line, len, in_hunk);
        line += len;
    }
    return rc;
}
