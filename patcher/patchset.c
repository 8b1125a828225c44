#include "patcher/patchset.h"
#include "base/err.h"
#include "base/json.h"
#include "patcher/datadir.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MANIFEST_MAX = 8 << 20, PATCH_MAX = 1 << 20, ENTRIES_MAX = 100000 };
#define MANIFEST_SCHEMA "sgl-pcie-patches/1"

static int take_string(char **out, const json_t *object, const char *key)
{
    const char *value;
    int rc = sp_json_string(&value, object, key);

    if (rc == 0 && *value == '\0')
        rc = sp_err(SP_EFAIL, "field '%s' is empty", key);
    if (rc == 0 && (*out = strdup(value)) == NULL)
        rc = sp_err(SP_ECANNOT, "out of memory");
    return rc;
}

static int check_path(const char *path)
{
    return sp_path_is_safe(path) ? 0 : sp_err(SP_EFAIL, "not a safe relative path: '%s'", path);
}

static int take_path(char **out, const json_t *object, const char *key)
{
    int rc = take_string(out, object, key);

    return rc < 0 ? rc : check_path(*out);
}

static int take_hex(char *out, const json_t *object, const char *key, size_t digits)
{
    const char *text;
    int rc = sp_json_string(&text, object, key);

    if (rc == 0 && (strlen(text) != digits || strspn(text, "0123456789abcdef") != digits))
        rc = sp_err(SP_EFAIL, "field '%s' is not a string of %zu hex digits", key, digits);
    if (rc == 0)
        memcpy(out, text, digits + 1);
    return rc;
}

static int take_revision(unsigned *out, const json_t *object)
{
    json_int_t value;
    int rc = sp_json_integer(&value, object, "revision", 1, 1000000);

    *out = (unsigned)value;
    return rc;
}

/* calloc for an array of JSON elements; zero elements are fine and give a valid pointer. */
static int reserve(void *out, size_t count, size_t size)
{
    void *items = count <= ENTRIES_MAX ? calloc(count + 1, size) : NULL;

    memcpy(out, &items, sizeof items);
    return items ? 0 : sp_err(SP_EFAIL, "too many entries");
}

static int parse_patch(struct sp_patch *patch, const json_t *object)
{
    int rc = take_path(&patch->file, object, "patch");

    if (rc == 0)
        rc = take_hex(patch->post.hex, object, "post", SP_OID_HEX);
    return rc < 0 ? rc : take_hex(patch->sha256, object, "sha256", SP_SHA256_HEX);
}

static int parse_old(struct sp_text *text, const json_t *object)
{
    json_t *old = json_object_get(object, "old");
    int rc = old ? sp_json_array(&old, object, "old", ENTRIES_MAX) : 0;

    if (rc == 0)
        rc = reserve(&text->old, json_array_size(old), sizeof *text->old);
    for (size_t i = 0; rc == 0 && i < json_array_size(old); i++) {
        const json_t *entry = json_array_get(old, i);

        text->old_count++;
        rc = parse_patch(&text->old[i], entry);
        if (rc == 0)
            rc = take_revision(&text->old[i].revision, entry);
    }
    return rc;
}

static int parse_text(struct sp_text *text, const json_t *object, unsigned revision)
{
    int rc = take_path(&text->path, object, "path");

    if (rc == 0)
        rc = take_hex(text->pre.hex, object, "pre", SP_OID_HEX);
    if (rc == 0)
        rc = parse_patch(&text->patch, object);
    text->patch.revision = revision;
    return rc < 0 ? rc : parse_old(text, object);
}

static const struct sp_text *find_text(const struct sp_patchset *set, const char *path, const char *pre)
{
    const struct sp_text *found = NULL;

    for (size_t i = 0; i < set->text_count && found == NULL; i++)
        if (strcmp(set->texts[i].path, path) == 0 && strcmp(set->texts[i].pre.hex, pre) == 0)
            found = &set->texts[i];
    return found;
}

static int parse_release_file(struct sp_release_file *file, const json_t *files, const char *path)
{
    int rc = check_path(path);

    if (rc == 0 && (file->path = strdup(path)) == NULL)
        rc = sp_err(SP_ECANNOT, "out of memory");
    return rc < 0 ? rc : take_hex(file->pre.hex, files, path, SP_OID_HEX);
}

