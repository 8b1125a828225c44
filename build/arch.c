#include "build/arch.h"
#include "base/err.h"
#include "verify/machine/nvml.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { QUERY_SECONDS = 60, OUTPUT_MAX = 1 << 16 };

/* ---- lists ---- */

static bool has(const struct sp_archs *archs, unsigned number)
{
    bool found = false;

    for (size_t i = 0; i < archs->count && !found; i++)
        found = archs->number[i] == number;
    return found;
}

static void add(struct sp_archs *archs, unsigned number)
{
    size_t at = archs->count;

    if (has(archs, number) || archs->count == SP_ARCHS_MAX)
        return;
    for (; at > 0 && archs->number[at - 1] > number; at--)
        archs->number[at] = archs->number[at - 1];
    archs->number[at] = number;
    archs->count++;
}

void sp_archs_text(char out[SP_ARCH_TEXT], const struct sp_archs *archs)
{
    size_t used = 0;

    out[0] = '\0';
    for (size_t i = 0; i < archs->count && used < SP_ARCH_TEXT; i++)
        used += (size_t)snprintf(out + used, SP_ARCH_TEXT - used, "%ssm_%u", i ? "," : "", archs->number[i]);
}

/* "sm_90" and nothing after it. */
static bool parse_name(unsigned *out, const char *text, size_t len)
{
    char *end, copy[16];

    if (len < 5 || len >= sizeof copy || strncmp(text, "sm_", 3) != 0 || text[3] < '1' || text[3] > '9')
        return false;
    memcpy(copy, text, len);
    copy[len] = '\0';
    *out = (unsigned)strtoul(copy + 3, &end, 10);
    return *end == '\0';
}

/* ---- nvcc ---- */

int sp_archs_known(struct sp_archs *out, const struct sp_toolchain *tools, unsigned oldest)
{
    const char *const argv[] = {tools->nvcc, "--list-gpu-code", NULL};
    const struct sp_proc_options options = {.seconds = QUERY_SECONDS, .output_max = OUTPUT_MAX};
    struct sp_proc_result result;
    int rc = sp_proc_run_ok(&result, argv, &options);

    *out = (struct sp_archs){.count = 0};
    if (rc < 0)
        (void)sp_err_hint(rc, "name another nvcc with SGL_PCIE_NVCC");
    for (const char *line = rc == 0 ? result.out.data : ""; *line;) {
        size_t len = strcspn(line, "\n");
        unsigned number;

        if (parse_name(&number, line, len) && number >= oldest)
            add(out, number);
        line += len + (line[len] == '\n');
    }
    sp_proc_free(&result);
    if (rc == 0 && out->count == 0)
        rc = sp_err_hint(sp_err(SP_ECANNOT, "nvcc %s ('%s') knows no architecture from sm_%u on", tools->nvcc_version,
                                tools->nvcc, oldest),
                         "name a newer nvcc with SGL_PCIE_NVCC");
    return rc;
}

/* ---- the GPUs that are here ---- */

struct answer {
    struct sp_gpus gpus;
    bool mute; /* the driver cannot say what the GPU of this number can do */
    unsigned number;
};

static void read_gpus(struct answer *out, const struct sp_nvml *nvml)
{
    const int64_t cuda = sp_nvml_cuda(nvml);

    out->gpus.driver = true;
    out->gpus.cuda_major = cuda == SP_ABSENT ? 0 : (unsigned)(cuda / 1000);
    for (unsigned i = 0; i < sp_nvml_count(nvml) && !out->mute; i++) {
        int64_t major, minor;

        sp_nvml_capability(nvml, i, &major, &minor);
        out->mute = major == SP_ABSENT;
        out->number = i;
        if (!out->mute)
            add(&out->gpus.archs, (unsigned)(10 * major + minor));
    }
}

/* In the child. */
static void ask_nvml(int fd, const void *context)
{
    struct answer answer = {.mute = false};
    struct sp_nvml *nvml;

    (void)context;
    if (sp_nvml_open(&nvml) == 0)
        read_gpus(&answer, nvml);
    (void)sp_write_all(fd, &answer, sizeof answer, "what NVML says");
}

