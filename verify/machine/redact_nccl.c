#include "verify/machine/redact_nccl.h"
#include "base/err.h"
#include "base/file.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

static bool in_list(const char *text, size_t len, const char *const *list)
{
    for (; *list; list++)
        if (strlen(*list) == len && strncasecmp(text, *list, len) == 0)
            return true;
    return false;
}

/* "4", "-1", "4M", "0x1f" */
static bool is_number(const char *text, size_t len)
{
    static const char digits[] = "0123456789", hex[] = "0123456789abcdefABCDEF";
    size_t at = len > 0 && text[0] == '-' ? 1 : 0;
    const bool is_hex = len > 2 && strncasecmp(text, "0x", 2) == 0;

    at += is_hex ? 2 + strspn(text + 2, hex) : strspn(text + at, digits);
    if (at + 1 == len && at > 0 && isdigit((unsigned char)text[at - 1]) && strchr("KMGkmg", text[at]))
        at++;
    return at >= len && len > 0 && isalnum((unsigned char)text[len - 1]);
}

/* What NCCL's own words are, in settings and in the line of its log that says how a channel goes. */
static bool is_word(const char *text, size_t len)
{
    static const char *const words[] = {
        "true",      "false",
        "yes",       "no",
        "on",        "off",
        "default",   "none",
        "LOC",       "PIX",
        "PXB",       "PXN",
        "PHB",       "NODE",
        "SYS",       "NVL",
        "C2C",       "LL",
        "LL128",     "Simple",
        "Ring",      "Tree",
        "CollNet",   "CollNetDirect",
        "NVLS",      "NVLSTree",
        "PAT",       "CollNetChain",
        "VERSION",   "WARN",
        "INFO",      "ABORT",
        "TRACE",     "INIT",
        "COLL",      "P2P",
        "SHM",       "NET",
        "GRAPH",     "TUNING",
        "ENV",       "ALLOC",
        "CALL",      "PROXY",
        "BOOTSTRAP", "REG",
        "PROFILE",   "RAS",
        "ALL",       "Socket",
        "IB",        "host",
        "device",    "AF_INET",
        "AF_INET6",  "allreduce",
        "allgather", "reducescatter",
        "broadcast", "reduce",
        "sendrecv",  "direct",
        "indirect",  "read",
        "IPC",       "CUMEM",
        "MNNVL",     "GDRDMA",
        "Shared",    "pointer",
        NULL,
    };

    return in_list(text, len, words);
}

/* Every part of it says nothing about this machine. */
static bool is_plain(const char *text, size_t len)
{
    static const char between[] = ",;:^=/() +";
    bool plain = true;

    for (size_t at = 0; at < len && plain;) {
        size_t part = strcspn(text + at, between);

        part = part < len - at ? part : len - at;
        plain = part == 0 || is_number(text + at, part) || is_word(text + at, part);
        at += part + 1;
    }
    return plain;
}

/* Their value is a name of the host, or where to meet it, even as a number. */
static bool names_host(const char *name, size_t len)
{
    static const char *const settings[] = {"NCCL_HOSTID", "NCCL_COMM_ID", NULL};

    return in_list(name, len, settings);
}

/* Of an image: set by those who made it. */
static bool is_version(const char *text, size_t name, size_t len)
{
    static const char *const settings[] = {"NCCL_VERSION", NULL};

    return in_list(text, name, settings) && strspn(text + name + 1, "0123456789.-") >= len;
}

/* ---- settings ---- */

/* Of "NAME=" at the beginning of text, without the sign; 0: there is none. */
static size_t name_len(const char *text)
{
    static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_";
    const size_t len = strspn(text, letters);

    return len > 5 && strncmp(text, "NCCL_", 5) == 0 && text[len] == '=' ? len : 0;
}

/* Up to the next setting: a value may have blanks. */
static size_t value_len(const char *text)
{
    size_t len = 0;

    while (text[len] && !(text[len] == ' ' && name_len(text + len + 1) > 0))
        len++;
    return len;
}

/* What is of a bundle that has been here before stays, too. */
static int put_setting(struct sp_buf *out, const char *text, size_t name, size_t len)
{
    const char *value = text + name + 1;
    const bool is_file = value[0] == '/' || (len == 6 && strncmp(value, "<path>", 6) == 0);

    if (is_version(text, name, len) || (!is_file && !names_host(text, name) && is_plain(value, len)))
        return sp_buf_append(out, text, name + 1 + len);
    return sp_buf_printf(out, "%.*s=%s", (int)name, text, is_file ? "<path>" : "<name>");
}

/* What stands before the first one, or in their place, is as little known as a value. */
static int put_settings(struct sp_buf *out, const char *text)
{
    size_t len = name_len(text) > 0 ? 0 : value_len(text);
    int rc = len == 0 || is_plain(text, len) ? sp_buf_append(out, text, len) : sp_buf_printf(out, "<name>");

    for (text += len; *text && rc == SP_OK; text += len) {
        const size_t name = name_len(text);

        len = name > 0 ? name + 1 + value_len(text + name + 1) : 1; /* a setting, or the blank before it */
        rc = name > 0 ? put_setting(out, text, name, len - name - 1) : sp_buf_append(out, text, 1);
    }
    return rc;
}

/* ---- the way ---- */

/* "NET/Socket/0": the plugin of a network may be called by anything. */
static int put_way(struct sp_buf *out, const char *text)
{
    int rc = SP_OK;

    while (*text && rc == SP_OK) {
        const size_t len = strcspn(text, "/() ");

        if (len == 0)
            rc = sp_buf_append(out, text, 1);
        else if (is_plain(text, len))
            rc = sp_buf_append(out, text, len);
        else
            rc = sp_buf_printf(out, "<name>");
        text += len ? len : 1;
    }
    return rc;
}

int sp_redact_nccl(char **out, const char *key, const char *text)
{
    const bool settings = strcmp(key, "settings") == 0, way = strcmp(key, "via") == 0;
    struct sp_buf buf = SP_BUF_INIT;
    int rc = sp_buf_append(&buf, "", 0);

    *out = NULL;
    if (rc == SP_OK && settings)
        rc = put_settings(&buf, text);
    else if (rc == SP_OK && way)
        rc = put_way(&buf, text);
    if (rc == SP_OK && (settings || way)) {
        *out = buf.data;
        buf.data = NULL;
    }
    sp_buf_free(&buf);
    return rc;
}
