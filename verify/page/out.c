#include "verify/page/out.h"
#include "base/err.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void append(struct sp_out *out, const char *data, size_t len)
{
    if (out->rc == SP_OK)
        out->rc = sp_buf_append(&out->buf, data, len);
}

void sp_put(struct sp_out *out, const char *fmt, ...)
{
    char *text = NULL;
    va_list args;

    if (out->rc < 0)
        return;
    va_start(args, fmt);
    if (vasprintf(&text, fmt, args) < 0) {
        text = NULL;
        out->rc = sp_err(SP_ECANNOT, "out of memory");
    }
    va_end(args);
    if (text)
        append(out, text, strlen(text));
    free(text);
}

/* ---- characters ---- */

static bool continues(const unsigned char *at, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if ((at[i] & 0xc0) != 0x80)
            return false;
    return true;
}

/* Bytes of the character that begins here, and its code; 0: it is none. */
static size_t decode(unsigned *code, const char *text)
{
    const unsigned char *at = (const unsigned char *)text;
    static const unsigned least[] = {0, 0, 0x80, 0x800, 0x10000};
    size_t len = at[0] < 0x80 ? 1 : at[0] >> 5 == 6 ? 2 : at[0] >> 4 == 14 ? 3 : at[0] >> 3 == 30 ? 4 : 0;

    if (len == 0 || !continues(at + 1, len - 1))
        return 0;
    *code = len == 1 ? at[0] : at[0] & (0x7fu >> len);
    for (size_t i = 1; i < len; i++)
        *code = *code << 6 | (at[i] & 0x3f);
    return *code < least[len] || *code > 0x10ffff || (*code >= 0xd800 && *code < 0xe000) ? 0 : len;
}

/* Neither HTML nor XML takes control characters and those that are no characters at all. */
static bool is_text(unsigned code)
{
    if (code == '\t' || code == '\n')
        return true;
    return code >= 0x20 && (code < 0x7f || code >= 0xa0) && (code & 0xfffe) != 0xfffe &&
           !(code >= 0xfdd0 && code < 0xfdf0);
}

static void put_text(struct sp_out *out, const char *text, const char *(*meaning)(unsigned code))
{
    while (*text && out->rc == SP_OK) {
        unsigned code = 0;
        const size_t len = decode(&code, text);
        const char *instead = len > 0 && is_text(code) ? meaning(code) : "\xef\xbf\xbd";

        if (instead)
            append(out, instead, strlen(instead));
        else
            append(out, text, len);
        text += len > 0 ? len : 1;
    }
}

static const char *in_html(unsigned code)
{
    return code == '&' ? "&amp;" : code == '<' ? "&lt;" : code == '>' ? "&gt;" : code == '"' ? "&quot;" : NULL;
}

void sp_put_html(struct sp_out *out, const char *text)
{
    put_text(out, text ? text : "", in_html);
}

/* Nothing that another quoting than ours could take for more than a character. */
static const char *in_quotes(unsigned code)
{
    return code == '\'' ? "''" : code == '\n' || code == '\t' || code == '`' || code == '\\' ? " " : NULL;
}

void sp_put_quoted(struct sp_out *out, const char *text)
{
    append(out, "'", 1);
    put_text(out, text ? text : "", in_quotes);
    append(out, "'", 1);
}
