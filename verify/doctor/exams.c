#include "base/err.h"
#include "verify/doctor/doctor.h"

#include <string.h>

/* ---- filters ---- */

static const char *needs_driver(const struct sp_patient *patient)
{
    return patient->survey->recording.driver.nvml_error ? "no driver" : NULL;
}

static const char *needs_pair(const struct sp_patient *patient)
{
    return patient->survey->topology.gpu_count < 2 ? "fewer than two GPUs" : NULL;
}

static const char *needs_install(const struct sp_patient *patient)
{
    return patient->install ? NULL : patient->no_install ? patient->no_install : "no install";
}

static const char *needs_servers(const struct sp_patient *patient)
{
    return patient->around->server_count == 0 ? "no server runs" : NULL;
}

/* ---- what the topology already says ---- */

static int copy_findings(struct sp_findings *findings, const struct sp_patient *patient, const char *const *prefixes)
{
    const struct sp_findings *from = &patient->survey->findings;
    int rc = SP_OK;

    for (size_t i = 0; i < from->count && rc == SP_OK; i++) {
        const struct sp_finding *is = &from->item[i];
        bool wanted = false;

        for (size_t k = 0; prefixes[k]; k++)
            wanted = wanted || strncmp(is->id, prefixes[k], strlen(prefixes[k])) == 0;
        if (!wanted)
            continue;
        rc = sp_finding_add(findings, is->id, is->level, is->remedy, "%s", is->text);
        if (rc == SP_OK)
            memcpy(findings->item[findings->count - 1].code, is->code, sizeof is->code);
    }
    return rc;
}

#define COPY(name, ...)                                                                                                \
    static int name(struct sp_findings *findings, const struct sp_patient *patient)                                    \
    {                                                                                                                  \
        static const char *const prefixes[] = {__VA_ARGS__, NULL};                                                     \
                                                                                                                       \
        return copy_findings(findings, patient, prefixes);                                                             \
    }

COPY(exam_p2p, "p2p.", "gpu.", "vm.", "display.")
COPY(exam_acs, "acs.")
COPY(exam_iommu, "iommu.")
COPY(exam_bar1, "bar1.")
COPY(exam_links, "link.")
COPY(exam_layout, "topo.", "switch.")

/* ---- the list ---- */

const struct sp_exam sp_exams[] = {
    {"driver", SP_BAD, "the NVIDIA driver: is it there, does it answer", NULL, sp_exam_driver},
    {"toolchain", SP_BAD, "nvcc: is it there, can the driver run what it makes", NULL, sp_exam_toolchain},
    {"devices", SP_BAD, "may this user open the GPUs", NULL, sp_exam_devices},
    {"limits", SP_WARN, "/dev/shm, locked memory, and the flags of a container", NULL, sp_exam_limits},
    {"persistence", SP_WARN, "does the driver stay loaded between processes", needs_driver, sp_exam_persistence},
    {"p2p", SP_WARN, "what the driver says about peer access, and what it is worth", needs_pair, exam_p2p},
    {"acs", SP_BAD, "do bridges between the GPUs redirect", needs_pair, exam_acs},
    {"iommu", SP_BAD, "is the IOMMU off, or does it pass through", needs_pair, exam_iommu},
    {"bar1", SP_WARN, "does BAR1 cover the GPUs' memory", needs_pair, exam_bar1},
    {"links", SP_WARN, "lanes of the GPUs' links", needs_pair, exam_links},
    {"layout", SP_WARN, "sockets, switches, chipset, NUMA nodes", needs_pair, exam_layout},
    {"visible", SP_BAD, "can SGLang read CUDA_VISIBLE_DEVICES", NULL, sp_exam_visible},
    {"settings", SP_WARN, "variables that bypass this all-reduce, or that it cannot read", NULL, sp_exam_settings},
    {"servers", SP_WARN, "command lines of running servers", needs_servers, sp_exam_servers},
    {"access", SP_WARN, "may this user write to the install", needs_install, sp_exam_access},
    {"plugins", SP_WARN, "plugins of SGLang that replace what the patch hooks", needs_install, sp_exam_plugins},
    {"bytecode", SP_BAD, "does bytecode hide a patched file", needs_install, sp_exam_bytecode},
    {"leftovers", SP_WARN, "side files of a write whose journal is gone", needs_install, sp_exam_leftovers},
    {"uv-cache", SP_WARN, "does uv's cache hold SGLang as released", needs_install, sp_exam_uv},
    {NULL, SP_INFO, NULL, NULL, NULL},
};

const struct sp_exam *sp_exam_find(const char *id)
{
    for (const struct sp_exam *exam = sp_exams; exam->id; exam++)
        if (strcmp(exam->id, id) == 0)
            return exam;
    return NULL;
}

enum sp_level_of sp_findings_worst(const struct sp_findings *findings, size_t first)
{
    enum sp_level_of worst = SP_INFO;

    for (size_t i = first; i < findings->count; i++)
        if (findings->item[i].level > worst)
            worst = findings->item[i].level;
    return worst;
}
