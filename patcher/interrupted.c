/* Writes that were interrupted: whether there is one, and recovery, in every directory of an install. */
#include "base/err.h"
#include "base/lock.h"
#include "base/shell.h"
#include "base/txn.h"
#include "patcher/apply.h"

#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

static bool is_split(const struct sp_install *install)
{
    return strcmp(install->root, install->site) != 0;
}

int sp_recover_hint(const struct sp_install *install)
{
    char quoted[SP_QUOTED_MAX];

    return sp_err_hint(SP_EINTERRUPTED, "sgl-pcie recover %s %s", sp_install_option(install),
                       sp_shell_quote(quoted, install->python ? install->python : install->root));
}

/* Was it waited for in vain? Then nothing was interrupted yet. Our own lock is none of others', and who looks as we do
 * shares it. */
static int check_writer(const char *dir)
{
    char who[SP_LOCK_WHO];
    int fd, pid, rc = sp_lock_try(&fd, &pid, dir, LOCK_SH);

    if (rc == 0)
        close(fd);
    if (rc != 1 || pid == getpid()) {
        sp_err_clear();
        return 0;
    }
    return sp_lock_hint(sp_err(SP_ECANNOT, "%s is still writing in '%s'", sp_lock_who(who, pid), dir), pid);
}

static int pending_in(int dirfd, const char *dir, const struct sp_install *install)
{
    bool pending = false;
    char *command = NULL;
    int rc = sp_txn_pending(&pending, &command, dirfd);

    if (rc == 0 && pending)
        rc = check_writer(dir);
    if (rc == 0 && pending) {
        sp_err(SP_EINTERRUPTED, "an earlier %s was interrupted in '%s'", command ? command : "write", dir);
        rc = sp_recover_hint(install);
    }
    free(command);
    return rc;
}

int sp_pending_check(const struct sp_install *install)
{
    int rc = pending_in(install->root_fd, install->root, install);

    if (rc == 0 && is_split(install))
        rc = pending_in(install->site_fd, install->site, install);
    if (rc == 0 && install->checkout != NULL)
        rc = pending_in(install->checkout_fd, install->checkout, install);
    return rc;
}

static bool has_text(const struct sp_patchset *set, const char *path, const struct sp_oid *live)
{
    bool found = false;

    for (size_t i = 0; i < set->text_count && !found; i++)
        found = strcmp(set->texts[i].path, path) == 0 && strcmp(set->texts[i].pre.hex, live->hex) == 0;
    return found;
}

/* Has this file been reinstalled, from whatever release, since our write was interrupted? */
static bool is_released(void *context, const char *path, const struct sp_oid *live)
{
    const struct sp_patchsets *sets = context;
    bool found = false;

    for (size_t i = 0; i < sets->count && !found; i++)
        found = !sets->sets[i].checkout && has_text(&sets->sets[i], path, live);
    return found;
}

/* The same for a path of a checkout, whose python/ is a root. */
static bool is_released_in_checkout(void *context, const char *path, const struct sp_oid *live)
{
    static const char below[] = "python/";
    const struct sp_patchsets *sets = context;
    bool found = strncmp(path, below, sizeof below - 1) == 0 && is_released(context, path + sizeof below - 1, live);

    for (size_t i = 0; i < sets->count && !found; i++)
        found = sets->sets[i].checkout && has_text(&sets->sets[i], path, live);
    return found;
}

/* The outcome of several recoveries is that of the first that had something to do. */
static int recover_in(const char **outcome, const char *dir, sp_txn_released *released, struct sp_patchsets *sets)
{
    const char *here = NULL;
    int rc = sp_txn_recover(&here, dir, sets ? released : NULL, sets);

    if (rc == 0 && here != NULL && (*outcome == NULL || strcmp(*outcome, "nothing to do") == 0))
        *outcome = here;
    return rc;
}

/* Without patch sets that can be read recover knows no released file, which only makes it more careful. */
int sp_recover(const char **outcome, const struct sp_install *install)
{
    struct sp_patchsets *sets = NULL;
    int rc;

    *outcome = NULL;
    if (sp_patchsets_load(&sets, NULL) < 0)
        sp_err_clear();
    rc = recover_in(outcome, install->root, is_released, sets);
    if (rc == 0 && is_split(install))
        rc = recover_in(outcome, install->site, is_released, sets);
    if (rc == 0 && install->checkout != NULL)
        rc = recover_in(outcome, install->checkout, is_released_in_checkout, sets);
    sp_patchsets_free(sets);
    return rc;
}