static int parse_release(struct sp_release *release, const json_t *object, const struct sp_patchset *set)
{
    json_t *files = NULL, *pre;
    const char *path;
    int rc = take_string(&release->version, object, "version");

    if (rc == 0 && json_object_get(object, "refuse") != NULL)
        rc = take_string(&release->refuse, object, "refuse");
    if (rc == 0)
        rc = sp_json_object(&files, object, "files");
    if (rc == 0 && json_object_size(files) == 0)
        rc = sp_err(SP_EFAIL, "a release without files");
    if (rc == 0)
        rc = reserve(&release->files, json_object_size(files), sizeof *release->files);
    json_object_foreach(files, path, pre)
    {
        struct sp_release_file *file;

        if (rc < 0)
            break;
        file = &release->files[release->file_count++];
        rc = parse_release_file(file, files, path);
        if (rc == 0 && release->refuse == NULL && find_text(set, file->path, file->pre.hex) == NULL)
            rc = sp_err(SP_EFAIL, "release %s names a text without a patch: %s", release->version, path);
    }
    return rc;
}

/* "base": "checkout", or nothing. */
static int parse_base(struct sp_patchset *set, const json_t *object)
{
    const char *base;
    int rc = sp_json_opt_string(&base, object, "base");

    set->checkout = rc == 0 && base != NULL;
    if (set->checkout && strcmp(base, "checkout") != 0)
        rc = sp_err(SP_EFAIL, "field 'base' is '%s', not 'checkout'", base);
    return rc;
}

static int parse_head(struct sp_patchset *set, const char *name, const json_t *object)
{
    int rc = take_string(&set->summary, object, "summary");

    set->name = strdup(name);
    if (rc == 0 && set->name == NULL)
        rc = sp_err(SP_ECANNOT, "out of memory");
    if (rc == 0)
        rc = take_revision(&set->revision, object);
    return rc < 0 ? rc : parse_base(set, object);
}

static int parse_set(struct sp_patchset *set, const char *name, const json_t *object)
{
    json_t *texts = NULL, *releases = NULL;
    int rc = parse_head(set, name, object);

    if (rc == 0)
        rc = sp_json_array(&texts, object, "texts", ENTRIES_MAX);
    if (rc == 0)
        rc = reserve(&set->texts, json_array_size(texts), sizeof *set->texts);
    for (size_t i = 0; rc == 0 && i < json_array_size(texts); i++) {
        set->text_count++;
        rc = parse_text(&set->texts[i], json_array_get(texts, i), set->revision);
    }
    if (rc == 0)
        rc = sp_json_array(&releases, object, "releases", ENTRIES_MAX);
    if (rc == 0)
        rc = reserve(&set->releases, json_array_size(releases), sizeof *set->releases);
    for (size_t i = 0; rc == 0 && i < json_array_size(releases); i++) {
        set->release_count++;
        rc = parse_release(&set->releases[i], json_array_get(releases, i), set);
    }
    return rc < 0 ? sp_err_wrap(rc, "set '%s'", name) : 0;
}

static int parse_sets(struct sp_patchsets *all, const json_t *root)
{
    const char *schema, *name;
    json_t *sets = NULL, *object;
    int rc = sp_json_string(&schema, root, "schema");

    if (rc == 0 && strcmp(schema, MANIFEST_SCHEMA) != 0)
        rc = sp_err(SP_EFAIL, "not of schema " MANIFEST_SCHEMA);
    if (rc == 0)
        rc = sp_json_object(&sets, root, "sets");
    if (rc == 0 && json_object_size(sets) == 0)
        rc = sp_err(SP_EFAIL, "no patch sets");
    if (rc == 0)
        rc = reserve(&all->sets, json_object_size(sets), sizeof *all->sets);
    json_object_foreach(sets, name, object)
    {
        if (rc < 0)
            break;
        rc = parse_set(&all->sets[all->count++], name, object);
    }
    return rc;
}

int sp_patchsets_parse(struct sp_patchsets **out, const char *json, size_t len, const char *name)
{
    struct sp_patchsets *all = calloc(1, sizeof *all);
    json_t *root = NULL;
    int rc = all ? sp_json_load(&root, json, len, name) : sp_err(SP_ECANNOT, "out of memory");

    *out = NULL;
    if (rc == 0 && (rc = parse_sets(all, root)) < 0)
        rc = sp_err_wrap(rc, "'%s'", name);
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
    if (rc < 0)
        rc = sp_datadir_hint(rc);
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
    if (rc < 0)
        rc = sp_datadir_hint(rc);
    free(file);
    return rc;
}
