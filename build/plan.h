/*
 * What would be built, all of it known before anything is compiled: the inputs with their bytes, the commands, and the
 * record without its outputs (build/record.h). And what an install has of it: where its own record says that the same
 * inputs, commands and compilers made the files that are there, they need not be made again.
 *
 *     rc = sp_build_plan_load(&plan, NULL);                   // which architectures are old enough: plan.recipe.oldest
 *     rc = sp_build_plan_fill(&plan, &tools, &archs, &python);
 *     rc = sp_installed_read(&now, install, &plan);
 *     rc = sp_installed_holds(&there, install, &now, &plan);
 */
#ifndef SP_BUILD_PLAN_H
#define SP_BUILD_PLAN_H

#include "build/record.h"
#include "build/upstream.h"

struct sp_build_plan {
    const struct sp_upstream *upstream; /* NULL: ours */
    struct sp_recipe recipe;
    struct sp_files inputs;
    struct sp_steps steps;
    json_t *record;
};

/* Recipe and inputs. To be freed in any case. */
int sp_build_plan_load(struct sp_build_plan *out, const struct sp_upstream *upstream);

/* Commands and record. */
int sp_build_plan_fill(struct sp_build_plan *plan, const struct sp_toolchain *tools, const struct sp_archs *archs,
                       const struct sp_python *python);
bool sp_build_plan_needs_python(const struct sp_build_plan *plan);
void sp_build_plan_free(struct sp_build_plan *plan);

/* "build.json" or "upstream.json" */
const char *sp_build_plan_name(const struct sp_build_plan *plan);

/* ---- what is there ---- */

struct sp_installed {
    struct sp_files outputs; /* that the record names, without bytes */
    bool same;               /* it is of this plan */
};

/* To be freed in any case. */
int sp_installed_read(struct sp_installed *out, const struct sp_install *install, const struct sp_build_plan *plan);
void sp_installed_free(struct sp_installed *installed);

/* Are all files there that this plan makes, with the bytes that it makes, and can its programs be executed? */
int sp_installed_holds(bool *out, const struct sp_install *install, const struct sp_installed *installed,
                       const struct sp_build_plan *plan);

/* The bytes of one of them, for which the same holds. 1, and nothing: it is to be built. */
int sp_installed_take(struct sp_buf *out, const struct sp_install *install, const struct sp_installed *installed,
                      const char *name);

#endif
