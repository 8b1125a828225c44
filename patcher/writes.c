#include "patcher/writes.h"
#include "base/err.h"
#include "patcher/mend.h"
#include "patcher/patch.h"
#include "patcher/runtime.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What is planned, and of what. */
struct planning {
    struct sp_writes *out;
    const struct sp_install *install;
    const struct sp_patchsets *sets;
    const struct sp_plan *plan;
};

/* ---- lists ---- */

int sp_write_add(struct sp_write_list *list, const char *path, const char *action, const char *set,
                 const struct sp_oid *pre, struct sp_buf *data)
{
    struct sp_write *grown = realloc(list->item, (list->count + 1) * sizeof *grown);
    struct sp_write write = {.path = strdup(path), .action = action, .set = set, .data = *data};
    int rc = 0;

    *data = (struct sp_buf)SP_BUF_INIT;
    if (grown != NULL)
        list->item = grown;
    if (pre != NULL)
        write.pre = *pre;
    if (grown == NULL || write.path == NULL)
        rc = sp_err(SP_ECANNOT, "out of memory");
    else if (write.data.data != NULL)
        rc = sp_blob_id(&write.post, write.data.data, write.data.len);
    if (rc < 0) {
        free(write.path);
        sp_buf_free(&write.data);
    } else {
        list->item[list->count++] = write;
    }
    return rc;
}

void sp_write_list_free(struct sp_write_list *list)
{
    for (size_t i = 0; i < list->count; i++) {
        free(list->item[i].path);
        sp_buf_free(&list->item[i].data);
        sp_buf_free(&list->item[i].old);
    }
    free(list->item);
    *list = (struct sp_write_list){NULL, 0};
}

void sp_writes_free(struct sp_writes *writes)
{
    sp_write_list_free(&writes->patches);
    sp_write_list_free(&writes->sources);
    sp_write_list_free(&writes->runtime);
}

size_t sp_writes_count(const struct sp_writes *writes)
{
    return writes->patches.count + writes->sources.count + writes->runtime.count;
}

/* ---- texts ---- */

static int run_patch(struct sp_buf *out, const struct sp_buf *in, const struct sp_patchsets *sets,
                     const struct sp_plan_file *file, const struct sp_patch *patch, int reverse)
{
    struct sp_buf text = SP_BUF_INIT;
    int rc = sp_patch_read(&text, sets, patch);

    if (rc == 0)
        rc = sp_patch_run(out, in, file->path, &file->text->pre, &patch->post, &text, reverse);
    sp_buf_free(&text);
    return rc < 0 ? sp_err_wrap(rc, "patch set '%s'", file->set->name) : rc;
}

/* Released bytes -> patched; an earlier revision is reversed first. */
static int patched_text(struct sp_buf *out, const struct sp_plan_file *file, const struct sp_patchsets *sets)
{
    struct sp_buf released = SP_BUF_INIT;
    int rc = 0;

    if (file->state == SP_APPLIED_OLD)
        rc = run_patch(&released, &file->bytes, sets, file, file->now, 1);
    if (rc == 0)
        rc = run_patch(out, file->now ? &released : &file->bytes, sets, file, &file->text->patch, 0);
    sp_buf_free(&released);
    return rc;
}

static struct sp_write_list *list_of(struct planning *work, const struct sp_plan_file *file)
{
    return file->set->checkout ? &work->out->sources : &work->out->patches;
}

static int plan_patch(struct planning *work, const struct sp_plan_file *file)
{
    const char *action = file->state == SP_APPLIED_OLD ? "upgrade" : "patch";
    struct sp_buf patched = SP_BUF_INIT;
    int rc = patched_text(&patched, file, work->sets);

    if (rc == 0)
        rc = sp_write_add(list_of(work, file), file->path, action, file->set->name, &file->oid, &patched);
    sp_buf_free(&patched);
    return rc;
}

