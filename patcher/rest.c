#include "patcher/rest.h"
#include "base/err.h"
#include "base/file.h"
#include "base/shell.h"
#include "base/txn.h"

#include <stdbool.h>

/* Each after a blank, and quoted. Returns how many there are. */
static size_t list(struct sp_buf *out, const char *site, const char *pattern)
{
    char quoted[SP_QUOTED_MAX];
    size_t count = 0;
    glob_t hits;

    sp_glob_beneath(&hits, site, pattern);
    for (size_t i = 0; i < hits.gl_pathc; i++)
        count += sp_buf_printf(out, " %s", sp_shell_quote(quoted, hits.gl_pathv[i])) == 0;
    globfree(&hits);
    return count;
}

int sp_rest_hint(int code, const char *site)
{
    struct sp_buf names = SP_BUF_INIT;
    const bool ours = list(&names, site, SP_STATE_DIR) + list(&names, site, "sgl_pcie_runtime-*.dist-info") > 0;

    if (ours) {
        (void)list(&names, site, "sgl_pcie"); /* by itself it may be anybody's */
        sp_err_add(code, "; what sgl-pcie put beside one is still in '%s'", site);
        sp_err_hint(code, "rm -r%s", names.data);
    }
    sp_buf_free(&names);
    return code;
}