int sp_gpus_find(struct sp_gpus *out, bool needed)
{
    struct sp_buf bytes = SP_BUF_INIT;
    struct answer answer = {.mute = false};
    int rc = sp_nvml_ask(&bytes, ask_nvml, NULL);

    if (rc < 0)
        rc = sp_err_wrap(rc, "NVML does not say which GPUs are here");
    else if (bytes.len == sizeof answer)
        memcpy(&answer, bytes.data, sizeof answer);
    if (rc == 0 && answer.mute)
        rc = sp_err(SP_ECANNOT, "the driver cannot say what GPU %u can do: name its architecture", answer.number);
    if (rc < 0 && !needed) {
        sp_err_clear();
        rc = 0;
    }
    *out = answer.gpus;
    sp_buf_free(&bytes);
    return rc;
}

/* ---- the choice ---- */

static int unknown(const char *name, size_t len, const struct sp_archs *known, const struct sp_toolchain *tools)
{
    char text[SP_ARCH_TEXT];

    sp_archs_text(text, known);
    sp_err(SP_EUSAGE, "nvcc %s does not know the architecture '%.*s'; it knows %s", tools->nvcc_version, (int)len, name,
           text);
    return sp_err_hint(SP_EUSAGE, "--arch with some of these, or all; a newer GPU needs a newer nvcc");
}

int sp_archs_check(const char *list)
{
    const char *next = strcmp(list, "all") == 0 ? NULL : list;
    int rc = 0;

    while (next != NULL && rc == 0) {
        const size_t len = strcspn(next, ",");
        unsigned number;

        if (!parse_name(&number, next, len))
            rc = sp_err_hint(sp_err(SP_EUSAGE, "'%.*s' is no architecture", (int)len, next),
                             "--arch with names as sm_90,sm_120, or all");
        next = next[len] ? next + len + 1 : NULL;
    }
    return rc;
}

static int parse_list(struct sp_archs *out, const char *list, const struct sp_archs *known,
                      const struct sp_toolchain *tools)
{
    int rc = 0;

    while (list != NULL && rc == 0) {
        size_t len = strcspn(list, ",");
        unsigned number;

        if (parse_name(&number, list, len) && has(known, number))
            add(out, number);
        else
            rc = unknown(list, len, known, tools);
        list = list[len] ? list + len + 1 : NULL;
    }
    return rc;
}

static int take_present(struct sp_archs *out, const struct sp_archs *known, const struct sp_gpus *gpus,
                        const struct sp_toolchain *tools)
{
    int rc = 0;

    if (gpus->archs.count == 0) {
        sp_err(SP_ECANNOT, "%s, so there is no telling what to compile for",
               gpus->driver ? "the driver sees no GPU" : "no NVIDIA driver is here");
        return sp_err_hint(SP_ECANNOT,
                           "--arch with what the GPUs will be: sm_80 A100, sm_86 RTX 3090 and A6000, sm_89 RTX "
                           "4090 and L40S, sm_90 H100, sm_120 RTX 5090 and RTX PRO 6000; or --arch all");
    }
    for (size_t i = 0; i < gpus->archs.count && rc == 0; i++) {
        if (has(known, gpus->archs.number[i])) {
            add(out, gpus->archs.number[i]);
        } else {
            sp_err(SP_ECANNOT, "nvcc %s ('%s') cannot compile for a GPU of this machine, sm_%u", tools->nvcc_version,
                   tools->nvcc, gpus->archs.number[i]);
            rc = sp_err_hint(SP_ECANNOT, "a newer nvcc, named with SGL_PCIE_NVCC; or --arch without that GPU");
        }
    }
    return rc;
}

int sp_archs_choose(struct sp_archs *out, const char *list, const struct sp_archs *known, const struct sp_gpus *gpus,
                    const struct sp_toolchain *tools)
{
    int rc = 0;

    *out = (struct sp_archs){.count = 0};
    if (list == NULL)
        rc = take_present(out, known, gpus, tools);
    else if (strcmp(list, "all") == 0)
        *out = *known;
    else
        rc = parse_list(out, list, known, tools);
    return rc;
}
