/*
 * The built part of the runtime in an install: sgl_pcie/libpar.so, and the module by which Python calls it. SGLang
 * takes ours where both are there (python/sgl_pcie/flag.py).
 */
#ifndef SP_PATCHER_EXTENSION_H
#define SP_PATCHER_EXTENSION_H

#include "base/file.h"

#include <stdbool.h>

struct sp_extension {
    bool present;                   /* both */
    bool partial;                   /* libpar.so alone */
    char sha256[SP_SHA256_HEX + 1]; /* of libpar.so; "" when absent */
};

int sp_extension_read(struct sp_extension *out, int site_fd);

#endif
