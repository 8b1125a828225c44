/*
 * ACS, the IOMMU and BAR1: what the platform does with a peer's access, and the command that changes it here.
 */
#include "base/err.h"
#include "verify/machine/findings.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the kernel's command line, as this distribution edits it ---- */

static bool names(const char *list, const char *word)
{
    return list && strstr(list, word);
}

/* To be freed by the caller; NULL without memory. */
static char *add_option(const struct sp_topology *topology, const char *option)
{
    const struct sp_rec_machine *machine = &topology->recording->machine;
    const char *id = machine->distribution, *like = machine->distribution_like;
    char *text = NULL;
    int len;

    if (names(id, "fedora") || names(id, "rhel") || names(like, "rhel") || names(like, "fedora"))
        len = asprintf(&text, "sudo grubby --update-kernel=ALL --args='%s' && sudo reboot", option);
    else if (names(id, "debian") || names(id, "ubuntu") || names(like, "debian"))
        len = asprintf(&text,
                       "sudo sed -i 's|^GRUB_CMDLINE_LINUX=\"|&%s |' /etc/default/grub && sudo update-grub && sudo "
                       "reboot",
                       option);
    else
        len = asprintf(&text, "add %s to the kernel's command line and boot again", option);
    return len < 0 ? NULL : text;
}

/* ---- ACS ---- */

struct acs {
    size_t bridges, redirecting, unknown;
    struct sp_buf list;   /* "10:01.1 001d at 2a0, …" */
    struct sp_buf setpci; /* names for the command */
};

/* Domain 0 is what everybody leaves out, setpci too. */
static const char *short_name(const char *bdf)
{
    return strncmp(bdf, "0000:", 5) == 0 ? bdf + 5 : bdf;
}

static int note_redirect(struct acs *acs, const struct sp_rec_pci *pci)
{
    const char *name = short_name(pci->bdf);
    int rc = sp_buf_printf(&acs->list, "%s%s %04jx", acs->redirecting++ ? ", " : "", name, (intmax_t)pci->acs);

    if (rc == SP_OK && pci->acs_offset >= 0)
        rc = sp_buf_printf(&acs->list, " at %jx", (intmax_t)pci->acs_offset + 6);
    return rc < 0 ? rc : sp_buf_printf(&acs->setpci, " %s", name);
}

static int read_acs(struct acs *acs, const struct sp_topology *topology)
{
    int rc = SP_OK;

    for (size_t i = 0; i < topology->pci_count && rc == SP_OK; i++) {
        const struct sp_rec_pci *pci = topology->pci[i].is;

        if (!sp_topology_between(topology, i))
            continue;
        acs->bridges++;
        acs->unknown += pci->acs == SP_ABSENT;
        if (pci->acs >= 0 && (pci->acs & SP_ACS_REDIRECT))
            rc = note_redirect(acs, pci);
    }
    return rc;
}

static int find_redirect(struct sp_findings *findings, const struct sp_topology *topology, const struct acs *acs)
{
    const bool translated = topology->iommu == SP_IOMMU_TRANSLATED;
    struct sp_buf remedy = SP_BUF_INIT;
    int rc = sp_buf_printf(&remedy,
                           "for b in%s; do sudo setpci -s $b ECAP_ACS+6.w=0:c; done # again after each boot; "
                           "not where GPUs are passed to guests",
                           acs->setpci.data);

    if (rc == SP_OK)
        rc = sp_finding_add(findings, "acs.redirect", translated ? SP_BAD : SP_WARN, remedy.data,
                            "ACS redirects what GPUs send each other on %zu of %zu bridges, %s; control words: %s",
                            acs->redirecting, acs->bridges,
                            translated ? "and with a translating IOMMU peers hang or their data is lost"
                                       : "so that traffic goes up to the root complex and down again",
                            acs->list.data);
    sp_buf_free(&remedy);
    return rc;
}

static int find_unknown(struct sp_findings *findings, const struct sp_topology *topology, const struct acs *acs)
{
    if (acs->unknown == 0)
        return SP_OK;
    if (sp_topology_refused(topology))
        return sp_finding_add(findings, "acs.unknown", SP_INFO, NULL,
                              "ACS of %zu of %zu bridges cannot be read without root; it does not matter while peer "
                              "access is refused",
                              acs->unknown, acs->bridges);
    return sp_finding_add(findings, "acs.unknown", SP_INFO, "sudo sgl-pcie verify --level 1",
                          "ACS of %zu of %zu bridges cannot be read without root: not known, which is not the same as "
                          "off",
                          acs->unknown, acs->bridges);
}

