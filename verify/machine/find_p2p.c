/*
 * What the driver says about peers, and how much that is worth.
 */
#include "base/err.h"
#include "verify/machine/findings.h"

#include <stdio.h>
#include <string.h>

/* ---- the guest, MIG ---- */

static int find_mig(struct sp_findings *findings, const struct sp_topology *topology)
{
    for (size_t i = 0; i < topology->gpu_count; i++)
        if (topology->gpu[i].is->mig == 1)
            return sp_finding_add(findings, "gpu.mig", SP_WARN, "sudo nvidia-smi -mig 0, with no process on the GPUs",
                                  "GPU %zu is split by MIG: the driver then refuses peer access over PCIe",
                                  topology->gpu[i].number);
    return SP_OK;
}

int sp_find_guest(struct sp_findings *findings, const struct sp_topology *topology)
{
    int rc = SP_OK;

    if (topology->guest)
        rc = sp_finding_add(findings, "vm.guest", SP_WARN, "read them on the host",
                            "this is a virtual machine: BAR, link, ACS and IOMMU readings are about its emulation%s%s",
                            topology->recording->machine.product ? ", " : "",
                            topology->recording->machine.product ? topology->recording->machine.product : "");
    return rc < 0 ? rc : find_mig(findings, topology);
}

/* ---- refusals ---- */

struct refusals {
    const char *code;
    size_t pairs, all;
};

static struct refusals count_refusals(const struct sp_topology *topology, const char *code)
{
    struct refusals refusals = {.code = code};

    for (size_t i = 0; i < topology->gpu_count * topology->gpu_count; i++) {
        const size_t a = i / topology->gpu_count, b = i % topology->gpu_count;

        if (a == b || sp_topology_nvlink(topology, a, b))
            continue;
        refusals.all++;
        refusals.pairs +=
            sp_topology_write(topology, a, b) == SP_GRANT_NO && strcmp(sp_topology_code(topology, a, b), code) == 0;
    }
    return refusals;
}

static const char *meaning(const char *code)
{
    static const char *const texts[][2] = {
        {"CNS", "this host bridge is not one that the driver trusts with peer access"},
        {"GNS", "the host could do it, but the driver bars this GPU model"},
        {"TNS", "the GPUs are on two buses of an old Intel root complex"},
        {"DR", "a registry key of the driver turns it off"},
        {"NS", "two different chips, or a topology that the driver could not read"},
        {"", "CUDA refuses it"},
    };

    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        if (strcmp(texts[i][0], code) == 0)
            return texts[i][1];
    return "unknown reason";
}

static const char *refused_remedy(const char *code)
{
    return strcmp(code, "DR") == 0 ? "grep -rn NVreg_RegistryDwords /etc/modprobe.d"
                                   : "export SGLANG_PCIE_AR_BACKEND=host";
}

static const char *advice(const struct sp_topology *topology, const char *code)
{
    const char *text = "";

    if (strcmp(code, "CNS") == 0 && topology->guest)
        text = "; another driver in the guest does not help, the gate is the emulated host bridge";
    else if (strcmp(code, "DR") == 0)
        text = "; take ForceP2P out of NVreg_RegistryDwords";
    else if (strcmp(code, "GNS") == 0)
        text = "; only a modified kernel module would grant it, and then nothing but a measurement counts";
    return text;
}

static int find_refused(struct sp_findings *findings, const struct sp_topology *topology)
{
    static const char *const codes[] = {"CNS", "GNS", "TNS", "DR", "NS", ""};
    int rc = SP_OK;

    for (size_t i = 0; i < sizeof codes / sizeof *codes && rc == SP_OK; i++) {
        struct refusals refusals = count_refusals(topology, codes[i]);

        if (refusals.pairs == 0)
            continue;
        /* A pair that NVML grants and CUDA refuses has a finding of its own. */
        if (codes[i][0] == '\0' && sp_finding_get(findings, "p2p.cuda-disagrees"))
            continue;
        rc = sp_finding_add(findings, "p2p.refused", SP_WARN, refused_remedy(codes[i]),
                            "the driver refuses peer access on %zu of %zu ordered pairs%s%s: %s%s", refusals.pairs,
                            refusals.all, codes[i][0] ? ", " : "", codes[i], meaning(codes[i]),
                            advice(topology, codes[i]));
        if (rc == SP_OK)
            (void)snprintf(findings->item[findings->count - 1].code, sizeof findings->item[0].code, "%s", codes[i]);
    }
    return rc;
}

/* ---- grants that prove nothing ---- */

static const char *why_forced(const struct sp_topology *topology)
{
    if (topology->guest)
        return "a hypervisor's clique or an override, in a virtual machine";
    if (topology->overridden)
        return "registry keys of the driver";
    return "a modified driver, or one so old that it does not check: today's refuse GeForce cards over PCIe";
}

