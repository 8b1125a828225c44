#include "patcher/git.h"
#include "base/err.h"

#include <git2.h>
#include <stdlib.h>

struct sp_checkout {
    git_repository *repo;
    git_tree *head;   /* NULL before the first commit */
    git_index *index; /* NULL where it cannot be read: then it is taken to be as HEAD */
};

int sp_git_failed(const char *what)
{
    const git_error *error = git_error_last();

    return sp_err(SP_EFAIL, "%s: %s", what, error ? error->message : "unknown error of libgit2");
}

/* The user's and the system's git configuration must have no influence: look for it nowhere. A checkout may be another
 * user's, sparse or partial: of none of them do we run or want what makes that matter. */
static int configure(void)
{
    static const git_config_level_t levels[] = {GIT_CONFIG_LEVEL_SYSTEM, GIT_CONFIG_LEVEL_XDG, GIT_CONFIG_LEVEL_GLOBAL,
                                                GIT_CONFIG_LEVEL_PROGRAMDATA};
    const char *extensions[] = {"partialclone", "worktreeconfig"};
    int rc = 0;

    for (size_t i = 0; i < sizeof levels / sizeof *levels && rc == 0; i++)
        rc = git_libgit2_opts(GIT_OPT_SET_SEARCH_PATH, levels[i], "");
    if (rc == 0)
        rc = git_libgit2_opts(GIT_OPT_SET_OWNER_VALIDATION, 0);
    return rc < 0 ? rc : git_libgit2_opts(GIT_OPT_SET_EXTENSIONS, extensions, sizeof extensions / sizeof *extensions);
}

int sp_git_start(void)
{
    static int started;

    if (started)
        return 0;
    if (git_libgit2_init() < 0)
        return sp_git_failed("cannot start libgit2");
    started = 1;
    return configure() < 0 ? sp_git_failed("cannot isolate libgit2") : 0;
}

/* ---- a checkout ---- */

static void read_checkout(struct sp_checkout *checkout, const char *dir)
{
    git_object *tree = NULL;

    if (git_repository_open_ext(&checkout->repo, dir, GIT_REPOSITORY_OPEN_NO_SEARCH, NULL) < 0)
        return;
    if (git_revparse_single(&tree, checkout->repo, "HEAD^{tree}") == 0)
        checkout->head = (git_tree *)tree;
    if (git_repository_index(&checkout->index, checkout->repo) < 0 || git_index_read(checkout->index, 1) < 0) {
        git_index_free(checkout->index);
        checkout->index = NULL;
    }
}

int sp_checkout_open(struct sp_checkout **out, const char *dir)
{
    struct sp_checkout *checkout = calloc(1, sizeof *checkout);
    int rc = checkout ? sp_git_start() : sp_err(SP_ECANNOT, "out of memory");

    *out = NULL;
    if (rc == 0)
        read_checkout(checkout, dir);
    if (rc == 0 && checkout->head != NULL)
        *out = checkout;
    else
        sp_checkout_free(checkout);
    return rc;
}

void sp_checkout_free(struct sp_checkout *checkout)
{
    if (checkout == NULL)
        return;
    git_index_free(checkout->index);
    git_tree_free(checkout->head);
    git_repository_free(checkout->repo);
    free(checkout);
}

void sp_checkout_ids(struct sp_oid *head, struct sp_oid *index, struct sp_checkout *checkout, const char *path)
{
    const git_index_entry *staged = checkout->index ? git_index_get_bypath(checkout->index, path, 0) : NULL;
    git_tree_entry *entry = NULL;

    head->hex[0] = index->hex[0] = '\0';
    if (git_tree_entry_bypath(&entry, checkout->head, path) == 0 && git_tree_entry_type(entry) == GIT_OBJECT_BLOB)
        (void)git_oid_tostr(head->hex, sizeof head->hex, git_tree_entry_id(entry));
    if (staged != NULL)
        (void)git_oid_tostr(index->hex, sizeof index->hex, &staged->id);
    else if (checkout->index == NULL)
        *index = *head;
    git_tree_entry_free(entry);
}