static int find_acs(struct sp_findings *findings, const struct sp_topology *topology)
{
    struct acs acs = {0, 0, 0, SP_BUF_INIT, SP_BUF_INIT};
    int rc = read_acs(&acs, topology);

    /* Without peer access nothing is redirected, and clearing it would change nothing. */
    if (rc == SP_OK && acs.redirecting > 0 && !sp_topology_refused(topology))
        rc = find_redirect(findings, topology, &acs);
    if (rc == SP_OK)
        rc = find_unknown(findings, topology, &acs);
    sp_buf_free(&acs.list);
    sp_buf_free(&acs.setpci);
    return rc;
}

/* ---- the IOMMU ---- */

static int find_iommu(struct sp_findings *findings, const struct sp_topology *topology)
{
    const bool hang = sp_finding_get(findings, "acs.redirect") != NULL;
    char *remedy;
    int rc;

    if (topology->iommu != SP_IOMMU_TRANSLATED)
        return SP_OK;
    remedy = add_option(topology, "iommu=pt");
    rc = sp_finding_add(findings, "iommu.translated", hang ? SP_BAD : SP_WARN, remedy,
                        "the IOMMU translates what the GPUs address (%s)%s",
                        topology->recording->machine.cpu_vendor &&
                                strcmp(topology->recording->machine.cpu_vendor, "GenuineIntel") == 0
                            ? "VT-d"
                            : "AMD-Vi",
                        hang ? ": together with ACS redirect this is the classic hang"
                             : ": GPUs have died of it under load, with and without peer access");
    free(remedy);
    return rc;
}

int sp_find_platform(struct sp_findings *findings, const struct sp_topology *topology)
{
    int rc = SP_OK;

    /* A guest's bridges and its IOMMU are emulated, and clearing ACS on the host would merge groups. */
    if (topology->guest || !sp_topology_pcie(topology))
        return SP_OK;
    rc = find_acs(findings, topology);
    return rc < 0 ? rc : find_iommu(findings, topology);
}

/* ---- BAR1 ---- */

static int64_t mib(int64_t bytes)
{
    return bytes >> 20;
}

static const char *bar1_remedy(const struct sp_topology *topology)
{
    if (topology->guest)
        return "on the host: Above 4G Decoding and Re-Size BAR in the BIOS";
    return "Above 4G Decoding and Re-Size BAR Support in the BIOS; then look for \"can't assign; no space\" in dmesg; "
           "then a newer VBIOS (lspci -vv: \"supported:\" must list more than 256MB)";
}

/* Only the path that goes through BAR1 needs it to cover everything, and that path is the forced one. */
static enum sp_level_of bar1_level(const struct sp_topology *topology)
{
    return sp_topology_forced(topology) && !topology->guest ? SP_WARN : SP_INFO;
}

static int find_small(struct sp_findings *findings, const struct sp_topology *topology)
{
    const enum sp_level_of level = bar1_level(topology);
    struct sp_buf list = SP_BUF_INIT;
    int rc = SP_OK;

    for (size_t i = 0; i < topology->gpu_count && rc == SP_OK; i++) {
        const struct sp_topo_gpu *gpu = &topology->gpu[i];

        if (gpu->bar1 > 0 && gpu->memory > 0 && mib(gpu->bar1) < mib(gpu->memory))
            rc = sp_buf_printf(&list, "%sGPU %zu %jd of %jd MiB", list.len ? ", " : "", gpu->number,
                               (intmax_t)mib(gpu->bar1), (intmax_t)mib(gpu->memory));
    }
    if (rc == SP_OK && list.len > 0)
        rc = sp_finding_add(findings, "bar1.small", level, level == SP_WARN ? bar1_remedy(topology) : NULL,
                            "BAR1 does not cover the memory: %s%s", list.data,
                            level == SP_WARN ? "; forced peer access needs all of it" : "");
    sp_buf_free(&list);
    return rc;
}

static int find_uneven(struct sp_findings *findings, const struct sp_topology *topology)
{
    const enum sp_level_of level = bar1_level(topology);

    for (size_t i = 1; i < topology->gpu_count; i++) {
        const struct sp_topo_gpu *one = &topology->gpu[0], *two = &topology->gpu[i];

        if (one->bar1 <= 0 || two->bar1 <= 0 || one->bar1 == two->bar1 || one->memory != two->memory)
            continue;
        return sp_finding_add(findings, "bar1.uneven", level, level == SP_WARN ? bar1_remedy(topology) : NULL,
                              "BAR1 differs between GPUs of one size: GPU %zu has %jd MiB, GPU %zu has %jd MiB",
                              one->number, (intmax_t)mib(one->bar1), two->number, (intmax_t)mib(two->bar1));
    }
    return SP_OK;
}

int sp_find_bar1(struct sp_findings *findings, const struct sp_topology *topology)
{
    int rc;

    if (!sp_topology_pcie(topology))
        return SP_OK;
    rc = find_small(findings, topology);
    return rc < 0 ? rc : find_uneven(findings, topology);
}
