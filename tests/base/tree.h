/* A folder of its own for each test, and looking at what is in it. Failures are cmocka's. */
#ifndef SP_TESTS_BASE_TREE_H
#define SP_TESTS_BASE_TREE_H

#include "base/file.h"

#include <stdbool.h>

struct tree {
    char path[64];
    int fd;
};

/* cmocka setup and teardown: *state is a struct tree. */
int tree_setup(void **state);
int tree_teardown(void **state);

/* Make a file and its directories. */
void tree_put(const struct tree *tree, const char *path, const char *text);
void tree_link(const struct tree *tree, const char *target, const char *path);
void tree_mkdir(const struct tree *tree, const char *path);

bool tree_has(const struct tree *tree, const char *path);
struct stat tree_stat(const struct tree *tree, const char *path);
void assert_text(const struct tree *tree, const char *path, const char *text);

/* Number of files, links and directories below. */
int tree_count(const struct tree *tree);

/* Path of the first file below whose name ends so, or fail; static buffer. */
const char *tree_find(const struct tree *tree, const char *suffix);

/* The message, or the hint, of the last error has this part. */
void assert_said(const char *part);

struct sp_oid oid_of(const char *text);

#endif
