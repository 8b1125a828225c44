#include "patcher/patchset.h"
#include "base/err.h"
#include "patcher/datadir.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MANIFEST_MAX = 8 << 20, PATCH_MAX = 1 << 20 };
#define MANIFEST_SCHEMA "sgl-pcie-patches/1"

static int bad(const char *where, const char *why)
{
    return sp_err(SP_EFAIL, "%s: %s", where, why);
}

static int take_string(char **out, const json_t *object, const char *key, const char *where)
{
    const char *value = json_string_value(json_object_get(object, key));

    if (value == NULL || *value == '\0')
        return sp_err(SP_EFAIL, "%s: '%s' is missing or not a string", where, key);
    *out = strdup(value);
    return *out ? 0 : sp_err(SP_ECANNOT, "out of memory");
}

static int take_path(char **out, const json_t *object, const char *key, const char *where)
{
    int rc = take_string(out, object, key, where);

    if (rc == 0 && !sp_path_is_safe(*out))
        rc = sp_err(SP_EFAIL, "%s: '%s' is not a safe relative path: %s", where, key, *out);
    return rc;
}

static int is_hex(const char *text, size_t digits)
{
    return text != NULL && strlen(text) == digits && strspn(text, "0123456789abcdef") == digits;
}

static int take_hex(char *out, const json_t *value, size_t digits, const char *key, const char *where)
{
    const char *text = json_string_value(value);

    if (!is_hex(text, digits))
        return sp_err(SP_EFAIL, "%s: '%s' is not a string of %zu hex digits", where, key, digits);
    memcpy(out, text, digits + 1);
    return 0;
}

static int take_revision(unsigned *out, const json_t *object, const char *where)
{
    json_int_t value = json_integer_value(json_object_get(object, "revision"));

    if (value < 1 || value > 1000000)
        return bad(where, "'revision' is missing or not a positive number");
    *out = (unsigned)value;
    return 0;
}

/* calloc for an array of JSON elements; zero elements are fine and give a valid pointer. */
static int reserve(void *out, size_t count, size_t size, const char *where)
{
    void *items = count < 100000 ? calloc(count + 1, size) : NULL;

    memcpy(out, &items, sizeof items);
    return items ? 0 : bad(where, "too many entries");
}

static int parse_patch(struct sp_patch *patch, const json_t *object, const char *where)
{
    int rc = take_path(&patch->file, object, "patch", where);

    if (rc == 0)
        rc = take_hex(patch->post.hex, json_object_get(object, "post"), SP_OID_HEX, "post", where);
    if (rc == 0)
        rc = take_hex(patch->sha256, json_object_get(object, "sha256"), SP_SHA256_HEX, "sha256", where);
    return rc;
}

static int parse_text(struct sp_text *text, const json_t *object, unsigned revision, const char *where)
{
    const json_t *old = json_object_get(object, "old");
    int rc = take_path(&text->path, object, "path", where);

    if (rc == 0)
        rc = take_hex(text->pre.hex, json_object_get(object, "pre"), SP_OID_HEX, "pre", where);
    if (rc == 0)
        rc = parse_patch(&text->patch, object, where);
    text->patch.revision = revision;
    if (rc == 0)
        rc = reserve(&text->old, json_array_size(old), sizeof *text->old, where);
    for (size_t i = 0; rc == 0 && i < json_array_size(old); i++) {
        const json_t *entry = json_array_get(old, i);

        text->old_count++;
        rc = parse_patch(&text->old[i], entry, where);
        if (rc == 0)
            rc = take_revision(&text->old[i].revision, entry, where);
    }
    return rc;
}

static const struct sp_text *find_text(const struct sp_patchset *set, const char *path, const char *pre)
{
    const struct sp_text *found = NULL;

    for (size_t i = 0; i < set->text_count && found == NULL; i++)
        if (strcmp(set->texts[i].path, path) == 0 && strcmp(set->texts[i].pre.hex, pre) == 0)
            found = &set->texts[i];
    return found;
}

static int parse_release_file(struct sp_release_file *file, const char *path, const json_t *pre, const char *where)
{
    if (!sp_path_is_safe(path))
        return sp_err(SP_EFAIL, "%s: not a safe relative path: %s", where, path);
    file->path = strdup(path);
    if (file->path == NULL)
        return sp_err(SP_ECANNOT, "out of memory");
    return take_hex(file->pre.hex, pre, SP_OID_HEX, path, where);
}

static int parse_release(struct sp_release *release, const json_t *object, const struct sp_patchset *set,
                         const char *where)
{
    json_t *files = json_object_get(object, "files"), *pre;
    const char *path;
    int rc = take_string(&release->version, object, "version", where);

    if (rc == 0 && json_object_get(object, "refuse") != NULL)
        rc = take_string(&release->refuse, object, "refuse", where);
    if (rc == 0 && json_object_size(files) == 0)
        rc = bad(where, "a release without files");
    if (rc == 0)
        rc = reserve(&release->files, json_object_size(files), sizeof *release->files, where);
    json_object_foreach(files, path, pre)
    {
        struct sp_release_file *file;

        if (rc < 0)
            break;
        file = &release->files[release->file_count++];
        rc = parse_release_file(file, path, pre, where);
        if (rc == 0 && release->refuse == NULL && find_text(set, file->path, file->pre.hex) == NULL)
            rc = sp_err(SP_EFAIL, "%s: release %s names a text without a patch: %s", where, release->version, path);
    }
    return rc;
}