static int plan_unpatch(struct planning *work, const struct sp_plan_file *file)
{
    struct sp_buf released = SP_BUF_INIT;
    int rc = run_patch(&released, &file->bytes, work->sets, file, file->now, 1);

    return rc < 0 ? rc
                  : sp_write_add(list_of(work, file), file->path, "revert", file->set->name, &file->oid, &released);
}

/* ---- the runtime ---- */

/* A write over, or of nothing over, a file that is there. Takes data over, also on error. */
static int plan_over(struct sp_write_list *list, const char *action, const char *path, const struct sp_buf *there,
                     struct sp_buf *data)
{
    struct sp_oid pre;
    int rc = sp_blob_id(&pre, there->data, there->len);

    if (rc == 0)
        rc = sp_write_add(list, path, action, NULL, &pre, data);
    if (rc == 0)
        rc = sp_buf_set(&list->item[list->count - 1].old, there->data, there->len);
    sp_buf_free(data);
    return rc;
}

static int plan_removal(struct planning *work, const struct sp_runtime_file *file)
{
    struct sp_buf nothing = SP_BUF_INIT;

    return plan_over(&work->out->runtime, "remove", file->path, &file->bytes, &nothing);
}

static int plan_runtime_file(struct planning *work, struct sp_runtime_file *wanted, const struct sp_runtime_file *there)
{
    if (there == NULL)
        return sp_write_add(&work->out->runtime, wanted->path, "create", NULL, NULL, &wanted->bytes);
    if (there->bytes.len == wanted->bytes.len && memcmp(there->bytes.data, wanted->bytes.data, there->bytes.len) == 0)
        return 0;
    return plan_over(&work->out->runtime, "replace", wanted->path, &there->bytes, &wanted->bytes);
}

static int plan_runtime(struct planning *work)
{
    struct sp_runtime wanted = SP_RUNTIME_INIT, present = SP_RUNTIME_INIT;
    int rc = sp_runtime_wanted(&wanted, work->install, work->plan);

    if (rc == 0)
        rc = sp_runtime_present(&present, work->install);
    for (size_t i = 0; i < present.count && rc == 0; i++)
        if (sp_runtime_is_source(present.file[i].path) && sp_runtime_find(&wanted, present.file[i].path) == NULL)
            rc = plan_removal(work, &present.file[i]);
    for (size_t i = 0; i < wanted.count && rc == 0; i++)
        rc = plan_runtime_file(work, &wanted.file[i], sp_runtime_find(&present, wanted.file[i].path));
    sp_runtime_free(&wanted);
    sp_runtime_free(&present);
    return rc;
}

/* ---- both ways ---- */

/* The runtime serves what SGLang imports; a source text that is compiled needs none. */
static bool needs_runtime(const struct sp_plan *plan)
{
    bool needs = false;

    for (size_t i = 0; i < plan->set_count; i++)
        needs = needs || !plan->set[i]->checkout;
    return needs;
}

/* Was nothing of SGLang's Python patched? */
static bool is_stock(const struct sp_plan *plan)
{
    size_t asked = 0, pristine = 0;

    for (size_t i = 0; i < plan->file_count; i++) {
        asked += sp_plan_asked(plan, &plan->files[i]);
        pristine += sp_plan_asked(plan, &plan->files[i]) && plan->files[i].state == SP_PRISTINE;
    }
    return asked > 0 && asked == pristine;
}

/* What setup patched is its own to take back, until somebody applies it himself. */
static int plan_mark(struct planning *work, bool by_setup)
{
    static const char text[] = "{\"schema\": \"sgl-pcie-setup/1\"}\n";
    struct sp_runtime present = SP_RUNTIME_INIT;
    const struct sp_runtime_file *mark;
    struct sp_buf bytes = SP_BUF_INIT;
    int rc = sp_runtime_present(&present, work->install);

    mark = rc == 0 ? sp_runtime_find(&present, SP_SETUP_MARK) : NULL;
    if (mark != NULL && !by_setup)
        rc = plan_removal(work, mark);
    else if (rc == 0 && mark == NULL && by_setup && is_stock(work->plan)) {
        rc = sp_buf_set(&bytes, text, sizeof text - 1);
        if (rc == 0)
            rc = sp_write_add(&work->out->runtime, SP_SETUP_MARK, "create", NULL, NULL, &bytes);
    }
    sp_runtime_free(&present);
    return rc;
}

