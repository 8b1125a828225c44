#include "build/build.h"
#include "base/err.h"
#include "build/deploy.h"
#include "build/elf.h"
#include "build/plan.h"
#include "build/scratch.h"
#include "patcher/servers.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What is to be compiled, and what the install says was compiled. */
struct job {
    const struct sp_install *install;
    const struct sp_build_options *options;
    struct sp_build *build;
    struct sp_build_plan plan;
    struct sp_installed installed;
    struct sp_scratch scratch;
};

/* ---- planning ---- */

static int warn_of_driver(struct sp_build *build)
{
    const unsigned needed = sp_toolchain_major(&build->tools);
    int rc = 0;

    if (build->gpus.cuda_major != 0 && build->gpus.cuda_major < needed)
        rc =
            sp_words_addf(&build->warnings,
                          "the driver of this machine knows CUDA %u, and what nvcc %s makes needs CUDA %u: it will not "
                          "run here without a newer driver, or an older nvcc named with SGL_PCIE_NVCC",
                          build->gpus.cuda_major, build->tools.nvcc_version, needed);
    return rc;
}

static int plan_python(struct job *job)
{
    struct sp_build *build = job->build;
    int rc = 0;

    build->needs_python = sp_build_plan_needs_python(&job->plan);
    if (build->needs_python)
        rc = sp_python_find(&build->python, job->install);
    return rc;
}

static int choose_archs(struct job *job)
{
    struct sp_build *build = job->build;
    struct sp_archs known;
    int rc = sp_archs_known(&known, &build->tools, job->plan.recipe.oldest);

    if (rc == 0 && (rc = sp_gpus_find(&build->gpus, job->options->archs == NULL)) < 0 && *sp_err_hint_text() == '\0')
        rc = sp_err_hint(rc, "%s --arch sm_90", job->options->again);
    if (rc == 0)
        rc = sp_archs_choose(&build->archs, job->options->archs, &known, &build->gpus, &build->tools);
    return rc < 0 ? rc : warn_of_driver(build);
}

static int plan(struct job *job)
{
    struct sp_build *build = job->build;
    int rc = sp_build_plan_load(&job->plan, job->options->upstream);

    if (rc == 0)
        rc = sp_toolchain_find(&build->tools, job->install);
    if (rc == 0)
        rc = choose_archs(job);
    if (rc == 0)
        rc = plan_python(job);
    if (rc == 0)
        rc = sp_build_plan_fill(&job->plan, &build->tools, &build->archs, &build->python);
    return rc == 0 ? sp_installed_read(&job->installed, job->install, &job->plan) : rc;
}

/* ---- compiling ---- */

static int run_steps(struct sp_files *out, struct job *job, const char *name)
{
    char folder[PATH_MAX];
    int len = snprintf(folder, sizeof folder, "%s/%s", job->scratch.path, name);

    if (len >= (int)sizeof folder)
        return sp_err(SP_ECANNOT, "the path '%s/%s' is too long", job->scratch.path, name);
    return sp_steps_run(out, &job->build->log, &job->plan.steps, &job->plan.inputs, &job->plan.recipe,
                        &job->build->tools, &job->build->python, folder, job->options->progress, job->options->context);
}

static int probe(struct job *job)
{
    char folder[PATH_MAX];

    (void)snprintf(folder, sizeof folder, "%s/probe", job->scratch.path);
    return sp_compile_probe(&job->build->log, &job->build->tools, &job->build->archs, folder);
}

/* ---- comparing ---- */

static int differ(const struct sp_file *a, const struct sp_file *b, const char *between)
{
    const size_t least = a->bytes.len < b->bytes.len ? a->bytes.len : b->bytes.len;
    char section[SP_SECTION_MAX], where[SP_SECTION_MAX + 16] = "";
    size_t at = 0;

    while (at < least && a->bytes.data[at] == b->bytes.data[at])
        at++;
    sp_elf_section(section, a->bytes.data, a->bytes.len, at);
    if (section[0] != '\0')
        (void)snprintf(where, sizeof where, " (section %s)", section);
    return sp_err(SP_EFAIL, "'%s' differs between %s: %zu and %zu bytes, sha256 %.12s and %.12s, first at byte %zu%s",
                  a->path, between, a->bytes.len, b->bytes.len, a->sha256, b->sha256, at, where);
}

static int compare(const struct sp_files *first, const struct sp_files *second, const char *between)
{
    int rc = 0;

    for (size_t i = 0; i < first->count && rc == 0; i++) {
        const struct sp_file *other = sp_files_find(second, first->file[i].path);

        if (other == NULL)
            rc = sp_err(SP_EFAIL, "'%s' is missing in one of %s", first->file[i].path, between);
        else if (strcmp(first->file[i].sha256, other->sha256) != 0)
            rc = differ(&first->file[i], other, between);
    }
    return rc;
}

/* What is installed of what was built, read for comparing. */
static int read_outputs(struct sp_files *out, const struct job *job)
{
    int rc = 0;

    for (size_t i = 0; i < job->build->outputs.count && rc >= 0; i++) {
        const char *name = job->build->outputs.file[i].path;
        struct sp_buf bytes = SP_BUF_INIT;

        rc = sp_deploy_read(&bytes, job->install, name);
        if (rc == 0)
            rc = sp_files_add(out, name, &bytes);
    }
    return rc < 0 ? rc : 0;
}

