#include "cli/command.h"

#include <string.h>

/* In the order of the help: one name, one cmd_<name>.c. */
#define COMMANDS(add)                                                                                                  \
    add(status) add(list) add(apply) add(revert) add(recover) add(build) add(verify) add(bench) add(enable)            \
        add(disable) add(doctor) add(setup) add(report)

#define DECLARE(name) extern const struct sp_command sp_cmd_##name;
COMMANDS(DECLARE)

#define ENTRY(name) &sp_cmd_##name,
const struct sp_command *const sp_commands[] = {COMMANDS(ENTRY) NULL};

static const char *const colours[] = {"auto", "always", "never", NULL};
static const char *const generators[] = {"man", "bash", NULL};

const struct sp_option sp_global_options[] = {
    {.name = "json", .help = "print one JSON object on standard output, for errors too"},
    {.name = "quiet", .letter = 'q', .help = "print nothing on success"},
    {.name = "verbose", .letter = 'v', .help = "say more: full ids and the paths of what was used"},
    {.name = "color",
     .value = "WHEN",
     .choices = colours,
     .help = "colour the text: auto (on a terminal, unless NO_COLOR is set), always or never"},
    {.name = "help", .letter = 'h', .help = "print help, of a command when one is given"},
    {.name = "version", .help = "print the version"},
    {.name = "generate",
     .value = "WHAT",
     .choices = generators,
     .hidden = true,
     .help = "print the manual page or the completion, for the build"},
    {.name = NULL},
};

const struct sp_option sp_target_options[] = {
    {.name = "python",
     .value = "PATH",
     .complete = SP_COMPLETE_FILE,
     .help = "the interpreter whose SGLang is meant (default: of $VIRTUAL_ENV, of $CONDA_PREFIX, python3 on PATH)"},
    {.name = "site",
     .value = "DIR",
     .complete = SP_COMPLETE_DIR,
     .help = "the site-packages folder that holds sglang/; no interpreter is needed"},
    {.name = "source",
     .value = "DIR",
     .complete = SP_COMPLETE_DIR,
     .help = "a source checkout of SGLang that no interpreter has installed; else name the interpreter"},
    {.name = NULL},
};

const struct sp_exit sp_exits[] = {
    {0, "done, or nothing to do"},
    {1, "a check failed, enabling was refused, or the program's own data is damaged"},
    {2, "wrong arguments, or no single SGLang to work on"},
    {3, "there is no patch for this release"},
    {4, "files differ from those of the release"},
    {5, "could not: no permission, no space, a running server, no GPU or toolkit"},
    {6, "the compiler refused"},
    {7, "wrong data from a GPU"},
    {8, "a hang, or the time limit"},
    {9, "inconclusive: the control failed too"},
    {10, "an earlier write was interrupted: run recover"},
    {-1, NULL},
};

const struct sp_environment sp_environment[] = {
    {"SGLANG_FORCE_CUSTOM_AR_PCIE", "the flag that patched SGLang obeys: 0 stock, 1 the PCIe all-reduce where it is "
                                    "proven, unsafe without proof; when set, it wins over what the install says"},
    {"SGLANG_PCIE_AR_BACKEND",
     "what patched SGLang takes: auto, peer, host, or upstream, SGLang's own all-reduce out of "
     "build --upstream"},
    {"SGLANG_PCIE_AR_TIMEOUT_S", "how long its all-reduce waits for another rank, in seconds (default: 240)"},
    {"SGLANG_PCIE_UPSTREAM_LIMITS", "of upstream without full NVLink: ONE,TWO, up to how many bytes one stage serves, "
                                    "and two"},
    {"CUDA_VISIBLE_DEVICES", "the GPUs that verify, bench, setup and doctor look at when --gpus is not given"},
    {"SGL_PCIE_STATE",
     "the folder of verdict and profile, a path from the root (default: /var/lib/sgl-pcie for root, else "
     "~/.local/state/sgl-pcie)"},
    {"SGL_PCIE_DATA", "the folder of patches, Python files and sources of the kernels (default: share/sgl-pcie beside "
                      "the program's folder)"},
    {"SGL_PCIE_NVCC",
     "the nvcc that build uses; else the one of CUDA_HOME or CUDA_PATH, of PATH, of /usr/local/cuda, or pip's"},
    {"NVCC_CCBIN", "the host compiler that build uses, a program or the folder of gcc"},
    {"TMPDIR", "where build compiles; nothing stays there but the log of a compiler that refused"},
    {"VIRTUAL_ENV, CONDA_PREFIX", "the environment whose SGLang is meant when no target is given"},
    {"PYTHONPYCACHEPREFIX", "where Python keeps bytecode outside the install"},
    {"NO_COLOR", "no colour, unless --color=always is given"},
    {"LC_ALL, LC_CTYPE, LANG", "marks are plain ASCII unless one of them names UTF-8"},
    {NULL, NULL},
};

const struct sp_command *sp_command_find(const char *name)
{
    for (size_t i = 0; sp_commands[i]; i++)
        if (strcmp(sp_commands[i]->name, name) == 0)
            return sp_commands[i];
    return NULL;
}

const char *sp_exit_text(int status)
{
    for (const struct sp_exit *known = sp_exits; known->status >= 0; known++)
        if (known->status == status)
            return known->when;
    return "";
}
