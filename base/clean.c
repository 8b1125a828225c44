#include "base/clean.h"

#include <stdbool.h>

static bool is_control(const unsigned char *at, bool lines)
{
    if (at[0] == 0xC2 && at[1] >= 0x80 && at[1] < 0xA0)
        return true;
    return (at[0] < 0x20 && !(lines && (at[0] == '\n' || at[0] == '\t'))) || at[0] == 0x7F;
}

char *sp_clean(char *text, int lines)
{
    for (unsigned char *at = (unsigned char *)text; *at; at++)
        if (is_control(at, lines)) {
            if (at[0] == 0xC2) /* two bytes, one character each: the length stays */
                at[1] = '?';
            at[0] = '?';
        }
    return text;
}
