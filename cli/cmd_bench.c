#include "cli/bench.h"
#include "verify/page/plot.h"

#include <stdlib.h>
#include <string.h>

static const char *const description[] = {
    "Measures the all-reduce against what SGLang uses by itself, on this machine's GPUs, and writes the profile that "
    "enable asks for and SGLang reads: which algorithm serves which size. Stock is NCCL as the environment sets it up; "
    "on two GPUs SGLang's own kernel, where the interpreter has one. With peer access, NCCL without it is shown "
    "beside.",
    "Each size is timed back to back in CUDA graphs, as nccl-tests do, and inside a step, with a small kernel before "
    "every call; the second decides, since it contains the gap before a kernel starts. Everything is compared with a "
    "reference first: a wrong algorithm ends in exit status 7 and no profile. Ours serves a size only where it is "
    "faster than stock by more than the noise. --verbose shows every algorithm, and its time without a graph.",
    "Only backends that the verdict of verify proved are measured. The profile is written at the end and at once: what "
    "is interrupted leaves the one before.",
    NULL,
};

static const struct sp_option options[] = {
    {.name = "gpus",
     .value = "LIST",
     .help = "on these GPUs, as verify takes them (default: $CUDA_VISIBLE_DEVICES, else all)"},
    {.name = "sizes", .value = "LIST", .help = "these sizes instead of 2K to 16M, as 2K,43008,1M; writes no profile"},
    {.name = "quick", .help = "few sizes, a few seconds; writes no profile"},
    {.name = "step",
     .value = "NxBYTES[,...]",
     .help = "what a step of so many all-reduces costs with stock and with ours, as 122x43008"},
    {.name = "model", .value = "KEY=N,...", .help = "the same for a model: hidden=5120,layers=64,batch=1-32,draft=5"},
    {.name = "plot",
     .value = "FILE",
     .complete = SP_COMPLETE_FILE,
     .help = "draw it into a file that ends in .svg or .png, or on the terminal (-); needs gnuplot"},
    {.name = "from",
     .value = "FILE",
     .complete = SP_COMPLETE_FILE,
     .help = "show what was measured before: bench.json, the output of bench --json, or a report; nothing is measured"},
    {.name = "timeout",
     .value = "SECONDS",
     .help = "time limit of one child process, 1 at least (default: what it needs, and a minute)"},
    {.name = "unproved", .help = "measure without a verdict; writes no profile"},
    {.name = NULL},
};

static const struct sp_exit exits[] = {
    {0, "measured; where stock is as fast at every size, the message says so"},
    {1, "there is no fresh verdict, or it proves nothing on these GPUs; what measures failed; with --from: a file of "
        "no bench, or without a figure of stock"},
    {2, "wrong arguments, or no such GPU"},
    {5,
     "fewer than two GPUs, no driver, nothing built, no NCCL to compare with, no such file, or a profile or plot that "
     "cannot be written"},
    {7, "an algorithm gave wrong data"},
    {8, "something hung, or did not end in time"},
    {9, "inconclusive: another process computes on these GPUs, or a GPU refuses to work"},
    {-1, NULL},
};

static const struct sp_example examples[] = {
    {"sudo sgl-pcie bench --python /opt/venv/bin/python", "after verify; a minute and a half at most"},
    {"sgl-pcie bench --quick --step 122x43008", "what a speculative verify step of 122 all-reduces would save"},
    {"sgl-pcie bench --model hidden=5120,layers=64,batch=1-32 --plot bench.svg", "by batch size, with a picture"},
    {NULL, NULL},
};

static const char *const fields[] = {"bench", "checks", "gpus", "profile", "steps", NULL};

/* ---- arguments ---- */

static int read_steps(struct sp_bench_wanted *out, const struct sp_args *args)
{
    const char *step = sp_args_value(args, "step"), *model = sp_args_value(args, "model");

    if (step && model)
        return sp_err(SP_EUSAGE, "--step and --model exclude each other");
    if (model)
        return sp_steps_of_model(out->step, &out->step_count, model);
    out->step_count = step != NULL;
    return step ? sp_step_parse(&out->step[0], step) : SP_OK;
}

/* The sizes of the steps are measured themselves, as many as there is room for. */
static void add_step_sizes(struct sp_bench_wanted *out)
{
    for (size_t i = 0; i < out->step_count; i++)
        for (size_t k = 0; k < out->step[i].count; k++)
            (void)sp_bench_add_size(out->bytes, &out->bytes_count, out->step[i].bytes[k]);
}

static int check_from(const struct sp_args *args)
{
    static const char *const excluded[] = {"gpus", "sizes", "quick", "timeout", "unproved", "python", "site", "source"};

    for (size_t i = 0; sp_args_has(args, "from") && i < sizeof excluded / sizeof *excluded; i++)
        if (sp_args_has(args, excluded[i]))
            return sp_err(SP_EUSAGE, "--from measures nothing, --%s is about measuring", excluded[i]);
    return SP_OK;
}

static int read_options(struct sp_bench_wanted *out, const struct sp_args *args)
{
    const char *sizes = sp_args_value(args, "sizes");
    int rc = check_from(args);

    out->quick = sp_args_has(args, "quick");
    out->unproved = sp_args_has(args, "unproved");
    out->sizes = sizes != NULL;
    out->plot = sp_args_value(args, "plot");
    if (rc == SP_OK && sizes)
        rc = sp_bench_parse_sizes(out->bytes, &out->bytes_count, sizes);
    else if (rc == SP_OK)
        out->bytes_count = sp_bench_sizes(out->bytes, out->quick);
    if (rc == SP_OK)
        rc = sp_args_number(&out->seconds, args, "timeout", SP_LEAST_SECONDS);
    if (rc == SP_OK)
        rc = read_steps(out, args);
    out->default_count = out->bytes_count;
    add_step_sizes(out);
    if (rc == SP_OK && out->plot)
        rc = sp_plot_check(out->plot);
    return rc;
}

static int run(const struct sp_args *args, struct sp_report *report)
{
    struct sp_bench_wanted *wanted = calloc(1, sizeof *wanted);
    int rc = wanted ? read_options(wanted, args) : sp_err(SP_ECANNOT, "out of memory");

    if (rc == SP_OK && sp_args_has(args, "from"))
        rc = sp_bench_replay(report, sp_args_value(args, "from"), wanted);
    else if (rc == SP_OK)
        rc = sp_bench_here(report, args, wanted);
    free(wanted);
    return rc;
}

const struct sp_command sp_cmd_bench = {
    .name = "bench",
    .summary = "measure ours against what SGLang uses by itself, and write the profile",
    .description = description,
    .target = true,
    .options = options,
    .exits = exits,
    .examples = examples,
    .fields = fields,
    .run = run,
};