static int parse_set(struct sp_patchset *set, const char *name, const json_t *object, const char *file)
{
    const json_t *texts = json_object_get(object, "texts"), *releases = json_object_get(object, "releases");
    char where[512];
    int rc;

    (void)snprintf(where, sizeof where, "%s: set '%s'", file, name);
    set->name = strdup(name);
    rc = set->name ? take_string(&set->summary, object, "summary", where) : sp_err(SP_ECANNOT, "out of memory");
    if (rc == 0)
        rc = take_revision(&set->revision, object, where);
    if (rc == 0)
        rc = reserve(&set->texts, json_array_size(texts), sizeof *set->texts, where);
    for (size_t i = 0; rc == 0 && i < json_array_size(texts); i++) {
        set->text_count++;
        rc = parse_text(&set->texts[i], json_array_get(texts, i), set->revision, where);
    }
    if (rc == 0)
        rc = reserve(&set->releases, json_array_size(releases), sizeof *set->releases, where);
    for (size_t i = 0; rc == 0 && i < json_array_size(releases); i++) {
        set->release_count++;
        rc = parse_release(&set->releases[i], json_array_get(releases, i), set, where);
    }
    return rc;
}

int sp_patchsets_parse(struct sp_patchsets **out, const char *json, size_t len, const char *name)
{
    json_error_t error;
    json_t *root = json_loadb(json, len, JSON_REJECT_DUPLICATES, &error), *sets, *object;
    struct sp_patchsets *all = calloc(1, sizeof *all);
    const char *schema = json_string_value(json_object_get(root, "schema")), *set_name;
    int rc = 0;

    *out = NULL;
    sets = json_object_get(root, "sets");
    if (all == NULL)
        rc = sp_err(SP_ECANNOT, "out of memory");
    else if (root == NULL)
        rc = sp_err(SP_EFAIL, "%s:%d: %s", name, error.line, error.text);
    else if (schema == NULL || strcmp(schema, MANIFEST_SCHEMA) != 0)
        rc = bad(name, "not of schema " MANIFEST_SCHEMA);
    else if (json_object_size(sets) == 0)
        rc = bad(name, "no patch sets");
    if (rc == 0)
        rc = reserve(&all->sets, json_object_size(sets), sizeof *all->sets, name);
    json_object_foreach(sets, set_name, object)
    {
        if (rc < 0)
            break;
        rc = parse_set(&all->sets[all->count++], set_name, object, name);
    }
    json_decref(root);
    if (rc < 0)
        sp_patchsets_free(all);
    else
        *out = all;
    return rc;
}

int sp_patchsets_load(struct sp_patchsets **out, const char *dir)
{
    struct sp_buf bytes = SP_BUF_INIT;
    char *folder = NULL, *file = NULL;
    int rc;

    *out = NULL;
    rc = dir ? 0 : sp_datadir(&folder, "patches");
    if (rc == 0 && dir != NULL && (folder = strdup(dir)) == NULL)
        rc = sp_err(SP_ECANNOT, "out of memory");
    if (rc == 0 && asprintf(&file, "%s/manifest.json", folder) < 0)
        rc = sp_err(SP_ECANNOT, "out of memory");
    if (rc == 0)
        rc = sp_read_file(&bytes, file, MANIFEST_MAX);
    if (rc == 0)
        rc = sp_patchsets_parse(out, bytes.data, bytes.len, file);
    if (rc == 0) {
        (*out)->dir = folder;
        folder = NULL;
    }
    sp_buf_free(&bytes);
    free(folder);
    free(file);
    return rc;
}

static void free_set(struct sp_patchset *set)
{
    for (size_t i = 0; i < set->text_count; i++) {
        for (size_t j = 0; j < set->texts[i].old_count; j++)
            free(set->texts[i].old[j].file);
        free(set->texts[i].old);
        free(set->texts[i].patch.file);
        free(set->texts[i].path);
    }
    for (size_t i = 0; i < set->release_count; i++) {
        for (size_t j = 0; j < set->releases[i].file_count; j++)
            free(set->releases[i].files[j].path);
        free(set->releases[i].files);
        free(set->releases[i].version);
        free(set->releases[i].refuse);
    }
    free(set->texts);
    free(set->releases);
    free(set->name);
    free(set->summary);
}

void sp_patchsets_free(struct sp_patchsets *sets)
{
    if (sets == NULL)
        return;
    for (size_t i = 0; i < sets->count; i++)
        free_set(&sets->sets[i]);
    free(sets->sets);
    free(sets->dir);
    free(sets);
}

const struct sp_patchset *sp_patchset_find(const struct sp_patchsets *sets, const char *name)
{
    const struct sp_patchset *found = NULL;

    for (size_t i = 0; i < sets->count && found == NULL; i++)
        if (strcmp(sets->sets[i].name, name) == 0)
            found = &sets->sets[i];
    return found;
}

int sp_patch_read(struct sp_buf *out, const struct sp_patchsets *sets, const struct sp_patch *patch)
{
    char sum[SP_SHA256_HEX + 1];
    char *file = NULL;
    int rc = 0;

    if (asprintf(&file, "%s/%s", sets->dir, patch->file) < 0)
        return sp_err(SP_ECANNOT, "out of memory");
    rc = sp_read_file(out, file, PATCH_MAX);
    if (rc == 0)
        rc = sp_sha256(sum, out->data, out->len);
    if (rc == 0 && strcmp(sum, patch->sha256) != 0)
        rc = sp_err(SP_EFAIL, "'%s' has sha256 %s, the manifest says %s", file, sum, patch->sha256);
    free(file);
    return rc;
}
