#include "build/plan.h"
#include "base/err.h"
#include "build/deploy.h"

#include <string.h>

/* ---- what would be built ---- */

int sp_build_plan_load(struct sp_build_plan *out, const struct sp_upstream *upstream)
{
    int rc;

    *out = (struct sp_build_plan){.upstream = upstream};
    rc = sp_recipe_load(&out->recipe, upstream ? SP_RECIPE_UPSTREAM : SP_RECIPE);
    if (rc == 0)
        rc = sp_inputs_read(&out->inputs, &out->recipe);
    return rc == 0 && upstream ? sp_upstream_input(&out->inputs, upstream) : rc;
}

int sp_build_plan_fill(struct sp_build_plan *plan, const struct sp_toolchain *tools, const struct sp_archs *archs,
                       const struct sp_python *python)
{
    int rc = sp_steps_plan(&plan->steps, &plan->recipe, tools, archs);

    if (rc == 0)
        rc = sp_record_plan(&plan->record, &plan->steps, &plan->inputs, tools, archs, python);
    if (rc == 0 && plan->upstream && json_object_set_new(plan->record, "text", sp_upstream_json(plan->upstream)) != 0)
        rc = sp_err(SP_ECANNOT, "out of memory");
    return rc;
}

bool sp_build_plan_needs_python(const struct sp_build_plan *plan)
{
    bool needs = false;

    for (size_t i = 0; i < plan->recipe.count; i++)
        needs = needs || plan->recipe.product[i].needs_python;
    return needs;
}

void sp_build_plan_free(struct sp_build_plan *plan)
{
    sp_steps_free(&plan->steps);
    sp_files_free(&plan->inputs);
    sp_recipe_free(&plan->recipe);
    json_decref(plan->record);
    plan->record = NULL;
}

const char *sp_build_plan_name(const struct sp_build_plan *plan)
{
    return plan->upstream ? SP_RECORD_UPSTREAM : SP_RECORD_NAME;
}

/* ---- what is there ---- */

int sp_installed_read(struct sp_installed *out, const struct sp_install *install, const struct sp_build_plan *plan)
{
    struct sp_buf record = SP_BUF_INIT;
    int rc = sp_deploy_read(&record, install, sp_build_plan_name(plan));

    *out = (struct sp_installed){.same = false};
    if (rc == 0)
        rc = sp_record_matches(&out->same, &out->outputs, &record, plan->record);
    sp_buf_free(&record);
    return rc < 0 ? rc : 0;
}

void sp_installed_free(struct sp_installed *installed)
{
    sp_files_free(&installed->outputs);
    installed->same = false;
}

/* Neither more nor less than what the steps make: all but the outputs of a record is compared with the plan. */
static bool lists_all(const struct sp_files *outputs, const struct sp_steps *steps)
{
    size_t made = 0;
    bool all = true;

    for (size_t i = 0; i < steps->count && all; i++)
        if (steps->step[i].links) {
            made++;
            all = sp_files_find(outputs, steps->step[i].what) != NULL;
        }
    return all && made > 0 && made == outputs->count;
}

int sp_installed_holds(bool *out, const struct sp_install *install, const struct sp_installed *installed,
                       const struct sp_build_plan *plan)
{
    int rc = 0;

    *out = installed->same && lists_all(&installed->outputs, &plan->steps);
    for (size_t i = 0; i < installed->outputs.count && *out && rc == 0; i++) {
        const struct sp_file *file = &installed->outputs.file[i];

        rc = sp_deploy_has(out, install, file->path, file->sha256);
        *out = *out && (!sp_recipe_is_program(&plan->recipe, file->path) || sp_deploy_can_run(install, file->path));
    }
    return rc;
}

int sp_installed_take(struct sp_buf *out, const struct sp_install *install, const struct sp_installed *installed,
                      const char *name)
{
    const struct sp_file *is = installed->same ? sp_files_find(&installed->outputs, name) : NULL;
    char sha256[SP_SHA256_HEX + 1] = "";
    int rc = is ? sp_deploy_read(out, install, name) : 1;

    if (rc == 0)
        rc = sp_sha256(sha256, out->data, out->len);
    if (rc == 0 && strcmp(sha256, is->sha256) != 0)
        rc = 1;
    if (rc != 0)
        sp_buf_free(out);
    return rc;
}
