#include "cli/probe.h"
#include "cli/progress.h"
#include "cli/report.h"
#include "cli/subject.h"

#include "build/build.h"

#include <stdlib.h>
#include <string.h>

static const char *const description[] = {
    "Compiles libpar.so (the all-reduce), sgl-pcie-gpu (the program that exercises it) and _sgl_pcie.abi3.so (the "
    "module for Python) into an install that apply has patched, for the GPUs of this machine or for those of --arch. "
    "Files are replaced all together, by renaming; a running server keeps what it has loaded. Where the same sources "
    "and compilers made what is there, nothing is compiled.",
    "The same sources and compilers give the same bytes anywhere. sgl_pcie/build.json says what was built from what: "
    "the sha256 of every input and output, every command, the version of every compiler. With --check the build is "
    "made twice, in two folders, and compared byte for byte, with what is installed, too, if that has the same "
    "inputs; nothing is written.",
    "nvcc is the one of SGL_PCIE_NVCC, of CUDA_HOME, of CUDA_PATH, of PATH, of /usr/local/cuda, or pip's in the "
    "environment; the host compiler is NVCC_CCBIN, else the first gcc that nvcc accepts.",
    "With --upstream it is SGLang's own all-reduce that is built, out of the checkout that --source names and that "
    "apply --set sgl-kernel has patched: libupstream.so, in seconds and without torch. It goes into the install of "
    "--python or --site, where SGLANG_PCIE_AR_BACKEND=upstream makes SGLang's own class run on it; the kernel package "
    "stays as it is, and revert removes it. With --probe nothing is installed: it is built in a scratch folder, its "
    "sums are compared on the GPUs here, and one-stage and two-stage are timed beside NCCL and ours; the verdict "
    "learns whether the sums were right.",
    NULL,
};

static const struct sp_option options[] = {
    {.name = "arch",
     .value = "LIST",
     .help = "compile for these architectures, as sm_90,sm_120, or all (default: the GPUs of this machine)"},
    {.name = "check", .help = "build twice and compare, write nothing"},
    {.name = "upstream", .help = "build SGLang's own all-reduce out of the checkout of --source instead"},
    {.name = "probe", .help = "with --upstream: is it right on the GPUs here, and does it win? install nothing"},
    {.name = "world",
     .value = "N",
     .help = "with --probe: 2, 4, 6 or 8 ranks (default: as many as there are GPUs for)"},
    {.name = "bytes",
     .value = "N",
     .help = "with --probe: size of the message that is timed, as 65536 or 64K (default: 42K)"},
    {.name = "virtual", .help = "with --probe: ranks share GPUs, in one process, even where each could have its own"},
    {.name = NULL},
};

static const struct sp_exit exits[] = {
    {0, "built, or up to date; with --check: reproduced; with --probe: every sum was right"},
    {1, "with --check: the bytes differ; or the data that came with this program is damaged"},
    {2, "wrong arguments, or an architecture that this nvcc does not know"},
    {3, "with --upstream: an all-reduce that we do not know"},
    {4, "with --upstream: the file in the checkout was changed"},
    {5, "not patched, no nvcc, no headers, no GPU and no --arch, no permission or space"},
    {6, "nvcc does not accept the host compiler, or a compiler refused the sources"},
    {7, "with --probe: wrong sums"},
    {8, "a compiler or the driver did not end, or with --probe: the all-reduce hangs"},
    {10, NULL},
    {-1, NULL},
};

static const struct sp_example examples[] = {
    {"sgl-pcie build", "for the GPUs of this machine"},
    {"sgl-pcie build --arch sm_89,sm_120", "in an image, for machines with other GPUs"},
    {"sgl-pcie build --check", "are these the bytes that the sources give?"},
    {"sgl-pcie build --upstream --source sglang --probe", "is SGLang's own all-reduce worth rebuilding here?"},
    {"sgl-pcie build --upstream --source sglang --python /opt/venv/bin/python",
     "rebuild it for that interpreter's SGLang"},
    {NULL, NULL},
};

static const char *const fields[] = {"architectures", "check",      "log",      "outputs",  "probe", "site",
                                     "toolchain",     "up_to_date", "upstream", "warnings", NULL};

/* ---- JSON ---- */

static json_t *words_json(const struct sp_words *words)
{
    json_t *array = json_array();

    for (size_t i = 0; i < words->count; i++)
        (void)json_array_append_new(array, sp_json_text(words->word[i]));
    return array;
}

