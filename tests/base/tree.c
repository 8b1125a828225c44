#include "tree.h"

#include "base/err.h"

#include <fcntl.h>
#include <ftw.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

int tree_setup(void **state)
{
    struct tree *tree = calloc(1, sizeof *tree);

    if (!tree)
        return -1;
    snprintf(tree->path, sizeof tree->path, "/tmp/sgl-pcie-test-XXXXXX");
    if (!mkdtemp(tree->path))
        return -1;
    tree->fd = open(tree->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    *state = tree;
    return tree->fd < 0 ? -1 : 0;
}

static int remove_one(const char *path, const struct stat *st, int kind, struct FTW *at)
{
    (void)st;
    (void)kind;
    (void)at;
    return remove(path);
}

int tree_teardown(void **state)
{
    struct tree *tree = *state;
    int rc = nftw(tree->path, remove_one, 16, FTW_DEPTH | FTW_PHYS);

    close(tree->fd);
    free(tree);
    return rc;
}

void tree_mkdir(const struct tree *tree, const char *path)
{
    char dir[256];

    snprintf(dir, sizeof dir, "%s/", path);
    for (char *slash = strchr(dir, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        (void)mkdirat(tree->fd, dir, 0755);
        *slash = '/';
    }
    assert_true(tree_has(tree, path));
}

void tree_put(const struct tree *tree, const char *path, const char *text)
{
    char dir[256];
    char *slash;
    int fd;

    snprintf(dir, sizeof dir, "%s", path);
    slash = strrchr(dir, '/');
    if (slash) {
        *slash = '\0';
        tree_mkdir(tree, dir);
    }
    fd = openat(tree->fd, path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
    close(fd);
}

void tree_link(const struct tree *tree, const char *target, const char *path)
{
    assert_int_equal(symlinkat(target, tree->fd, path), 0);
}

bool tree_has(const struct tree *tree, const char *path)
{
    struct stat st;

    return fstatat(tree->fd, path, &st, AT_SYMLINK_NOFOLLOW) == 0;
}

struct stat tree_stat(const struct tree *tree, const char *path)
{
    struct stat st;

    assert_int_equal(fstatat(tree->fd, path, &st, AT_SYMLINK_NOFOLLOW), 0);
    return st;
}

void assert_text(const struct tree *tree, const char *path, const char *text)
{
    char found[4096];
    int fd = openat(tree->fd, path, O_RDONLY | O_CLOEXEC);
    ssize_t len;

    if (fd < 0)
        fail_msg("'%s' is not there", path);
    len = read(fd, found, sizeof found - 1);
    close(fd);
    assert_true(len >= 0);
    found[len] = '\0';
    assert_string_equal(found, text);
}

static int counted;
static const char *wanted;
static char found_path[512];

static int look_at(const char *path, const struct stat *st, int kind, struct FTW *at)
{
    size_t len = strlen(path), end = wanted ? strlen(wanted) : 0;

    (void)st;
    (void)kind;
    counted += at->level > 0;
    if (wanted && len >= end && strcmp(path + len - end, wanted) == 0)
        snprintf(found_path, sizeof found_path, "%s", path);
    return 0;
}

int tree_count(const struct tree *tree)
{
    counted = 0;
    wanted = NULL;
    assert_int_equal(nftw(tree->path, look_at, 16, FTW_PHYS), 0);
    return counted;
}

const char *tree_find(const struct tree *tree, const char *suffix)
{
    found_path[0] = '\0';
    wanted = suffix;
    assert_int_equal(nftw(tree->path, look_at, 16, FTW_PHYS), 0);
    wanted = NULL;
    if (!found_path[0])
        fail_msg("no file ends with '%s'", suffix);
    return found_path + strlen(tree->path) + 1;
}

void assert_said(const char *part)
{
    if (!strstr(sp_err_message(), part) && !strstr(sp_err_hint_text(), part))
        fail_msg("'%s' is not in '%s' nor in '%s'", part, sp_err_message(), sp_err_hint_text());
}

struct sp_oid oid_of(const char *text)
{
    struct sp_oid oid;

    assert_int_equal(sp_blob_id(&oid, text, strlen(text)), 0);
    return oid;
}
