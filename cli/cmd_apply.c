#include "cli/change.h"

static const char *const description[] = {
    "Patches every file that still has its released bytes, brings files with an earlier revision of the patch up to "
    "date, installs the runtime (the distribution sgl-pcie-runtime) and removes the bytecode of the files it touches. "
    "All of this happens, or nothing does; killed half-way, recover finishes or undoes it.",
    "Bytes that are no release's are refused, with a table. Files that share their bytes with a cache by a hard link "
    "get bytes of their own; the cache keeps its own. An install that a running process has loaded is refused, unless "
    "--while-running is given: workers that it starts later would import new files beside its old ones.",
    "The set sgl-kernel patches a source text that only a checkout has, so it takes --source, and is patched when it "
    "is named: --source DIR --set sgl-kernel. Nothing changes for any SGLang until that text is compiled; see "
    "sgl-pcie build. Git's index is left alone, and a file with a change of yours, staged or not, is refused.",
    "Applying again does nothing and says so.",
    NULL,
};

static const struct sp_option options[] = {
    {.name = "set", .value = "NAME", .many = true, .help = "apply only this patch set (default: all but sgl-kernel)"},
    {.name = "dry-run", .help = "show what would be done and write nothing"},
    {.name = "diff", .help = "show the changes to each file as a unified diff"},
    {.name = "while-running", .help = "do it even though a process has this SGLang loaded"},
    {.name = NULL},
};

static const struct sp_exit exits[] = {
    {0, "patched, or patched already"},
    {1, "the data that came with this program is damaged"},
    {2, NULL},
    {3, NULL},
    {4, NULL},
    {5, "no permission, no space, a running server, or another sgl-pcie at work"},
    {10, NULL},
    {-1, NULL},
};

static const struct sp_example examples[] = {
    {"sgl-pcie apply --dry-run --diff", "show the plan and the patch itself"},
    {"sgl-pcie apply --python /opt/venv/bin/python", "patch the SGLang of that interpreter"},
    {"sgl-pcie apply --source ~/sglang --set sgl-kernel", "patch sgl-kernel's all-reduce in a checkout"},
    {NULL, NULL},
};

static const char *const fields[] = {SP_CHANGE_FIELDS, NULL};

static const struct sp_change_words words = {
    .command = "apply",
    .nothing = "already applied: nothing to do",
    .done = "patched",
    .would = "would patch",
    .added = "installed",
    .would_add = "would install",
    .call = sp_apply,
};

static int run(const struct sp_args *args, struct sp_report *report)
{
    return sp_change_run(args, report, &words);
}

const struct sp_command sp_cmd_apply = {
    .name = "apply",
    .summary = "patch an install: all files or none",
    .description = description,
    .target = true,
    .options = options,
    .exits = exits,
    .examples = examples,
    .fields = fields,
    .run = run,
};
