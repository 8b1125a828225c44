#include "patcher/plan.h"
#include "base/err.h"
#include "base/shell.h"
#include "patcher/git.h"
#include "patcher/runtime.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { SOURCE_MAX = 8 << 20 };

const char *sp_state_name(enum sp_state state)
{
    static const char *const names[] = {"pristine", "applied", "applied-old", "drifted", "missing", "unknown"};

    return names[state];
}

static int same(const struct sp_oid *a, const struct sp_oid *b)
{
    return strcmp(a->hex, b->hex) == 0;
}

/* Which patch of this text gives these bytes: NULL for none. */
static const struct sp_patch *patch_giving(const struct sp_text *text, const struct sp_oid *oid)
{
    const struct sp_patch *found = same(&text->patch.post, oid) ? &text->patch : NULL;

    for (size_t i = 0; i < text->old_count && found == NULL; i++)
        if (same(&text->old[i].post, oid))
            found = &text->old[i];
    return found;
}

/* The text that a file is or was made from, by its bytes alone. */
static const struct sp_text *identify(const struct sp_patchset *set, const char *path, const struct sp_oid *oid)
{
    const struct sp_text *found = NULL;

    for (size_t i = 0; i < set->text_count && found == NULL; i++) {
        const struct sp_text *text = &set->texts[i];

        if (strcmp(text->path, path) == 0 && (same(&text->pre, oid) || patch_giving(text, oid) != NULL))
            found = text;
    }
    return found;
}

static const struct sp_text *text_of(const struct sp_patchset *set, const struct sp_release_file *file)
{
    const struct sp_text *found = NULL;

    for (size_t i = 0; i < set->text_count && found == NULL; i++)
        if (strcmp(set->texts[i].path, file->path) == 0 && same(&set->texts[i].pre, &file->pre))
            found = &set->texts[i];
    return found;
}

static struct sp_plan_file *file_at(struct sp_plan *plan, const struct sp_patchset *set, const char *path)
{
    struct sp_plan_file *found = NULL;

    for (size_t i = 0; i < plan->file_count && found == NULL; i++)
        if (plan->files[i].set == set && strcmp(plan->files[i].path, path) == 0)
            found = &plan->files[i];
    return found;
}

/* A folder, a FIFO or the like: nothing that we could put aside for the user. */
static int hint_other(int rc, int root_fd, const char *path)
{
    struct stat st;

    if (fstatat(root_fd, path, &st, AT_SYMLINK_NOFOLLOW) == 0 && !S_ISREG(st.st_mode) && !S_ISLNK(st.st_mode))
        rc = sp_err_hint(rc, "move it away and put the plain file there (an install: install SGLang again; a checkout: "
                             "git checkout)");
    return rc;
}

static int read_file(struct sp_plan *plan, const struct sp_patchset *set, const char *path, int root_fd)
{
    struct sp_plan_file *file = &plan->files[plan->file_count];
    int rc;

    *file = (struct sp_plan_file){.set = set, .path = path, .state = SP_UNKNOWN};
    plan->file_count++;
    rc = sp_read_beneath(&file->bytes, NULL, root_fd, path, SOURCE_MAX);
    if (rc == 0)
        rc = sp_blob_id(&file->oid, file->bytes.data, file->bytes.len);
    else if (rc == 1)
        file->state = SP_MISSING;
    return rc < 0 ? hint_other(rc, root_fd, path) : 0;
}

/* Every path that any release of the set has, once. */
static int read_files(struct sp_plan *plan, const struct sp_patchset *set, int root_fd)
{
    int rc = 0;

    for (size_t i = 0; i < set->release_count && rc == 0; i++)
        for (size_t j = 0; j < set->releases[i].file_count && rc == 0; j++)
            if (file_at(plan, set, set->releases[i].files[j].path) == NULL)
                rc = read_file(plan, set, set->releases[i].files[j].path, root_fd);
    return rc;
}