static json_t *archs_json(const struct sp_archs *archs)
{
    json_t *array = archs->count > 0 ? json_array() : NULL;

    for (size_t i = 0; i < archs->count; i++)
        (void)json_array_append_new(array, json_sprintf("sm_%u", archs->number[i]));
    return array;
}

static json_t *outputs_json(const struct sp_files *files)
{
    json_t *array = files->count > 0 ? json_array() : NULL;

    for (size_t i = 0; i < files->count; i++) {
        json_t *object = json_object();

        (void)json_object_set_new(object, "path", json_sprintf("sgl_pcie/%s", files->file[i].path));
        (void)json_object_set_new(object, "sha256", sp_json_text(files->file[i].sha256));
        (void)json_array_append_new(array, object);
    }
    return array;
}

static json_t *toolchain_json(const struct sp_build *build)
{
    const struct {
        const char *key, *text;
    } facts[] = {
        {"nvcc", build->tools.nvcc},
        {"nvcc_from", build->tools.nvcc_from},
        {"nvcc_version", build->tools.nvcc_version},
        {"cc", build->tools.cc},
        {"cc_version", build->tools.cc_version},
        {"python_headers", build->python.include},
        {"python_version", build->python.version},
    };
    json_t *object = build->tools.nvcc ? json_object() : NULL;

    for (size_t i = 0; object && i < sizeof facts / sizeof *facts; i++)
        (void)json_object_set_new(object, facts[i].key, sp_json_text(facts[i].text));
    return object;
}

/* What is not known, after an error, stays null. */
static void show_json(struct sp_report *report, const struct sp_build *build, int rc)
{
    sp_report_set(report, "architectures", archs_json(&build->archs));
    sp_report_set(report, "log", sp_json_text(build->log));
    sp_report_set(report, "outputs", outputs_json(&build->outputs));
    sp_report_set(report, "toolchain", toolchain_json(build));
    sp_report_set(report, "up_to_date", rc == SP_OK ? json_boolean(build->up_to_date) : NULL);
    sp_report_set(report, "warnings", words_json(&build->warnings));
}

/* ---- text ---- */

static int row(struct sp_table *table, const char *name, const char *value, const char *more, const char *end)
{
    char *text = NULL;
    int rc;

    if (value == NULL)
        return SP_OK;
    if (asprintf(&text, "%s (%s%s)", value, more ? more : "", end) < 0)
        return sp_err(SP_ECANNOT, "out of memory");
    rc = sp_table_row(table, (const char *const[]){name, text});
    free(text);
    return rc;
}

static int facts_table(const struct sp_report *report, const struct sp_build *build)
{
    struct sp_table *table;
    char from[64], archs[SP_ARCH_TEXT];
    int rc = sp_table_new(&table, 2, NULL);

    (void)snprintf(from, sizeof from, ", from %s", build->tools.nvcc_from);
    sp_archs_text(archs, &build->archs);
    if (rc == SP_OK)
        rc = row(table, "nvcc", build->tools.nvcc_version, build->tools.nvcc, from);
    if (rc == SP_OK)
        rc = row(table, "compiler", build->tools.cc_version, build->tools.cc, "");
    if (rc == SP_OK)
        rc = row(table, "python", build->python.version, build->python.include, "");
    if (rc == SP_OK)
        rc = row(table, "for", archs, report->args && sp_args_value(report->args, "arch") ? "--arch" : "the GPUs here",
                 "");
    if (rc == SP_OK)
        sp_report_table(report, table, NULL);
    else
        sp_table_free(table);
    return rc;
}

static int outputs_table(const struct sp_report *report, const struct sp_build *build)
{
    static const char *const headers[] = {"file", "sha256"};
    struct sp_table *table;
    int rc = sp_table_new(&table, 2, headers);

    for (size_t i = 0; i < build->outputs.count && rc == SP_OK; i++) {
        char path[256], sha256[SP_SHA256_HEX + 1];

        (void)snprintf(path, sizeof path, "sgl_pcie/%s", build->outputs.file[i].path);
        (void)snprintf(sha256, sizeof sha256, "%.*s", report->verbose ? SP_SHA256_HEX : 12,
                       build->outputs.file[i].sha256);
        rc = sp_table_row(table, (const char *const[]){path, sha256});
    }
    if (rc == SP_OK)
        sp_report_table(report, table, NULL);
    else
        sp_table_free(table);
    return rc;
}

