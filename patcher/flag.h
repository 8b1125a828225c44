/*
 * The flag SGLANG_FORCE_CUSTOM_AR_PCIE as this environment has it.
 *
 * The variable wins when it is set; else what `enable` wrote to <site>/.sgl-pcie/flag.json
 * ({"schema": "sgl-pcie-flag/1", "value": "1"}); else unset. python/sgl_pcie/flag.py reads the same file by the
 * same rules: a file that is not a regular file, is not owned by root or the reader, is larger than 4 KiB or
 * does not parse counts as absent.
 */
#ifndef SP_PATCHER_FLAG_H
#define SP_PATCHER_FLAG_H

#include "base/file.h"
#include "patcher/install.h"

#include <stdbool.h>

#define SP_FLAG_ENV "SGLANG_FORCE_CUSTOM_AR_PCIE"

struct sp_flag {
    char value[16];     /* "" when unset */
    const char *source; /* "environment", "install" or "unset" */
    bool unusable;      /* unset, and there is a file that counts as absent */
};

/* site_fd: directory descriptor of the install's site. */
int sp_flag_read(struct sp_flag *out, int site_fd);

/* Persist a value for everybody who uses this Python, or, with NULL, take away what was persisted; whole or not at all.
 * *changed: was there anything to do. As root the file is root's, so that it counts for every user; a file of somebody
 * else, which counts for nobody but them, is replaced. Errors as sp_txn_commit(). */
int sp_flag_write(bool *changed, const struct sp_install *install, const char *value);

/* Parse the file's bytes: SP_OK and value, or SP_EFAIL. */
int sp_flag_parse(struct sp_flag *out, const char *json, size_t len);

#endif