static int find_forced(struct sp_findings *findings, const struct sp_topology *topology)
{
    const bool forced = sp_topology_forced(topology);

    if (!forced && !topology->overridden && !topology->patched_name)
        return SP_OK;
    if (!forced)
        return sp_finding_add(findings, "p2p.forced", SP_INFO, NULL, "the driver carries peer-to-peer overrides%s%s",
                              topology->overridden ? ": RegistryDwords " : "",
                              topology->overridden ? topology->recording->driver.registry : "");
    return sp_finding_add(findings, "p2p.forced", SP_WARN, "sgl-pcie verify --level 2",
                          "peer access is granted by %s: the grant proves nothing, only data that arrive count",
                          why_forced(topology));
}

static bool nvml_grants(const struct sp_rec_pair *pair)
{
    return pair->write ? strcmp(pair->write, "OK") == 0 : pair->read && strcmp(pair->read, "OK") == 0;
}

static int find_disagreement(struct sp_findings *findings, const struct sp_topology *topology)
{
    size_t refuses = 0, grants = 0;

    for (size_t i = 0; i < topology->gpu_count * topology->gpu_count; i++) {
        const struct sp_rec_pair *pair = topology->pair[i];

        if (!pair || pair->cuda == SP_ABSENT || (!pair->read && !pair->write))
            continue;
        refuses += nvml_grants(pair) && pair->cuda == 0;
        grants += !nvml_grants(pair) && pair->cuda == 1;
    }
    if (refuses + grants == 0)
        return SP_OK;
    return sp_finding_add(findings, "p2p.cuda-disagrees", SP_WARN, NULL,
                          "on %zu ordered pairs NVML says that peer access is %s and CUDA says that it is not: CUDA is "
                          "right",
                          refuses + grants, refuses ? "granted" : "refused");
}

/* ---- chips and CPUs ---- */

static int find_mixed(struct sp_findings *findings, const struct sp_topology *topology)
{
    for (size_t i = 1; i < topology->gpu_count; i++) {
        const struct sp_topo_gpu *one = &topology->gpu[0], *two = &topology->gpu[i];

        if (one->chip == SP_ABSENT || two->chip == SP_ABSENT || one->chip == two->chip)
            continue;
        return sp_finding_add(findings, "p2p.mixed-chips", SP_WARN, "choose GPUs of one chip: --gpus",
                              "GPUs %zu and %zu are different chips (%s, %s): the driver offers no peer access between "
                              "them unless it is forced to",
                              one->number, two->number, one->is->name ? one->is->name : "?",
                              two->is->name ? two->is->name : "?");
    }
    return SP_OK;
}

static bool share_known_switch(const struct sp_topology *topology, size_t a, size_t b)
{
    int at = sp_topology_meet(topology, a, b);

    return at >= 0 && sp_topology_known_switch(topology->pci[at].is);
}

/* The driver itself trusts loads only beneath a switch that it knows, on AMD's Zen, and on one Xeon. */
static int find_read_suspect(struct sp_findings *findings, const struct sp_topology *topology)
{
    const struct sp_rec_machine *machine = &topology->recording->machine;

    if (!machine->cpu_vendor || strcmp(machine->cpu_vendor, "GenuineIntel") != 0 ||
        (machine->family == 6 && machine->model == 143))
        return SP_OK;
    for (size_t i = 0; i < topology->gpu_count * topology->gpu_count; i++) {
        const size_t a = i / topology->gpu_count, b = i % topology->gpu_count;

        if (a == b || sp_topology_nvlink(topology, a, b) || share_known_switch(topology, a, b) ||
            sp_topology_read(topology, a, b) != SP_GRANT_YES)
            continue;
        return sp_finding_add(findings, "p2p.read-suspect", SP_WARN, "sgl-pcie verify --level 2",
                              "loads from a peer may return wrong data through this CPU's root complex (%s, family %jd "
                              "model %jd); stores are a different matter and are judged apart",
                              machine->cpu ? machine->cpu : "Intel", (intmax_t)machine->family,
                              (intmax_t)machine->model);
    }
    return SP_OK;
}

/* ---- displays ---- */

static int find_display(struct sp_findings *findings, const struct sp_topology *topology)
{
    const bool forced = sp_topology_forced(topology);

    for (size_t i = 0; i < topology->gpu_count; i++)
        if (topology->gpu[i].is->display == 1)
            return sp_finding_add(findings, "display.active", forced ? SP_WARN : SP_INFO,
                                  forced ? "move the monitor to another GPU" : NULL, "GPU %zu drives a display%s",
                                  topology->gpu[i].number,
                                  forced ? ", which has broken forced peer access on GeForce cards" : "");
    return SP_OK;
}

int sp_find_p2p(struct sp_findings *findings, const struct sp_topology *topology)
{
    int rc = find_disagreement(findings, topology);

    if (rc == SP_OK)
        rc = find_refused(findings, topology);
    if (rc == SP_OK)
        rc = find_forced(findings, topology);
    if (rc == SP_OK)
        rc = find_mixed(findings, topology);
    if (rc == SP_OK)
        rc = find_read_suspect(findings, topology);
    if (rc == SP_OK)
        rc = find_display(findings, topology);
    return rc;
}
