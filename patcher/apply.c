#include "patcher/apply.h"
#include "base/err.h"
#include "base/txn.h"
#include "patcher/access.h"
#include "patcher/bytecode.h"
#include "patcher/patch.h"
#include "patcher/runtime.h"
#include "patcher/servers.h"

#include <git2.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* One write, planned: what becomes of a file. data.data NULL: it is removed. */
struct write {
    char *path;
    const char *action;
    const char *set;
    struct sp_oid pre, post; /* hex "" for none */
    struct sp_buf data;
    struct sp_buf old; /* of a file of the runtime that was there, to put it back */
};

/* Writes below one directory; they become one transaction. */
struct batch {
    struct write *item;
    size_t count;
};

/* The directories of an install: the patched package, the runtime beside it, and the checkout around both. One
 * transaction where they are one directory, or lie in one: where files of the checkout are written it is the
 * checkout's, and holds the others'. */
struct job {
    const struct sp_install *install;
    const struct sp_patchsets *sets;
    const struct sp_apply_options *options;
    struct sp_txn *root_txn, *site_txn; /* site_txn NULL when the site is the root */
    struct sp_txn *checkout_txn;        /* NULL when no file of the checkout itself can be concerned */
    struct sp_plan *plan;
    struct batch patches, sources, runtime; /* sources: files of the checkout */
    size_t broken_links, bytecode;
};

static bool is_split(const struct sp_install *install)
{
    return strcmp(install->root, install->site) != 0;
}

/* ---- planning the writes ---- */

/* Takes data over, also on error. */
static int plan_write(struct batch *batch, const char *path, const char *action, const char *set,
                      const struct sp_oid *pre, struct sp_buf *data)
{
    struct write *grown = realloc(batch->item, (batch->count + 1) * sizeof *grown);
    struct write write = {.path = strdup(path), .action = action, .set = set, .data = *data};
    int rc = 0;

    *data = (struct sp_buf)SP_BUF_INIT;
    if (grown != NULL)
        batch->item = grown;
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
        batch->item[batch->count++] = write;
    }
    return rc;
}

static void free_batch(struct batch *batch)
{
    for (size_t i = 0; i < batch->count; i++) {
        free(batch->item[i].path);
        sp_buf_free(&batch->item[i].data);
        sp_buf_free(&batch->item[i].old);
    }
    free(batch->item);
}

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
int sp_plan_patched(struct sp_buf *out, const struct sp_plan_file *file, const struct sp_patchsets *sets)
{
    struct sp_buf released = SP_BUF_INIT;
    int rc = 0;

    if (file->state == SP_APPLIED)
        return sp_buf_set(out, file->bytes.data, file->bytes.len);
    if (file->state == SP_APPLIED_OLD)
        rc = run_patch(&released, &file->bytes, sets, file, file->now, 1);
    if (rc == 0)
        rc = run_patch(out, file->now ? &released : &file->bytes, sets, file, &file->text->patch, 0);
    sp_buf_free(&released);
    return rc;
}

static struct batch *batch_of(struct job *job, const struct sp_plan_file *file)
{
    return file->set->checkout ? &job->sources : &job->patches;
}

static int plan_patch(struct job *job, const struct sp_plan_file *file)
{
    const char *action = file->state == SP_APPLIED_OLD ? "upgrade" : "patch";
    struct sp_buf patched = SP_BUF_INIT;
    int rc = sp_plan_patched(&patched, file, job->sets);

    if (rc == 0)
        rc = plan_write(batch_of(job, file), file->path, action, file->set->name, &file->oid, &patched);
    sp_buf_free(&patched);
    return rc;
}

static int plan_unpatch(struct job *job, const struct sp_plan_file *file)
{
    struct sp_buf released = SP_BUF_INIT;
    int rc = run_patch(&released, &file->bytes, job->sets, file, file->now, 1);

    return rc < 0 ? rc : plan_write(batch_of(job, file), file->path, "revert", file->set->name, &file->oid, &released);
}

/* A write over, or of nothing over, a file that is there. Takes data over, also on error. */
static int plan_over(struct batch *batch, const char *action, const char *path, const struct sp_buf *now,
                     struct sp_buf *data)
{
    struct sp_oid pre;
    int rc = sp_blob_id(&pre, now->data, now->len);

