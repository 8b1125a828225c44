/* May a plan be carried out? If not, why, and what to do about it. */
#include "base/err.h"
#include "base/shell.h"
#include "patcher/mend.h"
#include "patcher/plan.h"

#include <stdlib.h>
#include <string.h>

/* A file that carries our patch, but belongs to another release. */
static const struct sp_plan_file *stray_file(const struct sp_plan *plan, const struct sp_patchset *set,
                                             const struct sp_release *release)
{
    const struct sp_plan_file *stray = NULL;

    for (size_t i = 0; i < plan->file_count && stray == NULL; i++) {
        bool listed = plan->files[i].set != set;

        for (size_t j = 0; j < release->file_count && !listed; j++)
            listed = strcmp(release->files[j].path, plan->files[i].path) == 0;
        if (!listed)
            stray = &plan->files[i];
    }
    return stray;
}

/* The first file of a set that is not as it should be, or NULL; *count of them. */
static const struct sp_plan_file *first_bad(const struct sp_plan *plan, const struct sp_patchset *set, size_t *count)
{
    const struct sp_plan_file *first = NULL;

    *count = 0;
    for (size_t i = 0; i < plan->file_count; i++) {
        const struct sp_plan_file *file = &plan->files[i];

        if (file->set != set || file->state <= SP_APPLIED_OLD)
            continue;
        *count += 1;
        if (first == NULL)
            first = file;
    }
    return first;
}

static const char *version_of(const struct sp_install *install)
{
    return install->sglang ? install->sglang : "of unknown version";
}

static int no_patch(const struct sp_plan_file *bad, const struct sp_patchset *set, const struct sp_install *install)
{
    if (!set->checkout)
        sp_err(SP_ENOPATCH, "no patch for sglang %s in '%s': no release that we know has these files",
               version_of(install), install->root);
    else if (bad == NULL)
        sp_err(SP_ENOPATCH, "nothing to patch for the set '%s' in '%s': the checkout has none of its files", set->name,
               install->checkout);
    else
        sp_err(SP_ENOPATCH, "no patch for '%s' in '%s': no release that we know has its text, of blob id %s", bad->path,
               install->checkout, bad->oid.hex);
    return sp_err_hint(SP_ENOPATCH, "sgl-pcie list");
}

/* Is it what HEAD and the index have, but for the carriage returns that git put at the ends of lines? */
static bool is_converted(const struct sp_plan_file *bad)
{
    struct sp_buf lines = SP_BUF_INIT;
    struct sp_oid oid = {.hex = ""};
    size_t len = 0;
    int rc;

    if (bad->bytes.len == 0)
        return false;
    rc = sp_buf_set(&lines, bad->bytes.data, bad->bytes.len);
    for (size_t i = 0; i < bad->bytes.len && rc == 0; i++)
        if (bad->bytes.data[i] != '\r' || i + 1 == bad->bytes.len || bad->bytes.data[i + 1] != '\n')
            lines.data[len++] = bad->bytes.data[i];
    if (rc == 0 && len < bad->bytes.len)
        (void)sp_blob_id(&oid, lines.data, len);
    sp_buf_free(&lines);
    return oid.hex[0] != '\0' && strcmp(oid.hex, bad->head.hex) == 0 && strcmp(oid.hex, bad->index.hex) == 0;
}

/* All of them in this set, each after a blank. */
static int list_converted(struct sp_buf *out, const struct sp_plan *plan, const struct sp_patchset *set,
                          const struct sp_install *install)
{
    char quoted[SP_QUOTED_MAX];
    int rc = 0;

    for (size_t i = 0; i < plan->file_count && rc == 0; i++) {
        char *path = NULL;

        if (plan->files[i].set != set || !is_converted(&plan->files[i]))
            continue;
        rc = sp_plan_git_path(&path, install, &plan->files[i]);
        if (rc == 0)
            rc = sp_buf_printf(out, " %s", sp_shell_quote(quoted, path));
        free(path);
    }
    return rc;
}