static int show_text(const struct sp_report *report, const struct sp_build *build)
{
    int rc = facts_table(report, build);

    (void)putchar('\n');
    if (rc == SP_OK)
        rc = outputs_table(report, build);
    (void)putchar('\n');
    return rc;
}

/* For people, on standard error. */
static void show_warnings(const struct sp_report *report, const struct sp_build *build)
{
    (void)fflush(stdout);
    for (size_t i = 0; report->text && i < build->warnings.count; i++)
        (void)fprintf(stderr, "sgl-pcie: warning: %s\n", build->warnings.word[i]);
}

/* ---- the command ---- */

static int say(struct sp_report *report, struct sp_subject *subject, const struct sp_build *build,
               const struct sp_build_options *how)
{
    const char *next = sp_subject_next(subject, how->upstream ? "build --upstream --probe" : "status");
    char archs[SP_ARCH_TEXT];
    const size_t count = build->outputs.count;
    const char *plural = count == 1 ? "" : "s";

    sp_archs_text(archs, &build->archs);
    report->attention = build->warnings.count > 0;
    if (how->check)
        return sp_report_say(report, NULL, "reproduced: two builds of %zu file%s for %s have the same bytes%s", count,
                             plural, archs, build->matches_install ? ", and so has the install" : "");
    if (build->up_to_date)
        return sp_report_say(report, NULL, "up to date: %zu file%s for %s", count, plural, archs);
    return sp_report_say(report, next, "built %zu file%s for %s", count, plural, archs);
}

/* The command itself, but to write. The list of architectures is one that was accepted when this is told. */
static char *without_check(struct sp_subject *subject, const struct sp_args *args)
{
    const char *archs = sp_args_value(args, "arch");
    char *command = NULL, *again = NULL;

    if (asprintf(&command, "build%s%s%s", sp_args_has(args, "upstream") ? " --upstream" : "", archs ? " --arch " : "",
                 archs ? archs : "") >= 0) {
        again = strdup(sp_subject_next(subject, command));
        free(command);
    }
    return again;
}

static int call(struct sp_report *report, struct sp_subject *subject, const struct sp_args *args,
                const struct sp_upstream *upstream)
{
    const bool progress = sp_progress_seen(report);
    char *next = strdup(upstream ? sp_subject_next_install(subject, "apply") : sp_subject_next(subject, "apply"));
    char *again = without_check(subject, args);
    const struct sp_build_options build_options = {
        .archs = sp_args_value(args, "arch"),
        .check = sp_args_has(args, "check"),
        .next = next ? next : "sgl-pcie apply",
        .again = again ? again : "sgl-pcie build",
        .upstream = upstream,
        .progress = progress ? sp_progress_step : NULL,
    };
    struct sp_build *build = NULL;
    int rc = sp_build_run(&build, subject->install, &build_options);

    if (progress)
        sp_progress_end();
    if (build != NULL && report->object)
        show_json(report, build, rc);
    if (rc == SP_OK && report->text)
        rc = show_text(report, build);
    if (build != NULL)
        show_warnings(report, build);
    if (rc == SP_OK)
        rc = say(report, subject, build, &build_options);
    sp_build_free(build);
    free(again);
    free(next);
    return rc;
}

/* ---- SGLang's own all-reduce ---- */

/* Options that mean nothing by themselves. */
static int check_options(const struct sp_args *args)
{
    static const char *const of_probe[] = {"world", "bytes", "virtual", NULL};
    int rc = SP_OK;

    if (sp_args_has(args, "probe") && !sp_args_has(args, "upstream"))
        rc = sp_err(SP_EUSAGE, "--probe is of SGLang's own all-reduce: say --upstream, too");
    for (size_t i = 0; of_probe[i] && rc == SP_OK; i++)
        if (sp_args_has(args, of_probe[i]) && !sp_args_has(args, "probe"))
            rc = sp_err(SP_EUSAGE, "--%s is for --probe", of_probe[i]);
    if (rc == SP_OK && sp_args_has(args, "probe") && sp_args_has(args, "check"))
        rc = sp_err(SP_EUSAGE, "--probe and --check exclude each other");
    if (rc == SP_OK && sp_args_has(args, "upstream") && !sp_args_has(args, "source")) {
        sp_err(SP_EUSAGE, "--upstream needs a checkout of SGLang: its wheels bring no C++ sources; "
                          "name one with --source");
        rc = sp_err_hint(SP_EUSAGE, "git clone https://github.com/sgl-project/sglang");
    }
    return rc;
}