/* What a release is looked for by: the bytes that are there, or those that HEAD has. */
enum by { BY_BYTES, BY_HEAD };

static int matches(struct sp_plan *plan, const struct sp_patchset *set, const struct sp_release_file *wanted,
                   enum by by)
{
    const struct sp_plan_file *file = file_at(plan, set, wanted->path);
    const struct sp_oid *oid = by == BY_HEAD ? &file->head : &file->oid;
    const struct sp_text *text = text_of(set, wanted);

    return same(oid, &wanted->pre) || (text != NULL && patch_giving(text, oid) != NULL);
}

/* The release whose every file is here, in any of its states. Several can be: then the one that the version names,
 * else the newest. */
static const struct sp_release *match_release(struct sp_plan *plan, const struct sp_patchset *set, const char *version,
                                              enum by by)
{
    const struct sp_release *found = NULL;

    for (size_t i = set->release_count; i-- > 0;) {
        const struct sp_release *release = &set->releases[i];
        int all = 1;

        for (size_t j = 0; j < release->file_count && all; j++)
            all = matches(plan, set, &release->files[j], by);
        if (all && (found == NULL || (version != NULL && strcmp(release->version, version) == 0)))
            found = release;
    }
    return found;
}

static const struct sp_release *named_release(const struct sp_patchset *set, const char *version)
{
    const struct sp_release *found = NULL;

    for (size_t i = 0; i < set->release_count && found == NULL && version != NULL; i++)
        if (strcmp(set->releases[i].version, version) == 0)
            found = &set->releases[i];
    return found;
}

/* A file that is there, against the text that it should be. */
static void judge_text(struct sp_plan_file *file)
{
    file->expected = file->text->pre;
    file->now = patch_giving(file->text, &file->oid);
    if (same(&file->oid, &file->expected))
        file->state = SP_PRISTINE;
    else if (file->now == NULL)
        file->state = SP_DRIFTED;
    else
        file->state = file->now == &file->text->patch ? SP_APPLIED : SP_APPLIED_OLD;
}

static void judge_file(struct sp_plan_file *file, const struct sp_release_file *wanted)
{
    file->text = text_of(file->set, wanted);
    file->expected = wanted->pre;
    if (file->state == SP_MISSING)
        return;
    if (file->text != NULL)
        judge_text(file);
    else /* of a release that is refused */
        file->state = same(&file->oid, &wanted->pre) ? SP_PRISTINE : SP_DRIFTED;
}

/* Is it a file of another release that still carries our patch? Nobody else would take that back. */
static bool is_patched(struct sp_plan_file *file)
{
    file->text = file->state == SP_MISSING ? NULL : identify(file->set, file->path, &file->oid);
    if (file->text != NULL)
        judge_text(file);
    return file->now != NULL;
}

/* Drop the files that do not belong to the release, unless they carry our patch; the others keep their order. */
static void keep_release_files(struct sp_plan *plan, size_t first, const struct sp_release *release)
{
    size_t kept = first;

    for (size_t i = first; i < plan->file_count; i++) {
        const struct sp_release_file *wanted = NULL;

        for (size_t j = 0; j < release->file_count && wanted == NULL; j++)
            if (strcmp(release->files[j].path, plan->files[i].path) == 0)
                wanted = &release->files[j];
        if (wanted != NULL) {
            judge_file(&plan->files[i], wanted);
        } else if (!is_patched(&plan->files[i])) {
            sp_buf_free(&plan->files[i].bytes);
            continue;
        }
        plan->files[kept++] = plan->files[i];
    }
    plan->file_count = kept;
}

/* No release to compare with: a file that we know by itself is told apart from one that we do not. */
static void judge_unknown(struct sp_plan *plan, size_t first)
{
    size_t kept = first;

    for (size_t i = first; i < plan->file_count; i++) {
        struct sp_plan_file *file = &plan->files[i];

        if (file->state == SP_MISSING) {
            sp_buf_free(&file->bytes);
            continue;
        }
        file->text = identify(file->set, file->path, &file->oid);
        if (file->text != NULL)
            judge_text(file);
        plan->files[kept++] = *file;
    }
    plan->file_count = kept;
}

