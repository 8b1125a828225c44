/* A hostile patch file on a small text, forward and reversed: refused, or exactly the promised bytes. */
#include "patcher/patch.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static const char path[] = "pkg/module.py";
static const char before[] = "one\ntwo\nthree\nfour\nfive\n";
static const char after[] = "one\ntwo\n2.5\nthree\nfour\nfive\n";

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void run(const char *text, const char *wanted, const struct sp_buf *patch, int reverse)
{
    struct sp_buf in = SP_BUF_INIT, out = SP_BUF_INIT;
    struct sp_oid pre, post;

    if (sp_buf_set(&in, text, strlen(text)) < 0 || sp_blob_id(&pre, before, strlen(before)) < 0 ||
        sp_blob_id(&post, after, strlen(after)) < 0)
        abort();
    if (sp_patch_run(&out, &in, path, &pre, &post, patch, reverse) == 0 &&
        (out.len != strlen(wanted) || memcmp(out.data, wanted, out.len) != 0))
        abort();
    sp_buf_free(&in);
    sp_buf_free(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct sp_buf patch = SP_BUF_INIT;

    if (sp_buf_set(&patch, data, size) < 0)
        abort();
    run(before, after, &patch, 0);
    run(after, before, &patch, 1);
    sp_buf_free(&patch);
    return 0;
}
