#include "build/upstream.h"
#include "base/err.h"
#include "patcher/install.h"
#include "patcher/patchset.h"
#include "patcher/plan.h"

#include <stdlib.h>
#include <string.h>

#define INPUT "upstream/text/custom_all_reduce.cuh"

static int take(struct sp_upstream *out, struct sp_plan_file *file)
{
    out->path = strdup(file->path);
    out->pre = file->text->pre;
    out->id = file->oid;
    out->revision = file->now->revision;
    out->bytes = file->bytes;
    file->bytes = (struct sp_buf)SP_BUF_INIT;
    return out->path ? 0 : sp_err(SP_ECANNOT, "out of memory");
}

static int not_patched(const struct sp_plan_file *file, const char *next)
{
    sp_err(SP_ECANNOT, "'%s' is %s: for more than two GPUs without full NVLink it launches nothing and says nothing",
           file->path, file->state == SP_APPLIED_OLD ? "patched by an earlier revision" : "not patched");
    return sp_err_hint(SP_ECANNOT, "%s", next);
}

static int read_plan(struct sp_upstream *out, struct sp_plan *plan, const struct sp_install *checkout, const char *next)
{
    int rc = sp_plan_check(plan, checkout);

    if (rc == 0 && plan->file_count == 0)
        rc = sp_err(SP_ENOPATCH, "there is no custom_all_reduce.cuh in '%s'", checkout->root);
    if (rc == 0)
        rc = plan->files[0].state == SP_APPLIED ? take(out, &plan->files[0]) : not_patched(&plan->files[0], next);
    return rc;
}

int sp_upstream_open(struct sp_upstream *out, const char *checkout, const char *next)
{
    static const char *const names[] = {SP_UPSTREAM_SET, NULL};
    const struct sp_target target = {.source = checkout};
    struct sp_install *install = NULL;
    struct sp_patchsets *sets = NULL;
    struct sp_plan *plan = NULL;
    int rc = sp_install_locate(&install, &target);

    memset(out, 0, sizeof *out);
    if (rc == 0)
        rc = sp_patchsets_load(&sets, NULL);
    if (rc == 0)
        rc = sp_plan_make(&plan, install, sets, names);
    if (rc == 0)
        rc = read_plan(out, plan, install, next);
    sp_plan_free(plan);
    sp_patchsets_free(sets);
    sp_install_free(install);
    return rc;
}

void sp_upstream_free(struct sp_upstream *upstream)
{
    free(upstream->path);
    sp_buf_free(&upstream->bytes);
    memset(upstream, 0, sizeof *upstream);
}

int sp_upstream_input(struct sp_files *inputs, const struct sp_upstream *upstream)
{
    struct sp_buf copy = SP_BUF_INIT;
    int rc = sp_buf_set(&copy, upstream->bytes.data, upstream->bytes.len);

    return rc < 0 ? rc : sp_files_add(inputs, INPUT, &copy);
}

json_t *sp_upstream_json(const struct sp_upstream *upstream)
{
    return json_pack("{s:s, s:s, s:s, s:i}", "path", upstream->path, "released", upstream->pre.hex, "patched",
                     upstream->id.hex, "revision", (int)upstream->revision);
}
