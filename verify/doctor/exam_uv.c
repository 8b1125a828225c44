/*
 * uv's cache: an environment that uv made is hard-linked to it, so that whoever edits a file in place edits the cache,
 * and with it every environment that was or will be made from it. `apply` breaks the links; other tools do not.
 */
#include "base/err.h"
#include "verify/doctor/doctor.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FILE_MAX = 16 << 20 };

enum text_state { TEXT_RELEASED, TEXT_OURS, TEXT_OTHER };

static bool cache_folder(char out[PATH_MAX], char *const *env)
{
    const char *uv = sp_env_value(env, "UV_CACHE_DIR"), *xdg = sp_env_value(env, "XDG_CACHE_HOME");
    const char *home = sp_env_value(env, "HOME");

    if (uv && *uv)
        return snprintf(out, PATH_MAX, "%s", uv) < PATH_MAX;
    if (xdg && *xdg)
        return snprintf(out, PATH_MAX, "%s/uv", xdg) < PATH_MAX;
    return home && *home && snprintf(out, PATH_MAX, "%s/.cache/uv", home) < PATH_MAX;
}

static bool is_post(const struct sp_text *text, const char *hex)
{
    bool found = strcmp(text->patch.post.hex, hex) == 0;

    for (size_t i = 0; i < text->old_count && !found; i++)
        found = strcmp(text->old[i].post.hex, hex) == 0;
    return found;
}

static enum text_state state_of(const struct sp_patchset *set, const char *path, const char *hex)
{
    enum text_state state = TEXT_OTHER;

    for (size_t i = 0; i < set->text_count; i++) {
        const struct sp_text *text = &set->texts[i];

        if (strcmp(text->path, path) != 0)
            continue;
        if (is_post(text, hex))
            return TEXT_OURS;
        if (strcmp(text->pre.hex, hex) == 0)
            state = TEXT_RELEASED;
    }
    return state;
}

/* The release that this entry says it is, if we know it. */
static const struct sp_release *release_of(const struct sp_patchset *set, const char *entry)
{
    const struct sp_release *found = NULL;
    glob_t hits;

    sp_glob_beneath(&hits, entry, "sglang-*.dist-info");
    if (hits.gl_pathc > 0) {
        const char *version = strrchr(hits.gl_pathv[0], '/') + strlen("/sglang-");
        const size_t len = strlen(version) - strlen(".dist-info");

        for (size_t i = 0; i < set->release_count; i++)
            if (strlen(set->releases[i].version) == len && strncmp(set->releases[i].version, version, len) == 0)
                found = &set->releases[i];
    }
    globfree(&hits);
    return found;
}

static int judge_file(struct sp_findings *findings, const struct sp_patchset *set, const char *entry, const char *path)
{
    struct sp_buf bytes = SP_BUF_INIT;
    enum text_state state = TEXT_RELEASED;
    char name[PATH_MAX];
    struct sp_oid oid;
    int rc = SP_OK;

    if (snprintf(name, sizeof name, "%s/%s", entry, path) < (int)sizeof name &&
        sp_read_file(&bytes, name, FILE_MAX) == SP_OK && sp_blob_id(&oid, bytes.data, bytes.len) == SP_OK)
        state = state_of(set, path, oid.hex);
    sp_err_clear();
    sp_buf_free(&bytes);
    if (state != TEXT_RELEASED)
        rc = sp_finding_add(findings, "uv-cache.contaminated", SP_WARN, "uv cache clean sglang",
                            "'%s' in uv's cache is %s: environments made from it are not as released", path,
                            state == TEXT_OURS ? "patched" : "not as released");
    return rc;
}

/* A release that we do not know may have any text. */
static int judge_entry(struct sp_findings *findings, const struct sp_patchset *set, const char *entry)
{
    const struct sp_release *release = release_of(set, entry);
    int rc = SP_OK;

    for (size_t i = 0; release && i < release->file_count && rc == SP_OK; i++)
        rc = judge_file(findings, set, entry, release->files[i].path);
    return rc;
}

int sp_exam_uv(struct sp_findings *findings, const struct sp_patient *patient)
{
    char cache[PATH_MAX];
    glob_t hits;
    int rc = SP_OK;

    if (!patient->sets || !cache_folder(cache, patient->around->env))
        return rc;
    sp_glob_beneath(&hits, cache, "archive-v*/*/sglang");
    for (size_t i = 0; i < hits.gl_pathc; i++) {
        *strrchr(hits.gl_pathv[i], '/') = '\0';
        for (size_t k = 0; k < patient->sets->count && rc == SP_OK; k++)
            rc = judge_entry(findings, &patient->sets->sets[k], hits.gl_pathv[i]);
    }
    globfree(&hits);
    return rc;
}