int sp_writes_apply(struct sp_writes *out, const struct sp_install *install, const struct sp_patchsets *sets,
                    const struct sp_plan *plan, bool by_setup)
{
    struct planning work = {out, install, sets, plan};
    int rc = sp_plan_check(plan, install);

    for (size_t i = 0; i < plan->file_count && rc == 0; i++)
        if (plan->files[i].state != SP_APPLIED && sp_plan_asked(plan, &plan->files[i]))
            rc = plan_patch(&work, &plan->files[i]);
    if (rc == 0 && needs_runtime(plan))
        rc = plan_runtime(&work);
    return rc < 0 || !needs_runtime(plan) ? rc : plan_mark(&work, by_setup);
}

/* A file that was edited after it was patched cannot be reversed; one that never had our lines is not our business. */
static int check_revertible(const struct sp_plan *plan, const struct sp_install *install)
{
    static const char ours[] = "sgl_pcie";
    int rc = 0;

    for (size_t i = 0; i < plan->file_count && rc == 0; i++) {
        const struct sp_plan_file *file = &plan->files[i];

        if (file->state > SP_APPLIED_OLD && file->bytes.len > 0 &&
            memmem(file->bytes.data, file->bytes.len, ours, sizeof ours - 1) != NULL) {
            sp_err(SP_EDRIFT,
                   "'%s/%s' was changed after it was patched (its blob id is %s): undo that, or put back the released "
                   "file",
                   file->set->checkout ? install->checkout : install->root, file->path, file->oid.hex);
            rc = sp_mend_hint(SP_EDRIFT, install, file, install->sglang);
        }
    }
    return rc;
}

/* Is any file of a set that stays still patched? Then the runtime stays too. */
static int other_set_applied(const struct sp_install *install, const struct sp_patchsets *sets,
                             const struct sp_plan *plan, int *out)
{
    struct sp_plan *all = NULL;
    int rc = sp_plan_make(&all, install, sets, NULL);

    *out = 0;
    for (size_t i = 0; rc == 0 && i < all->file_count; i++) {
        int reverted = 0;

        for (size_t j = 0; j < plan->set_count; j++)
            reverted = reverted || plan->set[j] == all->files[i].set;
        *out = *out || (!reverted && all->files[i].now != NULL && !all->files[i].set->checkout);
    }
    sp_plan_free(all);
    return rc;
}

static int plan_runtime_removal(struct planning *work, bool some)
{
    struct sp_runtime present = SP_RUNTIME_INIT;
    int stays = !needs_runtime(work->plan), rc = 0;

    if (some && !stays)
        rc = other_set_applied(work->install, work->sets, work->plan, &stays);
    if (rc == 0 && !stays)
        rc = sp_runtime_present(&present, work->install);
    for (size_t i = 0; i < present.count && rc == 0; i++)
        rc = plan_removal(work, &present.file[i]);
    sp_runtime_free(&present);
    return rc;
}

int sp_writes_revert(struct sp_writes *out, const struct sp_install *install, const struct sp_patchsets *sets,
                     const struct sp_plan *plan, bool some)
{
    struct planning work = {out, install, sets, plan};
    int rc = check_revertible(plan, install);

    for (size_t i = 0; i < plan->file_count && rc == 0; i++)
        if (plan->files[i].now != NULL)
            rc = plan_unpatch(&work, &plan->files[i]);
    return rc < 0 ? rc : plan_runtime_removal(&work, some);
}
