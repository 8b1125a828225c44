#include "build/upstream_probe.h"
#include "base/err.h"
#include "base/json.h"
#include "base/proc.h"
#include "build/plan.h"
#include "build/scratch.h"
#include "verify/verdict/merge.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PROGRAM "upstream-probe"

enum { RUN_SECONDS = 45, GRACE_SECONDS = 10, OUTPUT_MAX = 1 << 20, WORLD_MAX = 8 };

struct job {
    const struct sp_upstream *upstream;
    const struct sp_probe_options *options;
    struct sp_probe *probe;
    struct sp_recipe recipe;
    struct sp_files inputs, outputs;
    struct sp_steps steps;
    struct sp_scratch scratch;
};

/* ---- planning ---- */

/* GPUs first: to compile for others is of no use here. */
static int choose_archs(struct job *job)
{
    struct sp_probe *probe = job->probe;
    struct sp_archs known, here;
    int rc = sp_archs_known(&known, &probe->tools, job->recipe.oldest);

    if (rc == 0)
        rc = sp_gpus_find(&probe->gpus, true);
    if (rc == 0)
        rc = sp_archs_choose(&here, NULL, &known, &probe->gpus, &probe->tools);
    if (rc < 0) {
        sp_err_wrap(rc, "nothing to probe on");
        return sp_err_hint(rc, "run it on the machine whose GPUs SGLang is to use; to build without one, leave out "
                               "--probe and name its GPUs with --arch");
    }
    return sp_archs_choose(&probe->archs, job->options->archs, &known, &probe->gpus, &probe->tools);
}

static const char *site_of(const struct job *job)
{
    return job->options->install ? job->options->install->site : NULL;
}

static int plan_recipe(struct job *job)
{
    int rc = sp_recipe_load(&job->recipe, SP_RECIPE);

    if (rc == 0) {
        sp_recipe_keep(&job->recipe, 1); /* of our own only the library */
        rc = sp_recipe_join(&job->recipe, SP_RECIPE_UPSTREAM);
    }
    return rc == 0 ? sp_recipe_join(&job->recipe, SP_RECIPE_PROBE) : rc;
}

/* Python's headers are in the record of what is built for it, whatever else needs them. */
static int find_installed(struct sp_buf *out, const struct job *job, struct sp_build_plan *plan, const char *name)
{
    const struct sp_install *install = job->options->install;
    struct sp_python python = {.include = NULL};
    struct sp_installed installed = {.same = false};
    int rc = sp_build_plan_needs_python(plan) ? sp_python_find(&python, install) : 0;

    if (rc == 0)
        rc = sp_build_plan_fill(plan, &job->probe->tools, &job->probe->archs, &python);
    if (rc == 0)
        rc = sp_installed_read(&installed, install, plan);
    if (rc == 0)
        rc = sp_installed_take(out, install, &installed, name);
    sp_installed_free(&installed);
    sp_python_free(&python);
    return rc;
}

/* The install's own, if building it would give the same bytes; what hinders is no error, then it is built. */
static int reuse(struct job *job, struct sp_product *product, const struct sp_upstream *upstream)
{
    struct sp_buf bytes = SP_BUF_INIT;
    struct sp_build_plan plan;
    char name[NAME_MAX + 8];
    int rc = sp_build_plan_load(&plan, upstream);

    if (rc == 0)
        rc = find_installed(&bytes, job, &plan, product->name);
    sp_build_plan_free(&plan);
    if (rc != 0) {
        sp_err_clear();
        return 0;
    }
    (void)snprintf(name, sizeof name, "../out/%s", product->name);
    rc = sp_files_add(&job->inputs, name, &bytes);
    if (rc == 0)
        rc = sp_words_add(&job->probe->reused, product->name);
    product->is_given = rc == 0;
    return rc;
}

