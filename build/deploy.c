#include "build/deploy.h"
#include "base/err.h"
#include "base/txn.h"
#include "patcher/access.h"
#include "patcher/apply.h"
#include "patcher/runtime.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define FOLDER "sgl_pcie"

enum { PRODUCT_MAX = 256 << 20 };

/* Is the runtime of this program there? */
static int check_runtime(const struct sp_install *install, const char *next)
{
    enum sp_runtime_state state;
    int rc = sp_runtime_state(&state, install);

    if (rc == 0 && state != SP_RUNTIME_PRESENT) {
        if (state == SP_RUNTIME_ABSENT)
            sp_err(SP_ECANNOT, "sgl-pcie-runtime is not in '%s': there is nothing to build into", install->site);
        else
            sp_err(SP_ECANNOT, "the sgl-pcie-runtime in '%s' is not the one of this program", install->site);
        rc = sp_err_hint(SP_ECANNOT, "%s", next);
    }
    return rc;
}

int sp_deploy_access(const struct sp_install *install)
{
    return sp_access_check(install->site_fd, install->site, FOLDER "/libpar.so");
}

int sp_deploy_check(const struct sp_install *install, const char *next)
{
    int rc = sp_pending_check(install);

    return rc < 0 ? rc : check_runtime(install, next);
}

int sp_deploy_read(struct sp_buf *out, const struct sp_install *install, const char *name)
{
    char path[PATH_MAX];

    (void)snprintf(path, sizeof path, FOLDER "/%s", name);
    return sp_read_beneath(out, NULL, install->site_fd, path, PRODUCT_MAX);
}

int sp_deploy_has(bool *out, const struct sp_install *install, const char *name, const char *sha256)
{
    struct sp_buf bytes = SP_BUF_INIT;
    char found[SP_SHA256_HEX + 1] = "";
    int rc = sp_deploy_read(&bytes, install, name);

    if (rc == 0)
        rc = sp_sha256(found, bytes.data, bytes.len);
    *out = rc == 0 && strcmp(found, sha256) == 0;
    sp_buf_free(&bytes);
    return rc < 0 ? rc : 0;
}

static bool is_runnable(const struct stat *st)
{
    return (st->st_mode & S_IXUSR) != 0;
}

bool sp_deploy_can_run(const struct sp_install *install, const char *name)
{
    char path[PATH_MAX];
    struct stat st;

    (void)snprintf(path, sizeof path, FOLDER "/%s", name);
    return fstatat(install->site_fd, path, &st, AT_SYMLINK_NOFOLLOW) == 0 && is_runnable(&st);
}

/* ---- the files as the runtime knows them ---- */

/* The bytes are borrowed from what was built. */
static int list_file(struct sp_runtime *list, const char *name, const struct sp_buf *bytes)
{
    struct sp_runtime_file *grown = realloc(list->file, (list->count + 1) * sizeof *grown);
    char *path = NULL;

    if (grown != NULL)
        list->file = grown;
    if (grown == NULL || asprintf(&path, FOLDER "/%s", name) < 0)
        return sp_err(SP_ECANNOT, "out of memory");
    list->file[list->count++] = (struct sp_runtime_file){.path = path, .bytes = *bytes};
    return 0;
}

/* What was built, and what this recipe makes elsewhere but did not make now. Names come from the recipe, never from the
 * record that is there: that one may have been edited, and what it lists would be removed. */
static int list_all(struct sp_runtime *list, const struct sp_files *files, const struct sp_recipe *recipe)
{
    const struct sp_buf nothing = SP_BUF_INIT;
    int rc = 0;

    for (size_t i = 0; i < files->count && rc == 0; i++)
        rc = list_file(list, files->file[i].path, &files->file[i].bytes);
    for (size_t i = 0; i < recipe->count && rc == 0; i++)
        if (sp_files_find(files, recipe->product[i].name) == NULL)
            rc = list_file(list, recipe->product[i].name, &nothing);
    return rc;
}

