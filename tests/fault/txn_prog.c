/*
 * The transaction by itself, for the fault driver: tests/fault/faults.py kills it, or fails its system calls.
 *
 *     txn_prog setup DIR      make the old tree
 *     txn_prog apply DIR      replace two files (one of them hard-linked), create two, remove one
 *     txn_prog revert DIR     the way back
 *     txn_prog recover DIR    prints the outcome
 *     txn_prog status DIR     prints "fine" or "interrupted"
 *
 * Exit codes are the tool's.
 */
#include "base/err.h"
#include "base/txn.h"

#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct file {
    const char *path;
    const char *old, *new; /* NULL: not there */
};

static const struct file files[] = {
    {"pkg/a.py", "a = 'old'\n", "a = 'new'\nmore = 1\n"},
    {"pkg/deep/b.py", "b = 'old'\n", "b = 'new'\n"},
    {"pkg/c.py", "c = 'old'\n", NULL},
    {"added/__init__.py", NULL, "added = True\n"},
    {"added/inner/d.py", NULL, "d = 'new'\n"},
};

enum { COUNT = sizeof files / sizeof files[0] };

static int put(const char *root, const char *path, const char *text)
{
    char full[4096];
    int fd, rc;

    snprintf(full, sizeof full, "%s/%s", root, path);
    fd = open(full, O_WRONLY | O_CREAT | O_TRUNC, 0644);
    if (fd < 0)
        return sp_err_sys(SP_ECANNOT, "cannot create '%s'", full);
    rc = sp_write_all(fd, text, strlen(text), full);
    close(fd);
    return rc;
}

static int setup(const char *root)
{
    char from[4096], to[4096];
    int rc = SP_OK;

    if (chdir(root) < 0 || mkdir("pkg", 0755) < 0 || mkdir("pkg/deep", 0755) < 0)
        return sp_err_sys(SP_ECANNOT, "cannot set up '%s'", root);
    for (int i = 0; i < COUNT && rc >= 0; i++)
        if (files[i].old)
            rc = put(".", files[i].path, files[i].old);
    snprintf(from, sizeof from, "pkg/deep/b.py");
    snprintf(to, sizeof to, "linked.py");
    if (rc >= 0 && link(from, to) < 0)
        rc = sp_err_sys(SP_ECANNOT, "cannot link '%s'", from);
    return rc;
}

static int plan_one(struct sp_txn *txn, const char *path, const char *from, const char *to)
{
    struct sp_oid pre;
    int rc;

    if (!from)
        return sp_txn_create(txn, path, 0644, to, strlen(to));
    rc = sp_blob_id(&pre, from, strlen(from));
    if (rc < 0)
        return rc;
    return to ? sp_txn_replace(txn, path, &pre, to, strlen(to)) : sp_txn_remove(txn, path, &pre);
}

static int change(const char *root, bool forward)
{
    struct sp_txn *txn;
    int rc = sp_txn_begin(&txn, root, forward ? "apply" : "revert");

    for (int i = 0; i < COUNT && rc >= 0; i++)
        rc = plan_one(txn, files[i].path, forward ? files[i].old : files[i].new, forward ? files[i].new : files[i].old);
    if (rc >= 0 && !forward)
        rc = sp_txn_prune(txn, "added");
    if (rc >= 0 && !forward)
        rc = sp_txn_prune(txn, "added/inner");
    if (rc >= 0)
        rc = sp_txn_commit(txn);
    sp_txn_free(txn);
    return rc;
}

static int recover(const char *root)
{
    const char *outcome;
    int rc = sp_txn_recover(&outcome, root, NULL, NULL);

    if (rc >= 0)
        puts(outcome);
    return rc;
}

static int status(const char *root)
{
    int dir = open(root, O_RDONLY | O_DIRECTORY), rc;
    bool pending;

    if (dir < 0)
        return sp_err_sys(SP_ECANNOT, "cannot open '%s'", root);
    rc = sp_txn_pending(&pending, NULL, dir);
    close(dir);
    if (rc >= 0)
        puts(pending ? "interrupted" : "fine");
    return rc;
}

static int run(const char *command, const char *root)
{
    if (strcmp(command, "setup") == 0)
        return setup(root);
    if (strcmp(command, "recover") == 0)
        return recover(root);
    if (strcmp(command, "status") == 0)
        return status(root);
    if (strcmp(command, "apply") == 0 || strcmp(command, "revert") == 0)
        return change(root, command[0] == 'a');
    return sp_err(SP_EUSAGE, "unknown command '%s'", command);
}

int main(int argc, char **argv)
{
    int rc = argc == 3 ? run(argv[1], argv[2]) : sp_err(SP_EUSAGE, "usage: txn_prog COMMAND DIR");

    if (rc < 0)
        fprintf(stderr, "%s\n%s%s", sp_err_message(), sp_err_hint_text(), sp_err_hint_text()[0] ? "\n" : "");
    return sp_exit_status(rc);
}
