#include "patcher/flag.h"
#include "base/err.h"
#include "base/txn.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { FLAG_FILE_MAX = 4096 };
#define FLAG_SCHEMA "sgl-pcie-flag/1"

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
    int rc = sp_read_beneath(&bytes, &st, site_fd, SP_STATE_DIR "/flag.json", FLAG_FILE_MAX);

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
        *out = (struct sp_flag){.source = "unset"};
    }
    return 0;
}
