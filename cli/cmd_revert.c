#include "cli/change.h"

static const char *const description[] = {
    "Reverses the patch in every file that carries it, compares each with the released bytes before it is written, and "
    "removes the runtime and everything else that apply put there. What is left is the install as it was, byte for "
    "byte, bytecode aside. An install that a running process has loaded is refused, unless --while-running is given.",
    "With --source that is all of the checkout, sgl-kernel's text included, and git's index is left alone. It needs "
    "nothing but the files themselves: it works after pip uninstall sgl-pcie-runtime, too. On a stock install "
    "it does nothing and says so.",
    NULL,
};

static const struct sp_option options[] = {
    {.name = "set", .value = "NAME", .many = true, .help = "revert only this patch set (default: all of this layout)"},
    {.name = "dry-run", .help = "show what would be done and write nothing"},
    {.name = "while-running", .help = "do it even though a process has this SGLang loaded"},
    {.name = NULL},
};

static const struct sp_exit exits[] = {
    {0, "as released, now or already"},
    {1, "the data that came with this program is damaged"},
    {2, NULL},
    {4, "a file was changed after it was patched: nothing was written"},
    {5, "no permission, no space, a running server, or another sgl-pcie at work"},
    {10, NULL},
    {-1, NULL},
};

static const struct sp_example examples[] = {
    {"sgl-pcie revert", "take the patch back out of this shell's SGLang"},
    {NULL, NULL},
};

static const char *const fields[] = {SP_CHANGE_FIELDS, NULL};

static const struct sp_change_words words = {
    .command = "revert",
    .nothing = "not patched: nothing to do",
    .done = "restored",
    .would = "would restore",
    .added = "removed",
    .would_add = "would remove",
    .call = sp_revert,
};

static int run(const struct sp_args *args, struct sp_report *report)
{
    return sp_change_run(args, report, &words);
}

const struct sp_command sp_cmd_revert = {
    .name = "revert",
    .summary = "take the patch back: every byte as released",
    .description = description,
    .target = true,
    .options = options,
    .exits = exits,
    .examples = examples,
    .fields = fields,
    .run = run,
};
