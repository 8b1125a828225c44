#include "base/shell.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const char escaped_quote[] = "'\\''";

const char *sp_shell_quote(char out[SP_QUOTED_MAX], const char *text)
{
    const size_t room = SP_QUOTED_MAX - 2; /* for the closing quote and the end */
    size_t len = 0;

    out[len++] = '\'';
    for (; *text && len + sizeof escaped_quote - 1 <= room; text++) {
        if (*text == '\'') {
            memcpy(out + len, escaped_quote, sizeof escaped_quote - 1);
            len += sizeof escaped_quote - 1;
        } else {
            out[len++] = *text;
        }
    }
    out[len++] = '\'';
    out[len] = '\0';
    return out;
}

const char *sp_shell_quote_at(char out[SP_QUOTED_MAX], int dirfd, const char *path)
{
    char link[32], whole[2 * PATH_MAX];
    ssize_t len;

    (void)snprintf(link, sizeof link, "/proc/self/fd/%d", dirfd);
    len = readlink(link, whole, PATH_MAX - 1);
    if (len <= 0)
        return sp_shell_quote(out, *path ? path : ".");
    (void)snprintf(whole + len, sizeof whole - (size_t)len, "%s%s", *path ? "/" : "", path);
    return sp_shell_quote(out, whole);
}