/* "4", "43008", "42K", "1M" */
static int read_number(size_t *out, const struct sp_args *args, const char *name, size_t least, size_t most)
{
    const char *text = sp_args_value(args, name);
    char *end = NULL;
    unsigned long long number = text ? strtoull(text, &end, 10) : 0;

    if (text && *end != '\0' && number < (1ULL << 40)) {
        number <<= *end == 'K' ? 10 : *end == 'M' ? 20 : 0;
        end += *end == 'K' || *end == 'M';
    }
    *out = (size_t)number;
    if (text && (strspn(text, "0123456789") == 0 || *end != '\0' || number < least || number > most))
        return sp_err(SP_EUSAGE, "--%s should be a number from %zu to %zu, not '%s'", name, least, most, text);
    return SP_OK;
}

static int read_probe_options(struct sp_probe_options *out, const struct sp_args *args)
{
    size_t world = 0, bytes = 0;
    int rc = read_number(&world, args, "world", 2, 8);

    if (rc == SP_OK && world % 2 != 0)
        rc = sp_err(SP_EUSAGE, "SGLang's all-reduce is for 2, 4, 6 or 8 ranks, not %zu", world);
    if (rc == SP_OK)
        rc = read_number(&bytes, args, "bytes", 16, 256 << 20);
    *out = (struct sp_probe_options){.archs = sp_args_value(args, "arch"),
                                     .world = (unsigned)world,
                                     .bytes = bytes,
                                     .virtual_ranks = sp_args_has(args, "virtual")};
    return rc;
}

/* The install that --python or --site names, or the environment has. A probe can do without one that nobody named. */
static int locate_target(struct sp_subject *out, const struct sp_args *args)
{
    const struct sp_target target = {.python = sp_args_value(args, "python"), .site = sp_args_value(args, "site")};
    int rc = sp_install_locate(&out->install, &target);

    if (rc == SP_OK || target.python || target.site)
        return rc;
    if (!sp_args_has(args, "probe"))
        return sp_err_hint(sp_err_wrap(rc, "cannot tell which SGLang it is for"), "%s",
                           sp_subject_next(out, "build --upstream --python PATH"));
    sp_err_clear();
    return SP_OK;
}

static int run_upstream(const struct sp_args *args, struct sp_report *report)
{
    struct sp_subject subject = {.args = args};
    struct sp_upstream upstream = {.path = NULL};
    struct sp_probe_options probe;
    int rc = read_probe_options(&probe, args);

    if (rc == SP_OK)
        rc = sp_upstream_open(&upstream, sp_args_value(args, "source"),
                              sp_subject_next_source(&subject, "apply --set " SP_UPSTREAM_SET));
    if (rc == SP_OK) {
        sp_report_set(report, "upstream", sp_upstream_json(&upstream));
        rc = locate_target(&subject, args);
    }
    if (rc == SP_OK && subject.install)
        sp_report_set(report, "site", sp_json_text(subject.install->site));
    if (rc == SP_OK)
        rc = sp_args_has(args, "probe") ? sp_probe_show(report, &subject, &upstream, &probe)
                                        : call(report, &subject, args, &upstream);
    sp_upstream_free(&upstream);
    sp_subject_close(&subject);
    return rc;
}

/* ---- ours ---- */

static int run_ours(const struct sp_args *args, struct sp_report *report)
{
    struct sp_subject subject;
    int rc = sp_subject_locate(&subject, args);

    if (rc == SP_OK)
        sp_report_set(report, "site", sp_json_text(subject.install->site));
    if (rc == SP_OK)
        rc = call(report, &subject, args, NULL);
    sp_subject_close(&subject);
    return rc;
}

static int run(const struct sp_args *args, struct sp_report *report)
{
    int rc = check_options(args);

    sp_report_set(report, "check", json_boolean(sp_args_has(args, "check")));
    if (rc == SP_OK)
        rc = sp_args_has(args, "upstream") ? run_upstream(args, report) : run_ours(args, report);
    return rc;
}

const struct sp_command sp_cmd_build = {
    .name = "build",
    .summary = "compile the all-reduce into an install, the same bytes every time",
    .description = description,
    .target = true,
    .options = options,
    .exits = exits,
    .examples = examples,
    .fields = fields,
    .run = run,
};