/* Checked out again they would be converted again: the command takes the carriage returns out. Git then has to look at
 * the files once, or it would call them changed by their size. */
static int converted(const struct sp_plan *plan, const struct sp_plan_file *bad, const struct sp_install *install)
{
    char quoted[SP_QUOTED_MAX];
    struct sp_buf files = SP_BUF_INIT;
    int rc = list_converted(&files, plan, bad->set, install);

    if (rc == 0) {
        sp_err(SP_EDRIFT,
               "'%s' in '%s' has CRLF line endings, which git made (core.autocrlf, core.eol or .gitattributes): the "
               "patch is for the bytes that are committed",
               bad->path, install->checkout);
        rc = sp_err_hint(SP_EDRIFT, "cd %s && sed -i 's/\\r$//'%s && git add%s",
                         sp_shell_quote(quoted, install->checkout), files.data, files.data);
    }
    sp_buf_free(&files);
    return rc;
}

/* Why a file of a git checkout is not as it should be. */
static const char *change_of(const struct sp_plan_file *bad)
{
    if (bad->dirty != NULL)
        return bad->dirty;
    return bad->state == SP_MISSING ? "is missing, and HEAD has it" : "is not what HEAD has";
}

static int drifted(const struct sp_plan *plan, const struct sp_plan_file *bad, size_t count,
                   const struct sp_release *meant, const struct sp_install *install)
{
    const char *version = install->sglang ? install->sglang : meant->version;
    const char *where = bad->set->checkout ? install->checkout : install->root;

    if (is_converted(bad))
        return converted(plan, bad, install);
    if (bad->dirty != NULL || bad->head.hex[0] != '\0') {
        sp_err(SP_EDRIFT, "'%s' in '%s' %s: that change is yours, not to be mixed with the patch", bad->path, where,
               change_of(bad));
        return sp_mend_hint(SP_EDRIFT, install, bad, version);
    }
    sp_err(SP_EDRIFT,
           "%zu file%s of sglang %s in '%s' differ%s from every text of that release that we know, first '%s': install "
           "that release there again",
           count, count == 1 ? "" : "s", version, where, count == 1 ? "s" : "", bad->path);
    return sp_mend_hint(SP_EDRIFT, install, bad, version);
}

static int stray(const struct sp_plan_file *file, const struct sp_release *release, const struct sp_install *install)
{
    const bool source = install->layout == SP_LAYOUT_SOURCE;
    const char *named = source && install->checkout ? install->checkout : install->root;
    char quoted[SP_QUOTED_MAX];

    sp_err(SP_EDRIFT, "'%s' in '%s' carries the patch of another release than %s: take that back%s, then patch again",
           file->path, file->set->checkout ? install->checkout : install->root, release->version,
           source ? "" : ", install this sglang again");
    return sp_err_hint(SP_EDRIFT, "sgl-pcie revert %s %s", sp_install_option(install),
                       sp_shell_quote(quoted, install->python ? install->python : named));
}

static int check_set(const struct sp_plan *plan, size_t index, const struct sp_install *install)
{
    const struct sp_patchset *set = plan->set[index];
    const struct sp_release *release = plan->release[index], *meant = plan->meant[index];
    size_t count;
    const struct sp_plan_file *bad = first_bad(plan, set, &count);

    if (release != NULL && release->refuse != NULL)
        return sp_err_hint(sp_err(SP_ENOPATCH, "sglang %s in '%s' is not patched: %s", release->version, install->root,
                                  release->refuse),
                           "sgl-pcie list");
    if (release != NULL && stray_file(plan, set, release) != NULL)
        return stray(stray_file(plan, set, release), release, install);
    if (meant == NULL)
        return no_patch(bad, set, install);
    return bad == NULL ? 0 : drifted(plan, bad, count, meant, install);
}

int sp_plan_check(const struct sp_plan *plan, const struct sp_install *install)
{
    int rc = 0;

    for (size_t i = 0; i < plan->set_count && rc == 0; i++)
        if (plan->asked[i])
            rc = check_set(plan, i, install);
    return rc;
}
