/*
 * Settings that SGLang is started with: those that send its all-reduces elsewhere, before ours is asked.
 */
#include "base/err.h"
#include "verify/doctor/doctor.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BATCH_FACTOR = 2, BATCH_LARGE = 160 };

/* ---- CUDA_VISIBLE_DEVICES ---- */

/* The numbers that mean the same GPUs. */
static int numbers(struct sp_buf *out, const struct sp_choice *choice)
{
    int rc = sp_buf_append(out, "", 0);

    for (size_t i = 0; i < choice->count && rc == SP_OK; i++)
        rc = sp_buf_printf(out, "%s%zu", i ? "," : "", choice->number[i]);
    return rc;
}

static int find_unread(struct sp_findings *findings, const struct sp_patient *patient, const char *id, const char *what)
{
    const struct sp_choice *choice = &patient->survey->choice;
    struct sp_buf list = SP_BUF_INIT, remedy = SP_BUF_INIT;
    int rc = numbers(&list, choice);

    if (rc == SP_OK)
        rc = choice->count > 0
                 ? sp_buf_printf(&remedy, "export CUDA_DEVICE_ORDER=PCI_BUS_ID CUDA_VISIBLE_DEVICES=%s", list.data)
                 : sp_buf_printf(&remedy, "nvidia-smi -L");
    if (rc == SP_OK)
        rc = sp_finding_add(findings, id, SP_BAD, remedy.data,
                            "CUDA_VISIBLE_DEVICES %s: SGLang's custom all-reduce raises ValueError on it", what);
    sp_buf_free(&list);
    sp_buf_free(&remedy);
    return rc;
}

/* Whole numbers between commas, as Python's int() reads them; SGLang skips a variable that is set to nothing. */
static bool has_numbers(const char *list)
{
    bool good = true;

    for (const char *at = list; good && at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL) {
        const char *digits = at + strspn(at, " \t\n");
        size_t len;

        digits += *digits == '-' || *digits == '+';
        len = strspn(digits, "0123456789");
        good = len > 0 && strchr(",", digits[len + strspn(digits + len, " \t\n")]);
    }
    return good || *list == '\0';
}

int sp_exam_visible(struct sp_findings *findings, const struct sp_patient *patient)
{
    const char *visible = sp_env_value(patient->around->env, "CUDA_VISIBLE_DEVICES");
    int rc = SP_OK;

    if (!visible)
        return SP_OK;
    if (strstr(visible, "MIG-"))
        return sp_finding_add(
            findings, "visible.mig", SP_BAD, "sudo nvidia-smi -mig 0",
            "CUDA_VISIBLE_DEVICES names MIG instances, between which there is no peer access: it takes whole GPUs");
    if (strstr(visible, "GPU-"))
        rc = find_unread(findings, patient, "visible.uuid", "names GPUs by UUID");
    else if (!has_numbers(visible))
        rc = find_unread(findings, patient, "visible.numbers", "is no list of numbers");
    if (rc == SP_OK && patient->survey->choice.reordered)
        rc = sp_finding_add(findings, "visible.order", SP_WARN, "export CUDA_DEVICE_ORDER=PCI_BUS_ID",
                            "GPUs of several kinds: CUDA numbers the fastest first, everything else by the bus");
    return rc;
}

/* ---- variables ---- */

struct variable {
    const char *name, *id, *value; /* value: what it must be, NULL: anything true */
    enum sp_level_of level;
    const char *text;
};