static int plan(struct job *job)
{
    int rc = sp_toolchain_find(&job->probe->tools, job->options->install);

    if (rc == 0)
        rc = plan_recipe(job);
    if (rc == 0)
        rc = choose_archs(job);
    if (rc == 0)
        rc = sp_inputs_read(&job->inputs, &job->recipe);
    if (rc == 0)
        rc = sp_upstream_input(&job->inputs, job->upstream);
    if (rc == 0 && job->options->install)
        rc = reuse(job, &job->recipe.product[0], NULL);
    if (rc == 0 && job->options->install)
        rc = reuse(job, &job->recipe.product[1], job->upstream);
    return rc == 0 ? sp_steps_plan(&job->steps, &job->recipe, &job->probe->tools, &job->probe->archs) : rc;
}

/* ---- compiling and running ---- */

static int compile(struct job *job, const char *folder)
{
    static const struct sp_python none = {.include = NULL};
    const struct sp_file *library;
    int rc = sp_steps_run(&job->outputs, &job->probe->log, &job->steps, &job->inputs, &job->recipe, &job->probe->tools,
                          &none, folder, job->options->progress, job->options->context);

    library = rc == 0 ? sp_files_find(&job->outputs, SP_UPSTREAM_LIBRARY) : NULL;
    if (rc == 0 && library == NULL)
        library = sp_files_find(&job->inputs, "../out/" SP_UPSTREAM_LIBRARY);
    if (library != NULL)
        memcpy(job->probe->library, library->sha256, sizeof job->probe->library);
    return rc;
}

static int add_arguments(struct sp_words *argv, const struct sp_probe_options *options)
{
    char nccl[PATH_MAX] = "";
    int rc = 0;

    if (options->world != 0)
        rc = sp_words_addf(argv, "--world=%u", options->world);
    if (rc == 0 && options->bytes != 0)
        rc = sp_words_addf(argv, "--bytes=%zu", options->bytes);
    if (rc == 0 && options->virtual_ranks)
        rc = sp_words_add(argv, "--virtual");
    if (options->install != NULL) /* the one that SGLang's torch brings */
        (void)snprintf(nccl, sizeof nccl, "%s/nvidia/nccl/lib/libnccl.so.2", options->install->site);
    if (rc == 0 && nccl[0] != '\0' && access(nccl, R_OK) == 0)
        rc = sp_words_addf(argv, "--nccl=%s", nccl);
    return rc == 0 ? sp_words_addf(argv, "--limit=%d", RUN_SECONDS) : rc;
}

/* Its exit status is its verdict, in the codes of this program. */
static int judge(struct sp_probe *probe, const struct sp_proc_result *result)
{
    const char *message = json_string_value(json_object_get(probe->found, "message"));
    const char *said = result->err.len > 0 ? result->err.data : "it said nothing";
    int rc = 0;

    if (result->timed_out || result->status == -SP_EHANG)
        rc = sp_err(SP_EHANG, "SGLang's all-reduce hangs on these GPUs: %s",
                    message ? message : "the probe did not end in time");
    else if (result->status == -SP_EDATA)
        rc = sp_err(SP_EDATA, "SGLang's all-reduce gives wrong sums on these GPUs: %s", message ? message : said);
    else if (result->status == -SP_EFAIL)
        rc = sp_err(SP_EFAIL, "SGLang's all-reduce fails: %s", message ? message : said);
    else if (result->status != 0 || probe->found == NULL)
        rc = sp_err(SP_ECANNOT, "the probe could not run: %s", message ? message : said);
    return rc;
}

