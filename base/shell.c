#include "base/shell.h"

#include <stddef.h>
#include <string.h>

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
