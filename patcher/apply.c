#include "patcher/apply.h"
#include "base/err.h"
#include "base/txn.h"
#include "patcher/access.h"
#include "patcher/bytecode.h"
#include "patcher/runtime.h"
#include "patcher/servers.h"
#include "patcher/writes.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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
    struct sp_writes writes;
    size_t broken_links, bytecode;
};

static bool is_split(const struct sp_install *install)
{
    return strcmp(install->root, install->site) != 0;
}

/* ---- writing ---- */

/* below: the folder that the list's paths start at, as the transaction calls it: "" or "python/". */
static int stage_write(struct sp_txn *txn, const struct sp_write *write, const char *below)
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

static int stage(struct sp_txn *txn, const struct sp_write_list *list, const char *below)
{
    int rc = 0;

    for (size_t i = 0; i < list->count && rc == 0; i++)
        rc = stage_write(txn, &list->item[i], below);
    return rc;
}

/* A tree that cannot be written is told so before the first byte, with what to do instead. */
static int check_access(const struct job *job)
{
    int rc = 0;

    for (size_t i = 0; i < job->writes.patches.count && rc == 0; i++)
        rc = sp_access_check(job->install->root_fd, job->install->root, job->writes.patches.item[i].path);
    for (size_t i = 0; i < job->writes.sources.count && rc == 0; i++)
        rc = sp_access_check(job->install->checkout_fd, job->install->checkout, job->writes.sources.item[i].path);
    for (size_t i = 0; i < job->writes.runtime.count && rc == 0; i++)
        rc = sp_access_check(job->install->site_fd, job->install->site, job->writes.runtime.item[i].path);
    if (rc == 0 && job->writes.runtime.count > 0)
        rc = sp_access_check(job->install->site_fd, job->install->site, "sgl_pcie");
    return rc;
}

/* The folders of removed files, and the bytecode folder of our package, go when they are empty. */
static int prune(struct sp_txn *txn, const struct sp_write_list *list, const char *below)
{
    char folder[4096];
    int rc = 0;

    for (size_t i = 0; i < list->count && rc == 0; i++) {
        const char *slash = strrchr(list->item[i].path, '/');

        if (list->item[i].data.data != NULL || slash == NULL)
            continue;
        (void)snprintf(folder, sizeof folder, "%s%.*s/__pycache__", below, (int)(slash - list->item[i].path),
                       list->item[i].path);
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

    for (size_t i = 0; i < job->writes.patches.count && rc == 0; i++)
        rc = sp_bytecode_remove(&job->bytecode, job->install, job->writes.patches.item[i].path);
    if (rc == 0 && job->writes.runtime.count > 0)
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
    struct sp_write_list undo = {NULL, 0};
    struct sp_txn *txn = NULL;
    char message[1024], hint[1024];
    int undone = 0;

    (void)snprintf(message, sizeof message, "%s", sp_err_message());
    (void)snprintf(hint, sizeof hint, "%s", sp_err_hint_text());
    for (size_t i = 0; i < job->writes.runtime.count && undone == 0; i++) {
        struct sp_write *write = &job->writes.runtime.item[i];

        undone = sp_write_add(&undo, write->path, "undo", NULL, write->post.hex[0] ? &write->post : NULL, &write->old);
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
    sp_write_list_free(&undo);
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
    rc = stage(txn, &job->writes.sources, "");
    if (rc == 0)
        rc = stage(txn, &job->writes.runtime, below);
    if (rc == 0)
        rc = prune(txn, &job->writes.runtime, below);
    if (rc == 0)
        rc = stage(txn, &job->writes.patches, below);
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
    int rc = stage(runtime_txn, &job->writes.runtime, "");

    if (rc == 0)
        rc = prune(runtime_txn, &job->writes.runtime, "");
    if (rc == 0)
        rc = stage(job->root_txn, &job->writes.patches, "");
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

/* ---- all of it ---- */

/* A kill before the first byte of a journal leaves its folder. Others write there under the locks that we hold. */
static void drop_empty_folders(const struct sp_install *install)
{
    (void)unlinkat(install->root_fd, SP_STATE_DIR, AT_REMOVEDIR);
    (void)unlinkat(install->site_fd, SP_STATE_DIR, AT_REMOVEDIR);
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
        rc = revert ? sp_writes_revert(&job->writes, job->install, job->sets, job->plan, job->options->sets != NULL)
                    : sp_writes_apply(&job->writes, job->install, job->sets, job->plan, job->options->by_setup);
    if (rc == 0 && revert && !job->options->dry_run)
        drop_empty_folders(job->install);
    if (rc < 0 || job->options->dry_run || sp_writes_count(&job->writes) == 0)
        return rc;
    rc = check_access(job);
    if (rc == 0 && !job->options->while_running && sp_writes_count(&job->writes) > job->writes.sources.count)
        rc = sp_servers_check(job->install); /* nobody has loaded a source text */
    if (rc < 0)
        return rc;
    return job->writes.sources.count > 0 ? commit_checkout(job) : commit(job, revert);
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
        rc = sp_changes_make(changes, &job.writes, job.plan, options->diff);
    if (rc == 0) {
        (*changes)->broken_links = job.broken_links;
        (*changes)->bytecode = job.bytecode;
    }
    *plan = job.plan;
    sp_txn_free(job.root_txn);
    sp_txn_free(job.site_txn);
    sp_txn_free(job.checkout_txn);
    sp_writes_free(&job.writes);
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