static int check_programs(const struct job *job)
{
    const struct sp_files *outputs = &job->build->outputs;
    int rc = 0;

    for (size_t i = 0; i < outputs->count && rc == 0; i++)
        if (sp_recipe_is_program(&job->plan.recipe, outputs->file[i].path) &&
            !sp_deploy_can_run(job->install, outputs->file[i].path))
            rc = sp_err(SP_EFAIL, "'%s' of the install cannot be executed", outputs->file[i].path);
    return rc;
}

/* Only where the install says that it was built from this very plan. */
static int compare_installed(struct job *job)
{
    struct sp_files now = {NULL, 0};
    int rc = 0;

    if (job->installed.same) {
        rc = read_outputs(&now, job);
        if (rc == 0)
            rc = compare(&job->build->outputs, &now, "this build and the install");
        if (rc == 0)
            rc = check_programs(job);
        if (rc == SP_EFAIL)
            rc = sp_err_hint(rc, "%s", job->options->again);
        job->build->matches_install = rc == 0;
    }
    sp_files_free(&now);
    return rc;
}

/* Folders of different names and lengths, so that a path that gets into the bytes shows. */
static int check(struct job *job)
{
    struct sp_files second = {NULL, 0};
    int rc = run_steps(&job->build->outputs, job, "first");

    if (rc == 0)
        rc = run_steps(&second, job, "once-more-elsewhere");
    if (rc == 0 && (rc = compare(&job->build->outputs, &second, "two builds")) == SP_EFAIL)
        rc = sp_err_hint(rc,
                         "name other compilers with SGL_PCIE_NVCC and NVCC_CCBIN: the same commands gave other bytes");
    sp_files_free(&second);
    return rc < 0 ? rc : compare_installed(job);
}

/* ---- into the install ---- */

/* They keep what they have loaded until they are started again. */
static int warn_of_servers(struct sp_build *build, const struct sp_install *install)
{
    int rc = sp_servers_check(install);

    if (rc == SP_ECANNOT) {
        rc = sp_words_addf(&build->warnings, "%s\nit keeps what it has loaded until it is started again",
                           sp_err_message());
        if (rc == 0)
            sp_err_clear();
    }
    return rc;
}

/* The outputs with the record among them, which is not one of them. */
static int deploy(struct job *job)
{
    struct sp_files *outputs = &job->build->outputs;
    struct sp_buf record = SP_BUF_INIT;
    int rc = sp_record_format(&record, job->plan.record, outputs);

    if (rc == 0)
        rc = sp_files_add(outputs, sp_build_plan_name(&job->plan), &record);
    if (rc == 0) {
        rc = sp_deploy_run(job->install, outputs, &job->plan.recipe, job->options->next);
        outputs->count--;
        free(outputs->file[outputs->count].path);
        sp_buf_free(&outputs->file[outputs->count].bytes);
    }
    sp_buf_free(&record);
    return rc;
}

/* ---- all of it ---- */

static int compile(struct job *job)
{
    int rc = sp_scratch_make(&job->scratch);

    if (rc == 0)
        rc = probe(job);
    if (rc == 0)
        rc = job->options->check ? check(job) : run_steps(&job->build->outputs, job, "build");
    if (rc == 0 && !job->options->check && job->installed.outputs.count > 0)
        rc = warn_of_servers(job->build, job->install);
    return rc < 0 || job->options->check ? rc : deploy(job);
}

static int run(struct job *job)
{
    struct sp_build *build = job->build;
    bool there = false;
    int rc = job->options->check ? 0 : sp_deploy_check(job->install, job->options->next);

    if (rc == 0)
        rc = plan(job);
    if (rc == 0 && !job->options->check)
        rc = sp_installed_holds(&there, job->install, &job->installed, &job->plan);
    if (rc == 0 && !there && !job->options->check) /* a tree that cannot be written may be up to date */
        rc = sp_deploy_access(job->install);
    if (rc < 0 || !there)
        return rc < 0 ? rc : compile(job);
    build->up_to_date = true;
    build->outputs = job->installed.outputs;
    job->installed.outputs = (struct sp_files){NULL, 0};
    return 0;
}

int sp_build_run(struct sp_build **out, const struct sp_install *install, const struct sp_build_options *options)
{
    struct job job = {.install = install, .options = options, .scratch = SP_SCRATCH_INIT};
    int rc;

    job.build = *out = calloc(1, sizeof **out);
    if (job.build == NULL)
        return sp_err(SP_ECANNOT, "out of memory");
    rc = run(&job);
    sp_scratch_free(&job.scratch);
    sp_installed_free(&job.installed);
    sp_build_plan_free(&job.plan);
    return rc;
}

void sp_build_free(struct sp_build *build)
{
    if (build == NULL)
        return;
    sp_toolchain_free(&build->tools);
    sp_python_free(&build->python);
    sp_files_free(&build->outputs);
    sp_words_free(&build->warnings);
    free(build->log);
    free(build);
}