/* ---- what git says ---- */

int sp_plan_git_path(char **out, const struct sp_install *install, const struct sp_plan_file *file)
{
    const char *prefix = file->set->checkout ? "" : strrchr(install->root, '/') + 1;

    return asprintf(out, "%s%s%s", prefix, *prefix ? "/" : "", file->path) < 0 ? sp_err(SP_ECANNOT, "out of memory")
                                                                               : 0;
}

/* Ours to change is what is committed as a text that we know, patched or not, and staged as one. */
static const char *dirt(const struct sp_plan_file *file)
{
    const struct sp_patchset *set = file->set;

    if (file->state != SP_PRISTINE && file->state != SP_APPLIED_OLD)
        return NULL;
    if (file->head.hex[0] != '\0' && identify(set, file->path, &file->head) != file->text)
        return "is not what HEAD has";
    if ((file->head.hex[0] != '\0' || file->index.hex[0] != '\0') &&
        identify(set, file->path, &file->index) != file->text)
        return "has a staged change";
    return NULL;
}

/* Known bytes, but with a change of the user's that reverting would not bring back to what git has. */
static void judge_dirt(struct sp_plan *plan, size_t first)
{
    for (size_t i = first; i < plan->file_count; i++) {
        struct sp_plan_file *file = &plan->files[i];

        file->dirty = dirt(file);
        if (file->dirty != NULL) {
            file->state = SP_DRIFTED;
            file->expected = file->head;
        }
    }
}

static int ask_git(struct sp_plan *plan, size_t first, const struct sp_install *install)
{
    struct sp_checkout *checkout = NULL;
    int rc = 0;

    if (install->layout == SP_LAYOUT_SOURCE && install->checkout != NULL)
        rc = sp_checkout_open(&checkout, install->checkout);
    for (size_t i = first; i < plan->file_count && rc == 0 && checkout != NULL; i++) {
        char *path = NULL;

        rc = sp_plan_git_path(&path, install, &plan->files[i]);
        if (rc == 0)
            sp_checkout_ids(&plan->files[i].head, &plan->files[i].index, checkout, path);
        free(path);
    }
    sp_checkout_free(checkout);
    return rc;
}

/* ---- one set ---- */

static bool any_there(const struct sp_plan *plan, size_t first)
{
    bool there = false;

    for (size_t i = first; i < plan->file_count && !there; i++)
        there = plan->files[i].state != SP_MISSING;
    return there;
}

/* The set's files are those of the plan from first on. */
static void judge_set(struct sp_plan *plan, size_t first, const struct sp_patchset *set,
                      const struct sp_install *install, bool asked)
{
    const struct sp_release *release = match_release(plan, set, install->sglang, BY_BYTES);
    const struct sp_release *meant = release ? release : named_release(set, install->sglang);

    if (meant == NULL)
        meant = match_release(plan, set, NULL, BY_HEAD);
    if (meant != NULL)
        keep_release_files(plan, first, meant);
    else
        judge_unknown(plan, first);
    judge_dirt(plan, first);
    plan->set[plan->set_count] = set;
    plan->asked[plan->set_count] = asked;
    plan->release[plan->set_count] = release;
    plan->meant[plan->set_count] = meant;
    plan->set_count++;
}

static int plan_set(struct sp_plan *plan, const struct sp_patchset *set, const struct sp_install *install, bool asked)
{
    const size_t first = plan->file_count;
    int rc = read_files(plan, set, set->checkout ? install->checkout_fd : install->root_fd);

    if (rc == 0)
        rc = ask_git(plan, first, install);
    if (rc == 0 && (asked || any_there(plan, first)))
        judge_set(plan, first, set, install, asked);
    else if (rc == 0)
        plan->file_count = first; /* a checkout without these files */
    return rc;
}