static const struct variable variables[] = {
    {"SGLANG_ENABLE_PCIE_IPC_ALLREDUCE", "bypass.pcie-ipc", NULL, SP_INFO,
     "SGLang's own PCIe all-reduce (FlashInfer) is asked after this one: it serves what this one leaves to stock"},
    {"SGLANG_OPT_USE_CUSTOM_ALL_REDUCE_V2", "bypass.v2", NULL, SP_INFO,
     "SGLang's V2 all-reduce is asked for; over PCIe it stays closed, and this one is used"},
    {"SGLANG_USE_JIT_ALL_REDUCE", "bypass.v2", NULL, SP_INFO,
     "SGLang's V2 all-reduce is asked for; over PCIe it stays closed, and this one is used"},
    {"SGLANG_HOST_STAGED_ALLREDUCE", "bypass.host-staged", NULL, SP_WARN,
     "an all-reduce through host memory is on: it is asked before this one"},
    {"NCCL_P2P_DISABLE", "settings.nccl-p2p", NULL, SP_INFO,
     "NCCL does without peer access; this all-reduce does not read that variable"},
    {"CUDA_LAUNCH_BLOCKING", "settings.launch-blocking", NULL, SP_WARN,
     "every kernel is waited for: nothing that is measured here means anything"},
    {"SGLANG_FORCE_CUSTOM_AR_PCIE", "settings.stock", "0", SP_INFO, "the flag is 0: SGLang behaves as stock"},
    {"SGLANG_FORCE_CUSTOM_AR_PCIE", "settings.unsafe", "unsafe", SP_WARN,
     "the flag is unsafe: the all-reduce is used without proof"},
};

static bool is_true(const char *value)
{
    return *value && strcmp(value, "0") != 0 && strcasecmp(value, "false") != 0 && strcasecmp(value, "no") != 0 &&
           strcasecmp(value, "off") != 0;
}

static int find_variables(struct sp_findings *findings, char *const *env, const char *where)
{
    int rc = SP_OK;

    for (size_t i = 0; i < sizeof variables / sizeof *variables && rc == SP_OK; i++) {
        const struct variable *is = &variables[i];
        const char *value = sp_env_value(env, is->name);
        char remedy[64];

        if (!value || !(is->value ? strcmp(value, is->value) == 0 : is_true(value)))
            continue;
        (void)snprintf(remedy, sizeof remedy, "unset %s", is->name);
        rc = sp_finding_add(findings, is->id, is->level, remedy, "%s%s=%s: %s", where, is->name, value, is->text);
    }
    return rc;
}

/* What patched SGLang reads and cannot make sense of: a line in its log is all that says so. */
struct own_variable {
    const char *name, *id, *remedy;
    const char *known[5]; /* the words that it may be; none: what is good */
    bool (*good)(const char *value);
    const char *is_not; /* what any other value is */
    const char *then;   /* what comes of it */
};

static bool is_seconds(const char *text)
{
    char *end;
    const double seconds = strtod(text, &end);

    return *text && text[strspn(text, "0123456789.eE+-")] == '\0' && *end == '\0' && seconds > 0 && seconds < 1e6;
}

/* Set to nothing is as good as unset: python/sgl_pcie/state.py. */
static bool is_place(const char *text)
{
    return *text == '/' || *text == '\0';
}

/* As the patched constructor reads it (scripts/patch-kernel.py). */
static bool is_limits(const char *text)
{
    const size_t one = strspn(text, "0123456789"), two = text[one] ? strspn(text + one + 1, "0123456789") : 0;

    return one > 0 && text[one] == ',' && two > 0 && text[one + 1 + two] == '\0';
}

static const char stock[] = "SGLang behaves as stock";

static const struct own_variable own[] = {
    {"SGLANG_FORCE_CUSTOM_AR_PCIE",
     "settings.flag",
     "export SGLANG_FORCE_CUSTOM_AR_PCIE=1",
     {"0", "1", "unsafe", NULL},
     NULL,
     "none of 0, 1, unsafe",
     stock},
    {"SGLANG_PCIE_AR_BACKEND",
     "settings.backend",
     "unset SGLANG_PCIE_AR_BACKEND",
     {"auto", "peer", "host", "upstream", NULL},
     NULL,
     "none of auto, peer, host, upstream",
     stock},
    {"SGLANG_PCIE_AR_TIMEOUT_S",
     "settings.timeout",
     "unset SGLANG_PCIE_AR_TIMEOUT_S",
     {NULL},
     is_seconds,
     "no number of seconds above 0",
     stock},
    {"SGL_PCIE_STATE",
     "settings.state",
     "a path that begins with /, or unset SGL_PCIE_STATE",
     {NULL},
     is_place,
     "no path from the root",
     stock},
    {"SGLANG_PCIE_UPSTREAM_LIMITS",
     "settings.limits",
     "unset SGLANG_PCIE_UPSTREAM_LIMITS",
     {NULL},
     is_limits,
     "not two numbers of bytes as ONE,TWO",
     "SGLang's own all-reduce, if patched, refuses to start"},
};