    if (rc == 0)
        rc = plan_write(batch, path, action, NULL, &pre, data);
    if (rc == 0)
        rc = sp_buf_set(&batch->item[batch->count - 1].old, now->data, now->len);
    sp_buf_free(data);
    return rc;
}

static int plan_removal(struct job *job, const struct sp_runtime_file *file)
{
    struct sp_buf nothing = SP_BUF_INIT;

    return plan_over(&job->runtime, "remove", file->path, &file->bytes, &nothing);
}

static int plan_runtime_file(struct job *job, struct sp_runtime_file *wanted, const struct sp_runtime_file *now)
{
    if (now == NULL)
        return plan_write(&job->runtime, wanted->path, "create", NULL, NULL, &wanted->bytes);
    if (now->bytes.len == wanted->bytes.len && memcmp(now->bytes.data, wanted->bytes.data, now->bytes.len) == 0)
        return 0;
    return plan_over(&job->runtime, "replace", wanted->path, &now->bytes, &wanted->bytes);
}

static int plan_runtime(struct job *job)
{
    struct sp_runtime wanted = SP_RUNTIME_INIT, present = SP_RUNTIME_INIT;
    int rc = sp_runtime_wanted(&wanted, job->install, job->plan);

    if (rc == 0)
        rc = sp_runtime_present(&present, job->install);
    for (size_t i = 0; i < present.count && rc == 0; i++)
        if (sp_runtime_is_source(present.file[i].path) && sp_runtime_find(&wanted, present.file[i].path) == NULL)
            rc = plan_removal(job, &present.file[i]);
    for (size_t i = 0; i < wanted.count && rc == 0; i++)
        rc = plan_runtime_file(job, &wanted.file[i], sp_runtime_find(&present, wanted.file[i].path));
    sp_runtime_free(&wanted);
    sp_runtime_free(&present);
    return rc;
}

/* The runtime serves what SGLang imports; a source text that is compiled needs none. */
static bool needs_runtime(const struct sp_plan *plan)
{
    bool needs = false;

    for (size_t i = 0; i < plan->set_count; i++)
        needs = needs || !plan->set[i]->checkout;
    return needs;
}