static int run_program(struct job *job, const char *folder)
{
    const struct sp_proc_options how = {.seconds = RUN_SECONDS + GRACE_SECONDS, .output_max = OUTPUT_MAX};
    struct sp_words argv = {NULL, 0};
    struct sp_proc_result result = {.status = 0};
    int rc = sp_words_addf(&argv, "%s/out/" PROGRAM, folder);

    if (job->options->progress != NULL)
        job->options->progress(job->options->context, job->steps.count, job->steps.count + 1, "running on the GPUs");
    if (rc == 0)
        rc = add_arguments(&argv, job->options);
    if (rc == 0)
        rc = sp_proc_run(&result, (const char *const *)argv.word, &how);
    if (rc == 0) {
        job->probe->found = json_loadb(result.out.data, result.out.len, 0, NULL);
        rc = judge(job->probe, &result);
    }
    sp_proc_free(&result);
    sp_words_free(&argv);
    return rc;
}

/* ---- the verdict ---- */

/* Ranks that share a GPU prove nothing about the ways between GPUs. */
static bool can_be_recorded(const struct job *job, int rc)
{
    const char *mode = json_string_value(json_object_get(job->probe->found, "mode"));
    const char *first = json_string_value(json_array_get(json_object_get(job->probe->found, "gpus"), 0));

    return job->options->install != NULL && first != NULL && *first != '\0' && mode != NULL &&
           strcmp(mode, "process") == 0 && (rc == 0 || rc == SP_EDATA || rc == SP_EHANG || rc == SP_EFAIL);
}

/* rc: of the probe, whose message stays. */
static int record(struct job *job, int rc)
{
    const json_t *gpus = json_object_get(job->probe->found, "gpus");
    const char *uuid[WORLD_MAX], *failed = rc == 0 ? NULL : sp_err_message();
    char *why = failed ? strdup(failed) : NULL;
    struct sp_outcome item = {.backend = SP_UPSTREAM,
                              .uuid = uuid,
                              .result = rc == 0 ? "PASS" : "FAIL",
                              .reason = why,
                              .library = job->probe->library};
    int added = failed && !why ? SP_ECANNOT : 0;

    for (size_t i = 0; i < json_array_size(gpus) && i < WORLD_MAX; i++)
        uuid[item.count++] = json_string_value(json_array_get(gpus, i));
    if (added == 0)
        added = sp_verdict_add(&job->probe->verdict, site_of(job), &item, 1);
    if (added < 0) {
        if (asprintf(&job->probe->not_recorded, "%s%s%s", sp_err_message(), *sp_err_hint_text() ? "; " : "",
                     sp_err_hint_text()) < 0)
            job->probe->not_recorded = NULL;
        sp_err_clear();
    }
    if (why != NULL)
        rc = sp_err(rc, "%s", why);
    free(why);
    return rc;
}

/* ---- all of it ---- */

static int run(struct job *job)
{
    char folder[PATH_MAX];
    int rc = plan(job);

    if (rc == 0)
        rc = sp_scratch_make(&job->scratch);
    if (rc == 0)
        (void)snprintf(folder, sizeof folder, "%s/probe", job->scratch.path);
    if (rc == 0)
        rc = compile(job, folder);
    if (rc == 0) {
        rc = run_program(job, folder);
        if (can_be_recorded(job, rc))
            rc = record(job, rc);
    }
    return rc;
}

int sp_upstream_probe(struct sp_probe **out, const struct sp_upstream *upstream, const struct sp_probe_options *options)
{
    struct job job = {.upstream = upstream, .options = options, .scratch = SP_SCRATCH_INIT};
    int rc;

    job.probe = *out = calloc(1, sizeof **out);
    if (job.probe == NULL)
        return sp_err(SP_ECANNOT, "out of memory");
    rc = run(&job);
    sp_scratch_free(&job.scratch);
    sp_steps_free(&job.steps);
    sp_files_free(&job.inputs);
    sp_files_free(&job.outputs);
    sp_recipe_free(&job.recipe);
    return rc;
}

void sp_probe_free(struct sp_probe *probe)
{
    if (probe == NULL)
        return;
    sp_toolchain_free(&probe->tools);
    sp_words_free(&probe->reused);
    json_decref(probe->found);
    free(probe->verdict);
    free(probe->not_recorded);
    free(probe->log);
    free(probe);
}