static bool is_known(const struct own_variable *is, const char *value)
{
    bool known = is->good && is->good(value);

    for (size_t i = 0; is->known[i]; i++)
        known = known || strcmp(value, is->known[i]) == 0;
    return known;
}

int sp_find_odd(struct sp_findings *findings, char *const *env, const char *where)
{
    int rc = SP_OK;

    for (size_t i = 0; i < sizeof own / sizeof *own && rc == SP_OK; i++) {
        const char *value = sp_env_value(env, own[i].name);

        if (value && !is_known(&own[i], value))
            rc = sp_finding_add(findings, own[i].id, SP_WARN, own[i].remedy, "%s%s is '%s', %s: %s", where, own[i].name,
                                value, own[i].is_not, own[i].then);
    }
    return rc;
}

/* Is the SGLang of the first folder that has one, of these with ":" between, another than this? */
static bool is_elsewhere(const char *path, const char *root)
{
    char folder[PATH_MAX], package[PATH_MAX + sizeof "/sglang"], *real = NULL;
    bool other;

    while (*path && !real) {
        const size_t len = strcspn(path, ":");

        (void)snprintf(folder, sizeof folder, "%.*s", len ? (int)len : 1, len ? path : ".");
        (void)snprintf(package, sizeof package, "%s/sglang", folder);
        if (sp_is_folder(package))
            real = realpath(folder, NULL);
        path += len + (path[len] == ':');
    }
    other = real && strcmp(real, root) != 0;
    free(real);
    return other;
}

/* We ask an interpreter without it: the install is the same for every shell and service. */
static int find_pythonpath(struct sp_findings *findings, const struct sp_patient *patient)
{
    const char *path = sp_env_value(patient->around->env, "PYTHONPATH");

    if (!path || !patient->install || !is_elsewhere(path, patient->install->root))
        return SP_OK;
    return sp_finding_add(findings, "settings.pythonpath", SP_WARN, "unset PYTHONPATH",
                          "PYTHONPATH leads to another SGLang: what is started in this shell imports that one");
}

int sp_exam_settings(struct sp_findings *findings, const struct sp_patient *patient)
{
    int rc = find_variables(findings, patient->around->env, "");

    if (rc == SP_OK)
        rc = find_pythonpath(findings, patient);
    return rc < 0 ? rc : sp_find_odd(findings, patient->around->env, "");
}

/* ---- command lines ---- */

struct option {
    const char *name, *id;
    enum sp_level_of level;
    const char *text;
};

/* In which order SGLang asks was read in its released wheels, 0.4.9 to 0.5.23. */
static const struct option server_options[] = {
    {"--disable-custom-all-reduce", "bypass.disabled", SP_WARN, "no custom all-reduce at all, ours included"},
    {"--enable-symm-mem", "bypass.symm-mem", SP_WARN,
     "up to SGLang 0.5.16 NCCL's symmetric memory is asked before it, from 0.5.17 on after it"},
    {"--enable-mscclpp", "bypass.mscclpp", SP_WARN,
     "from SGLang 0.5.14 on MSCCL++ is asked before it, for small sizes"},
    {"--enable-flashinfer-allreduce-fusion", "bypass.flashinfer", SP_WARN,
     "FlashInfer does the all-reduce together with the norm"},
    {"--flashinfer-allreduce-fusion-backend", "bypass.flashinfer", SP_WARN,
     "FlashInfer does the all-reduce together with the norm"},
    {"--enable-deterministic-inference", "bypass.deterministic", SP_WARN,
     "SGLang turns every custom all-reduce off in this mode"},
    {"--enable-torch-symm-mem", "bypass.torch-symm-mem", SP_INFO,
     "torch's symmetric memory is asked after it, for what it leaves to stock"},
};

