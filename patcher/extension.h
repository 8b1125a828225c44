/*
 * The built part of the runtime in an install: sgl_pcie/libpar.so.
 */
#ifndef SP_PATCHER_EXTENSION_H
#define SP_PATCHER_EXTENSION_H

#include "base/file.h"

#include <stdbool.h>

struct sp_extension {
    bool present;
    char sha256[SP_SHA256_HEX + 1]; /* "" when absent */
};

int sp_extension_read(struct sp_extension *out, int site_fd);

#endif
