/*
 * Words of a shell command line, for hints that a user pastes into a shell.
 *
 *     char site[SP_QUOTED_MAX];
 *
 *     sp_err_hint(rc, "sgl-pcie recover --site %s", sp_shell_quote(site, path));
 *
 * Always in single quotes, so that the outcome looks the same for every path; a single quote within becomes '\''.
 */
#ifndef SP_BASE_SHELL_H
#define SP_BASE_SHELL_H

#include <limits.h>

/* A path of which every byte is a quote. */
enum { SP_QUOTED_MAX = 4 * PATH_MAX + 3 };

/* Returns out, for use as an argument. A text that does not fit is cut, and the word still closed. */
const char *sp_shell_quote(char out[SP_QUOTED_MAX], const char *text);

/* The same for the path of a file below an open folder, from the root; path "": of the folder itself. Without /proc it
 * is what the folder calls it. */
const char *sp_shell_quote_at(char out[SP_QUOTED_MAX], int dirfd, const char *path);

#endif