static void free_list(struct sp_runtime *list)
{
    for (size_t i = 0; i < list->count; i++)
        free(list->file[i].path);
    free(list->file);
    *list = (struct sp_runtime)SP_RUNTIME_INIT;
}

/* ---- the transaction ---- */

static int stage_file(struct sp_txn *txn, const struct sp_runtime_file *file, const struct sp_runtime *present,
                      const struct sp_recipe *recipe)
{
    const struct sp_runtime_file *now = sp_runtime_find(present, file->path);
    const mode_t mode = sp_recipe_is_program(recipe, strrchr(file->path, '/') + 1) ? 0755 : 0644;
    struct sp_oid pre;
    int rc = now ? sp_blob_id(&pre, now->bytes.data, now->bytes.len) : 0;

    if (rc < 0)
        return rc;
    if (file->bytes.data == NULL)
        rc = now ? sp_txn_remove(txn, file->path, &pre) : 0;
    else if (now == NULL)
        rc = sp_txn_create(txn, file->path, mode, file->bytes.data, file->bytes.len);
    else if (now->bytes.len != file->bytes.len || memcmp(now->bytes.data, file->bytes.data, file->bytes.len) != 0)
        rc = sp_txn_replace(txn, file->path, &pre, file->bytes.data, file->bytes.len);
    return rc;
}

static int stage(struct sp_txn *txn, const struct sp_install *install, const struct sp_runtime *built,
                 const struct sp_recipe *recipe)
{
    struct sp_runtime present = SP_RUNTIME_INIT, record = SP_RUNTIME_INIT;
    int rc = sp_runtime_present(&present, install);

    if (rc == 0)
        rc = sp_runtime_record(&record, install, built);
    for (size_t i = 0; i < built->count && rc == 0; i++)
        rc = stage_file(txn, &built->file[i], &present, recipe);
    if (rc == 0)
        rc = stage_file(txn, &record.file[0], &present, recipe);
    sp_runtime_free(&present);
    sp_runtime_free(&record);
    return rc;
}

/* To replace a file keeps its mode, so that a lost bit would stay lost. */
static int make_runnable(const struct sp_install *install, const char *name)
{
    char path[PATH_MAX];
    struct stat st;
    int fd, rc;

    (void)snprintf(path, sizeof path, FOLDER "/%s", name);
    rc = sp_open_beneath(&fd, install->site_fd, path, O_RDONLY, 0);
    if (rc < 0)
        return rc;
    if (fstat(fd, &st) != 0 ||
        (!is_runnable(&st) && fchmod(fd, (st.st_mode & 07777) | (st.st_mode & 0444) >> 2) != 0)) {
        sp_err_sys(SP_ECANNOT, "cannot make '%s/%s' executable", install->site, path);
        rc = sp_err_hint(SP_ECANNOT, "run it as the owner of that file, or as root");
    }
    close(fd);
    return rc;
}

static int make_all_runnable(const struct sp_install *install, const struct sp_files *files,
                             const struct sp_recipe *recipe)
{
    int rc = 0;

    for (size_t i = 0; i < files->count && rc == 0; i++)
        if (sp_recipe_is_program(recipe, files->file[i].path))
            rc = make_runnable(install, files->file[i].path);
    return rc;
}

int sp_deploy_run(const struct sp_install *install, const struct sp_files *files, const struct sp_recipe *recipe,
                  const char *next)
{
    struct sp_runtime built = SP_RUNTIME_INIT;
    struct sp_txn *txn = NULL;
    int rc = sp_txn_begin(&txn, install->site, "build");

    if (rc == 0)
        rc = sp_deploy_check(install, next); /* again, under the lock: compiling took a while */
    if (rc == 0)
        rc = sp_deploy_access(install);
    if (rc == 0)
        rc = list_all(&built, files, recipe);
    if (rc == 0)
        rc = stage(txn, install, &built, recipe);
    if (rc == 0)
        rc = sp_txn_commit(txn);
    if (rc == 0)
        rc = make_all_runnable(install, files, recipe);
    sp_txn_free(txn);
    free_list(&built);
    return rc;
}
