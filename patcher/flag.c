#include "patcher/flag.h"
#include "base/err.h"
#include "base/txn.h"
#include "patcher/runtime.h"

#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { FLAG_FILE_MAX = 4096 };
#define FLAG_SCHEMA "sgl-pcie-flag/1"
#define FLAG_FILE   SP_STATE_DIR "/flag.json"

int sp_flag_parse(struct sp_flag *out, const char *json, size_t len)
{
    json_t *root = json_loadb(json, len, JSON_REJECT_DUPLICATES, NULL);
    const char *schema = json_string_value(json_object_get(root, "schema"));
    const char *value = json_string_value(json_object_get(root, "value"));
    int rc = 0;

    if (schema == NULL || strcmp(schema, FLAG_SCHEMA) != 0)
        rc = sp_err(SP_EFAIL, "not a flag file of schema " FLAG_SCHEMA);
    else if (value == NULL || *value == '\0' || strlen(value) >= sizeof out->value)
        rc = sp_err(SP_EFAIL, "the flag file has no usable value");
    else
        *out = (struct sp_flag){.source = "install"};
    if (rc == 0)
        memcpy(out->value, value, strlen(value));
    json_decref(root);
    return rc;
}

static int read_persisted(struct sp_flag *out, int site_fd)
{
    struct sp_buf bytes = SP_BUF_INIT;
    struct stat st;
    int rc = sp_read_beneath(&bytes, &st, site_fd, FLAG_FILE, FLAG_FILE_MAX);

    if (rc == 0 && (st.st_uid == 0 || st.st_uid == geteuid()))
        rc = sp_flag_parse(out, bytes.data, bytes.len);
    sp_buf_free(&bytes);
    return rc;
}

int sp_flag_read(struct sp_flag *out, int site_fd)
{
    const char *variable = getenv(SP_FLAG_ENV);

    *out = (struct sp_flag){.source = "unset"};
    if (variable != NULL) {
        out->source = "environment";
        (void)snprintf(out->value, sizeof out->value, "%s", variable);
    } else if (read_persisted(out, site_fd) < 0) {
        sp_err_clear(); /* an unusable file counts as absent */
        *out = (struct sp_flag){.source = "unset", .unusable = true};
    }
    return 0;
}

/* ---- writing ---- */

struct present {
    bool is;
    uid_t owner;
    bool seen; /* by whoever it is to count for */
    struct sp_buf bytes;
    struct sp_oid oid;
};

static int look(struct present *out, int site_fd, const char *path)
{
    struct stat st;
    int rc = sp_read_beneath(&out->bytes, &st, site_fd, path, FLAG_FILE_MAX);

    out->is = rc == 0;
    out->owner = out->is ? st.st_uid : 0;
    out->seen = out->is && (st.st_uid != 0 || (st.st_mode & S_IROTH) != 0);
    return rc == 0 ? sp_blob_id(&out->oid, out->bytes.data, out->bytes.len) : rc < 0 ? rc : 0;
}

static int stage_flag(struct sp_txn *txn, const char *text)
{
    struct present now = {.bytes = SP_BUF_INIT};
    int rc = look(&now, sp_txn_dirfd(txn), FLAG_FILE);

    if (rc == 0 && !text && now.is)
        rc = sp_txn_remove(txn, FLAG_FILE, &now.oid);
    else if (rc == 0 && text && now.is)
        rc = sp_txn_replace(txn, FLAG_FILE, &now.oid, text, strlen(text));
    else if (rc == 0 && text)
        rc = sp_txn_create(txn, FLAG_FILE, 0644, text, strlen(text));
    sp_buf_free(&now.bytes);
    return rc;
}

static int stage_mark(struct sp_txn *txn)
{
    struct present now = {.bytes = SP_BUF_INIT};
    int rc = look(&now, sp_txn_dirfd(txn), SP_SETUP_MARK);

    if (rc == 0 && now.is)
        rc = sp_txn_remove(txn, SP_SETUP_MARK, &now.oid);
    sp_buf_free(&now.bytes);
    return rc;
}

/* One transaction; text NULL: remove. What is enabled is no more setup's to take back. */
static int put(const struct sp_install *install, const char *text)
{
    struct sp_txn *txn = NULL;
    int rc = sp_txn_begin(&txn, install->site, text ? "enable" : "disable");

    if (rc == 0)
        rc = stage_flag(txn, text);
    if (rc == 0 && text)
        rc = stage_mark(txn);
    if (rc == 0)
        rc = sp_txn_commit(txn);
    sp_txn_free(txn);
    return rc;
}

int sp_flag_write(bool *changed, const struct sp_install *install, const char *value)
{
    struct present now = {.bytes = SP_BUF_INIT};
    char text[96] = "";
    int rc = look(&now, install->site_fd, FLAG_FILE);
    const bool counts = now.seen && (now.owner == 0 || now.owner == geteuid()); /* for whoever asks */

    if (value)
        (void)snprintf(text, sizeof text, "{\"schema\": \"" FLAG_SCHEMA "\", \"value\": \"%s\"}\n", value);
    *changed = rc == 0 && (value ? !now.is || !counts || now.bytes.len != strlen(text) ||
                                       memcmp(now.bytes.data, text, now.bytes.len) != 0
                                 : now.is);
    if (rc == 0 && value && now.is && !counts) /* replacing would keep owner and mode */
        rc = put(install, NULL);
    if (rc == 0 && (*changed || (value && faccessat(install->site_fd, SP_SETUP_MARK, F_OK, AT_SYMLINK_NOFOLLOW) == 0)))
        rc = put(install, value ? text : NULL);
    sp_buf_free(&now.bytes);
    return rc;
}