static size_t count_paths(const struct sp_patchsets *sets)
{
    size_t count = 0;

    for (size_t i = 0; i < sets->count; i++)
        for (size_t j = 0; j < sets->sets[i].release_count; j++)
            count += sets->sets[i].releases[j].file_count;
    return count;
}

static int allocate(struct sp_plan **out, const struct sp_patchsets *sets)
{
    struct sp_plan *plan = calloc(1, sizeof *plan);

    if (plan != NULL) {
        plan->release = calloc(sets->count, sizeof *plan->release);
        plan->meant = calloc(sets->count, sizeof *plan->meant);
        plan->asked = calloc(sets->count, sizeof *plan->asked);
        plan->set = calloc(sets->count, sizeof *plan->set);
        plan->files = calloc(count_paths(sets), sizeof *plan->files);
    }
    *out = plan;
    if (plan == NULL || plan->release == NULL || plan->meant == NULL || plan->asked == NULL || plan->set == NULL ||
        plan->files == NULL)
        return sp_err(SP_ECANNOT, "out of memory");
    return 0;
}

static bool named(const char *const *names, const char *name)
{
    bool found = false;

    for (size_t i = 0; names != NULL && names[i] != NULL && !found; i++)
        found = strcmp(names[i], name) == 0;
    return found;
}

/* Has this install what the set patches? */
static bool belongs(const struct sp_patchset *set, const struct sp_install *install)
{
    return !set->checkout || (install->layout == SP_LAYOUT_SOURCE && install->checkout != NULL);
}

static int check_name(const char *name, const struct sp_patchset *set, const struct sp_install *install)
{
    char quoted[SP_QUOTED_MAX];

    if (set == NULL) {
        sp_err(SP_EUSAGE, "no patch set is called '%s'", name);
        return sp_err_hint(SP_EUSAGE, "sgl-pcie list");
    }
    if (belongs(set, install))
        return 0;
    sp_err(SP_EUSAGE, "the patch set '%s' is of files that only a source checkout has, which '%s' is not", name,
           install->root);
    return sp_err_hint(SP_EUSAGE, "name the checkout itself: --source %s",
                       install->checkout ? sp_shell_quote(quoted, install->checkout) : "DIR");
}

static int check_names(const char *const *names, const struct sp_patchsets *sets, const struct sp_install *install)
{
    int rc = 0;

    for (size_t i = 0; names != NULL && names[i] != NULL && rc == 0; i++)
        rc = check_name(names[i], sp_patchset_find(sets, names[i]), install);
    return rc;
}

int sp_plan_make(struct sp_plan **out, const struct sp_install *install, const struct sp_patchsets *sets,
                 const char *const *names)
{
    int rc = check_names(names, sets, install);

    *out = NULL;
    if (rc == 0)
        rc = allocate(out, sets);
    for (size_t i = 0; i < sets->count && rc == 0; i++) {
        const struct sp_patchset *set = &sets->sets[i];

        if (names ? named(names, set->name) : belongs(set, install))
            rc = plan_set(*out, set, install, names != NULL || !set->checkout);
    }
    if (rc == 0)
        rc = sp_runtime_state(&(*out)->runtime, install);
    if (rc < 0) {
        sp_plan_free(*out);
        *out = NULL;
    }
    return rc;
}

void sp_plan_free(struct sp_plan *plan)
{
    if (plan == NULL)
        return;
    for (size_t i = 0; i < plan->file_count; i++)
        sp_buf_free(&plan->files[i].bytes);
    free(plan->files);
    free(plan->release);
    free(plan->meant);
    free(plan->asked);
    free(plan->set);
    free(plan);
}

bool sp_plan_asked(const struct sp_plan *plan, const struct sp_plan_file *file)
{
    bool asked = false;

    for (size_t i = 0; i < plan->set_count; i++)
        asked = asked || (plan->asked[i] && plan->set[i] == file->set);
    return asked;
}