static int find_options(struct sp_findings *findings, const struct sp_server *server)
{
    int rc = SP_OK;

    for (size_t i = 0; i < sizeof server_options / sizeof *server_options && rc == SP_OK; i++) {
        const struct option *is = &server_options[i];
        char remedy[96];

        if (!sp_argv_value(server->argv, is->name))
            continue;
        (void)snprintf(remedy, sizeof remedy, "start it without %s", is->name);
        rc = sp_finding_add(findings, is->id, is->level, remedy, "pid %jd has %s: %s", (intmax_t)server->pid, is->name,
                            is->text);
    }
    return rc;
}

static long number_of(char *const *argv, const char *option)
{
    const char *text = sp_argv_value(argv, option);

    return text && *text ? strtol(text, NULL, 10) : 0;
}

/* Graphs for batches that never come take memory from the KV cache. */
static int find_graphs(struct sp_findings *findings, const struct sp_server *server)
{
    const char *option = sp_argv_value(server->argv, "--cuda-graph-max-bs")
                             ? "--cuda-graph-max-bs"
                             : "--cuda-graph-max-bs-decode"; /* its new name */
    const long batch = number_of(server->argv, option), running = number_of(server->argv, "--max-running-requests");
    char remedy[96];

    if (batch <= 0)
        return SP_OK;
    if (running > 0 && batch > BATCH_FACTOR * running) {
        (void)snprintf(remedy, sizeof remedy, "%s %ld", option, running);
        return sp_finding_add(findings, "servers.graphs", SP_WARN, remedy,
                              "pid %jd captures graphs up to batch %ld and runs %ld requests at most: their memory is "
                              "taken from the KV cache",
                              (intmax_t)server->pid, batch, running);
    }
    if (running <= 0 && batch > BATCH_LARGE)
        return sp_finding_add(findings, "servers.graphs", SP_INFO,
                              "compare with #running-req in its log, and lower that option to what is in use",
                              "pid %jd captures graphs up to batch %ld: if fewer requests run at once, their memory is "
                              "missing from the KV cache",
                              (intmax_t)server->pid, batch);
    return SP_OK;
}

int sp_exam_servers(struct sp_findings *findings, const struct sp_patient *patient)
{
    int rc = SP_OK;

    for (size_t i = 0; i < patient->around->server_count && rc == SP_OK; i++) {
        const struct sp_server *server = &patient->around->server[i];
        char where[48], inside[48];

        (void)snprintf(where, sizeof where, "pid %jd has ", (intmax_t)server->pid);
        (void)snprintf(inside, sizeof inside, "in pid %jd ", (intmax_t)server->pid);
        rc = find_options(findings, server);
        if (rc == SP_OK)
            rc = find_graphs(findings, server);
        if (rc == SP_OK)
            rc = find_variables(findings, server->env, where);
        if (rc == SP_OK)
            rc = sp_find_odd(findings, server->env, inside);
        if (rc == SP_OK && sp_env_value(server->env, "CUDA_VISIBLE_DEVICES") &&
            strstr(sp_env_value(server->env, "CUDA_VISIBLE_DEVICES"), "GPU-"))
            rc = sp_finding_add(findings, "visible.uuid", SP_WARN, "start it with numbers in CUDA_VISIBLE_DEVICES",
                                "pid %jd has UUIDs in CUDA_VISIBLE_DEVICES: its custom all-reduce raised ValueError",
                                (intmax_t)server->pid);
    }
    return rc;
}
