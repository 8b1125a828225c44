#include "patcher/extension.h"
#include "base/err.h"

#include <fcntl.h>
#include <unistd.h>

enum { EXTENSION_MAX = 256 << 20 };

int sp_extension_read(struct sp_extension *out, int site_fd)
{
    struct sp_buf bytes = SP_BUF_INIT;
    int rc;

    *out = (struct sp_extension){.present = false};
    rc = sp_read_beneath(&bytes, NULL, site_fd, "sgl_pcie/libpar.so", EXTENSION_MAX);
    if (rc == 0) {
        out->present = faccessat(site_fd, "sgl_pcie/_sgl_pcie.abi3.so", F_OK, 0) == 0;
        out->partial = !out->present;
        rc = sp_sha256(out->sha256, bytes.data, bytes.len);
    }
    sp_buf_free(&bytes);
    return rc < 0 ? rc : 0;
}