static int plan_apply(struct job *job)
{
    int rc = sp_plan_check(job->plan, job->install);

    for (size_t i = 0; i < job->plan->file_count && rc == 0; i++)
        if (job->plan->files[i].state != SP_APPLIED && sp_plan_asked(job->plan, &job->plan->files[i]))
            rc = plan_patch(job, &job->plan->files[i]);
    return rc < 0 || !needs_runtime(job->plan) ? rc : plan_runtime(job);
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
            sp_err(SP_EDRIFT, "'%s/%s' was changed after it was patched: its blob id is %s",
                   file->set->checkout ? install->checkout : install->root, file->path, file->oid.hex);
            rc = sp_err_hint(SP_EDRIFT, "undo that change, or %s; then revert again",
                             file->head.hex[0] ? "restore the file with git" : "reinstall this sglang");
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

static int plan_runtime_removal(struct job *job)
{
    struct sp_runtime present = SP_RUNTIME_INIT;
    int stays = !needs_runtime(job->plan), rc = 0;

    if (job->options->sets != NULL && !stays)
        rc = other_set_applied(job->install, job->sets, job->plan, &stays);
    if (rc == 0 && !stays)
        rc = sp_runtime_present(&present, job->install);
    for (size_t i = 0; i < present.count && rc == 0; i++)
        rc = plan_removal(job, &present.file[i]);
    sp_runtime_free(&present);
    return rc;
}

static int plan_revert(struct job *job)
{
    int rc = check_revertible(job->plan, job->install);

    for (size_t i = 0; i < job->plan->file_count && rc == 0; i++)
        if (job->plan->files[i].now != NULL)
            rc = plan_unpatch(job, &job->plan->files[i]);
    return rc < 0 ? rc : plan_runtime_removal(job);
}

/* ---- writing ---- */

/* below: the folder that the batch's paths start at, as the transaction calls it: "" or "python/". */
static int stage_write(struct sp_txn *txn, const struct write *write, const char *below)
{
    char *path = NULL;
    int rc = asprintf(&path, "%s%s", below, write->path) < 0 ? sp_err(SP_ECANNOT, "out of memory") : 0;

    if (rc < 0)
        return rc;
    if (write->data.data == NULL)
        rc = sp_txn_remove(txn, path, &write->pre);
    else if (write->pre.hex[0] != '\0')
        rc = sp_txn_replace(txn, path, &write->pre, write->data.data, write->data.len);
    else
        rc = sp_txn_create(txn, path, 0644, write->data.data, write->data.len);
    free(path);
    return rc;
}

static int stage(struct sp_txn *txn, const struct batch *batch, const char *below)
{
    int rc = 0;

    for (size_t i = 0; i < batch->count && rc == 0; i++)
        rc = stage_write(txn, &batch->item[i], below);
    return rc;
}

/* A tree that cannot be written is told so before the first byte, with what to do instead. */
static int check_access(const struct job *job)
{
    int rc = 0;

    for (size_t i = 0; i < job->patches.count && rc == 0; i++)
        rc = sp_access_check(job->install->root_fd, job->install->root, job->patches.item[i].path);
    for (size_t i = 0; i < job->sources.count && rc == 0; i++)
        rc = sp_access_check(job->install->checkout_fd, job->install->checkout, job->sources.item[i].path);
    for (size_t i = 0; i < job->runtime.count && rc == 0; i++)
        rc = sp_access_check(job->install->site_fd, job->install->site, job->runtime.item[i].path);
    if (rc == 0 && job->runtime.count > 0)
        rc = sp_access_check(job->install->site_fd, job->install->site, "sgl_pcie");
    return rc;
}

/* The folders of removed files, and the bytecode folder of our package, go when they are empty. */
static int prune(struct sp_txn *txn, const struct batch *batch, const char *below)
{
    char folder[4096];
    int rc = 0;

    for (size_t i = 0; i < batch->count && rc == 0; i++) {
        const char *slash = strrchr(batch->item[i].path, '/');

        if (batch->item[i].data.data != NULL || slash == NULL)
            continue;
        (void)snprintf(folder, sizeof folder, "%s%.*s/__pycache__", below, (int)(slash - batch->item[i].path),
                       batch->item[i].path);
        rc = sp_txn_prune(txn, folder);
        *strrchr(folder, '/') = '\0';
        if (rc == 0)
            rc = sp_txn_prune(txn, folder);
    }
    return rc;
}

static int drop_bytecode(struct job *job)
{
    int rc = 0;

    for (size_t i = 0; i < job->patches.count && rc == 0; i++)
        rc = sp_bytecode_remove(&job->bytecode, job->install, job->patches.item[i].path);
    if (rc == 0 && job->runtime.count > 0)
        rc = sp_runtime_drop_bytecode(job->install);
    return rc;
}

/* Will files of the checkout itself be written? Asked before there is a plan: the lock comes first. */
static bool concerns_checkout(const struct job *job, int revert)
{
    const char *const *names = job->options->sets;
    bool concerned = false;

    if (job->install->layout != SP_LAYOUT_SOURCE || job->install->checkout == NULL)
        return false;
    for (size_t i = 0; names != NULL && names[i] != NULL; i++) {
        const struct sp_patchset *set = sp_patchset_find(job->sets, names[i]);

        concerned = concerned || (set != NULL && set->checkout);
    }
    return concerned || (names == NULL && revert);
}

/* The root is locked in any case: who does not know of the checkout writes there. */
static int begin(struct job *job, const char *command, int revert)
{
    int rc = 0;

    if (concerns_checkout(job, revert))
        rc = sp_txn_begin(&job->checkout_txn, job->install->checkout, command);
    if (rc == 0)
        rc = sp_txn_begin(&job->root_txn, job->install->root, command);
    if (rc == 0 && is_split(job->install))
        rc = sp_txn_begin(&job->site_txn, job->install->site, command);
    return rc;
}

/* Give the site back what it had, in a transaction of its own. The error that led here stays the message. */
static int undo_runtime(struct job *job, int rc)
{
    struct batch undo = {NULL, 0};
    struct sp_txn *txn = NULL;
    char message[1024], hint[1024];
    int undone = 0;

    (void)snprintf(message, sizeof message, "%s", sp_err_message());
    (void)snprintf(hint, sizeof hint, "%s", sp_err_hint_text());
    for (size_t i = 0; i < job->runtime.count && undone == 0; i++) {
        struct write *write = &job->runtime.item[i];

        undone = plan_write(&undo, write->path, "undo", NULL, write->post.hex[0] ? &write->post : NULL, &write->old);
    }
    sp_txn_free(job->site_txn);
    job->site_txn = NULL;
    if (undone == 0)
        undone = sp_txn_begin(&txn, job->install->site, "apply");
    if (undone == 0)
        undone = stage(txn, &undo, "");
    if (undone == 0)
        undone = prune(txn, &undo, "");
    if (undone == 0)
        undone = sp_txn_commit(txn);
    sp_txn_free(txn);
    free_batch(&undo);
    sp_err(rc, "%s%s", message, undone < 0 ? "; sgl-pcie-runtime stays, and does nothing without the patch" : "");
    return sp_err_hint(rc, "%s", hint);
}

/* All of it at once: root and site are the same folder of the checkout. */
static int commit_checkout(struct job *job)
{
    struct sp_txn *txn = job->checkout_txn;
    char below[NAME_MAX + 2];
    int rc;

    (void)snprintf(below, sizeof below, "%s/", strrchr(job->install->root, '/') + 1);
    rc = stage(txn, &job->sources, "");
    if (rc == 0)
        rc = stage(txn, &job->runtime, below);
    if (rc == 0)
        rc = prune(txn, &job->runtime, below);
    if (rc == 0)
        rc = stage(txn, &job->patches, below);
    if (rc == 0)
        rc = drop_bytecode(job);
    if (rc == 0)
        rc = sp_txn_commit(txn);
    if (rc == 0)
        job->broken_links = sp_txn_broken_links(txn);
    return rc < 0 ? rc : drop_bytecode(job);
}

/* With two directories the order keeps every moment safe: a runtime that nobody calls is harmless, and so is a hunk
 * whose runtime is gone. */
static int commit(struct job *job, int revert)
{
    struct sp_txn *runtime_txn = job->site_txn ? job->site_txn : job->root_txn;
    int rc = stage(runtime_txn, &job->runtime, "");

    if (rc == 0)
        rc = prune(runtime_txn, &job->runtime, "");
    if (rc == 0)
        rc = stage(job->root_txn, &job->patches, "");
    if (rc == 0)
        rc = drop_bytecode(job);
    if (rc == 0 && job->site_txn != NULL && !revert)
        rc = sp_txn_commit(job->site_txn);
    if (rc == 0) {
        rc = sp_txn_commit(job->root_txn);
        if (rc < 0 && rc != SP_EINTERRUPTED && job->site_txn != NULL && !revert)
            rc = undo_runtime(job, rc);
    }
    if (rc == 0 && job->site_txn != NULL && revert)
        rc = sp_txn_commit(job->site_txn);
    if (rc == 0)
        job->broken_links = sp_txn_broken_links(job->root_txn);
    return rc < 0 ? rc : drop_bytecode(job); /* again: Python may have left some in between */
}

/* ---- the result ---- */

static int diff_line(const git_diff_delta *delta, const git_diff_hunk *hunk, const git_diff_line *line, void *payload)
{
    struct sp_buf *out = payload;
    int rc = 0;

    (void)delta;
    (void)hunk;
    if (line->origin == GIT_DIFF_LINE_CONTEXT || line->origin == GIT_DIFF_LINE_ADDITION ||
        line->origin == GIT_DIFF_LINE_DELETION)
        rc = sp_buf_append(out, &line->origin, 1);
    return rc < 0 ? rc : sp_buf_append(out, line->content, line->content_len);
}

static int show_diff(struct sp_buf *out, const struct sp_plan_file *file, const struct write *write)
{
    git_patch *patch = NULL;
    git_diff_options options = {.version = GIT_DIFF_OPTIONS_VERSION, .context_lines = 3, .id_abbrev = 12};
    int rc = git_patch_from_buffers(&patch, file->bytes.data, file->bytes.len, file->path, write->data.data,
                                    write->data.len, file->path, &options);

    if (rc == 0)
        rc = git_patch_print(patch, diff_line, out);
    git_patch_free(patch);
    return rc < 0 ? sp_err(SP_EFAIL, "cannot show the change of '%s'", file->path) : 0;
}

static const struct sp_plan_file *file_of(const struct sp_plan *plan, const char *path)
{
    const struct sp_plan_file *found = NULL;

    for (size_t i = 0; i < plan->file_count && found == NULL; i++)
        if (strcmp(plan->files[i].path, path) == 0)
            found = &plan->files[i];
    return found;
}

static int report_batch(struct sp_changes *changes, struct batch *batch, const struct job *job)
{
    int rc = 0;

    for (size_t i = 0; i < batch->count && rc == 0; i++) {
        struct write *write = &batch->item[i];
        struct sp_change *change = &changes->item[changes->count++];
        const struct sp_plan_file *file = write->set ? file_of(job->plan, write->path) : NULL;

        *change = (struct sp_change){
            .path = write->path, .action = write->action, .set = write->set, .from = write->pre, .to = write->post};
        write->path = NULL; /* the result owns it now */
        if (job->options->diff && file != NULL)
            rc = show_diff(&change->diff, file, write);
    }
    return rc;
}

static size_t count_writes(const struct job *job)
{
    return job->patches.count + job->sources.count + job->runtime.count;
}

static int make_changes(struct sp_changes **out, struct job *job)
{
    struct sp_changes *changes = calloc(1, sizeof *changes);
    int rc;

    *out = changes;
    if (changes != NULL)
        changes->item = calloc(count_writes(job) + 1, sizeof *changes->item);
    if (changes == NULL || changes->item == NULL)
        return sp_err(SP_ECANNOT, "out of memory");
    changes->broken_links = job->broken_links;
    changes->bytecode = job->bytecode;
    rc = report_batch(changes, &job->patches, job);
    if (rc == 0)
        rc = report_batch(changes, &job->sources, job);
    return rc < 0 ? rc : report_batch(changes, &job->runtime, job);
}

void sp_changes_free(struct sp_changes *changes)
{
    if (changes == NULL)
        return;
    for (size_t i = 0; i < changes->count; i++) {
        free((char *)(uintptr_t)changes->item[i].path);
        sp_buf_free(&changes->item[i].diff);
    }
    free(changes->item);
    free(changes);
}

/* The lock is taken before the plan is made, so that the loser of a race sees what the winner did. If that was killed,
 * its journal may be in a directory that is not locked here: the checkout. */
static int run(struct job *job, int revert)
{
    const char *command = revert ? "revert" : "apply";
    int rc = sp_pending_check(job->install);

    if (rc == 0 && !job->options->dry_run)
        rc = begin(job, command, revert);
    if (rc == 0 && !job->options->dry_run)
        rc = sp_pending_check(job->install);
    if (rc == 0)
        rc = sp_plan_make(&job->plan, job->install, job->sets, job->options->sets);
    if (rc == 0)
        rc = revert ? plan_revert(job) : plan_apply(job);
    if (rc < 0 || job->options->dry_run || count_writes(job) == 0)
        return rc;
    rc = check_access(job);
    if (rc == 0 && !job->options->while_running && count_writes(job) > job->sources.count)
        rc = sp_servers_check(job->install); /* nobody has loaded a source text */
    if (rc < 0)
        return rc;
    return job->sources.count > 0 ? commit_checkout(job) : commit(job, revert);
}

static int carry_out(struct sp_plan **plan, struct sp_changes **changes, const struct sp_install *install,
                     const struct sp_patchsets *sets, const struct sp_apply_options *options, int revert)
{
    struct job job = {.install = install, .sets = sets, .options = options};
    int rc = run(&job, revert);

    *changes = NULL;
    if (rc == SP_EINTERRUPTED)
        rc = sp_recover_hint(install);
    if (rc == 0)
        rc = make_changes(changes, &job);
    *plan = job.plan;
    sp_txn_free(job.root_txn);
    sp_txn_free(job.site_txn);
    sp_txn_free(job.checkout_txn);
    free_batch(&job.patches);
    free_batch(&job.sources);
    free_batch(&job.runtime);
    return rc;
}

int sp_apply(struct sp_plan **plan, struct sp_changes **changes, const struct sp_install *install,
             const struct sp_patchsets *sets, const struct sp_apply_options *options)
{
    return carry_out(plan, changes, install, sets, options, 0);
}

int sp_revert(struct sp_plan **plan, struct sp_changes **changes, const struct sp_install *install,
              const struct sp_patchsets *sets, const struct sp_apply_options *options)
{
    return carry_out(plan, changes, install, sets, options, 1);
}
