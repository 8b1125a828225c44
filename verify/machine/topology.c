#include "verify/machine/topology.h"
#include "base/err.h"

#include <stdlib.h>
#include <string.h>

enum { CLASS_BRIDGE = 0x0604, INTEL = 0x8086, AMD = 0x1022, ASMEDIA = 0x1b21 };

/* ---- the tree ---- */

static int index_of(const struct sp_recording *recording, const char *bdf)
{
    const struct sp_rec_pci *pci = sp_recording_pci(recording, bdf);

    return pci ? (int)(pci - recording->pci) : -1;
}

/* Slots behind the chipset: on AMD it is a switch of AMD's or ASMedia's make, on Intel a root port of the PCH, which
 * are devices 1b to 1d of bus 0. */
static bool is_chipset(const struct sp_rec_pci *pci, bool root_port)
{
    unsigned device = (unsigned)strtoul(pci->bdf + strlen(pci->bdf) - 4, NULL, 16);
    bool bus0 = strcmp(strchr(pci->parent, ':') ? strrchr(pci->parent, ':') : "", ":00") == 0;

    if (root_port)
        return pci->vendor == INTEL && bus0 && device >= 0x1b && device <= 0x1d;
    return pci->class != SP_ABSENT && pci->class >> 8 == CLASS_BRIDGE && (pci->vendor == AMD || pci->vendor == ASMEDIA);
}

static void place(struct sp_topology *topology, size_t index)
{
    struct sp_topo_pci *pci = &topology->pci[index];

    pci->is = &topology->recording->pci[index];
    pci->parent = index_of(topology->recording, pci->is->parent);
    pci->root = (int)index;
    if (pci->parent >= 0) {
        const struct sp_topo_pci *parent = &topology->pci[pci->parent]; /* listed before, so placed */

        pci->root = parent->root;
        pci->depth = parent->depth + 1;
        pci->chipset = parent->chipset;
    }
    pci->chipset = pci->chipset || is_chipset(pci->is, pci->depth == 0);
}

bool sp_topology_above(const struct sp_topology *topology, int bridge, int pci)
{
    while (pci >= 0 && pci != bridge)
        pci = topology->pci[pci].parent;
    return bridge >= 0 && pci == bridge;
}

/* ---- links ---- */

static double gt_of(int64_t generation)
{
    static const double speeds[] = {-1, 2.5, 5, 8, 16, 32, 64};

    return generation >= 1 && generation <= 6 ? speeds[generation] : -1;
}

static double lower(double a, double b)
{
    return a < 0 || (b >= 0 && b < a) ? b : a;
}

static int64_t fewer(int64_t a, int64_t b)
{
    return a < 0 || (b >= 0 && b < a) ? b : a;
}

static double higher(double a, double b)
{
    return a > b ? a : b;
}

static int64_t known(int64_t first, int64_t second)
{
    return first != SP_ABSENT ? first : second;
}

static void read_link(struct sp_topo_link *link, const struct sp_topology *topology, const struct sp_topo_gpu *gpu)
{
    const struct sp_rec_pci *end = gpu->pci >= 0 ? topology->pci[gpu->pci].is : NULL;

    link->speed = end && end->speed >= 0 ? end->speed : gt_of(gpu->is->generation);
    link->width = end ? known(end->width, gpu->is->width) : gpu->is->width;
    link->gpu_speed = higher(end ? end->max_speed : -1, gt_of(gpu->is->gpu_max_generation));
    link->gpu_width = end ? known(end->max_width, gpu->is->max_width) : gpu->is->max_width;
    link->possible_speed = lower(link->gpu_speed, gt_of(gpu->is->max_generation));
    link->possible_width = fewer(link->gpu_width, gpu->is->max_width);
    /* A GPU's own limit says nothing about the slot: every link up to the root port counts. */
    for (int at = gpu->parent; at >= 0; at = topology->pci[at].parent) {
        const struct sp_rec_pci *port = topology->pci[at].is;

        link->possible_speed = lower(link->possible_speed, port->max_speed);
        link->possible_width = fewer(link->possible_width, port->max_width);
        link->port_known = link->port_known || (at == gpu->parent && port->max_width > 0);
    }
}

/* ---- GPUs ---- */

static int64_t socket_of(const struct sp_recording *recording, int64_t numa)
{
    for (size_t i = 0; i < recording->node_count; i++)
        if (recording->nodes[i].node == numa)
            return recording->nodes[i].socket;
    return SP_ABSENT;
}

/* Sockets of a machine that has one. */
static int64_t only_socket(const struct sp_recording *recording)
{
    int64_t socket = recording->node_count > 0 ? recording->nodes[0].socket : SP_ABSENT;

    for (size_t i = 1; i < recording->node_count; i++)
        if (recording->nodes[i].socket != socket)
            return SP_ABSENT;
    return socket;
}

static void place_gpu(struct sp_topology *topology, struct sp_topo_gpu *gpu, size_t number)
{
    const struct sp_recording *recording = topology->recording;
    const struct sp_rec_pci *pci;

    gpu->is = &recording->gpus[number];
    gpu->number = number;
    gpu->pci = index_of(recording, gpu->is->bdf);
    gpu->parent = gpu->pci >= 0 ? topology->pci[gpu->pci].parent : -1;
    gpu->uplink = gpu->parent >= 0 ? topology->pci[gpu->pci].root : -1;
    pci = gpu->pci >= 0 ? topology->pci[gpu->pci].is : NULL;
    gpu->numa = pci ? pci->numa : SP_ABSENT;
    gpu->socket = gpu->numa >= 0 ? socket_of(recording, gpu->numa) : only_socket(recording);
    gpu->bar1 = known(gpu->is->bar1, pci ? pci->bar1 : SP_ABSENT);
    gpu->memory = gpu->is->memory;
    /* The upper bits of the device id are the chip: GB202 is 2b80 to 2bff, whatever the card is called. */
    gpu->chip = known(gpu->is->device, pci ? pci->device : SP_ABSENT);
    gpu->chip = gpu->chip == SP_ABSENT ? SP_ABSENT : gpu->chip >> 7;
    gpu->geforce = gpu->is->name && (strstr(gpu->is->name, "GeForce") || strstr(gpu->is->name, "TITAN"));
    read_link(&gpu->link, topology, gpu);
    for (int at = gpu->pci; at >= 0; at = topology->pci[at].parent)
        topology->pci[at].gpus++;
}

static void place_pairs(struct sp_topology *topology)
{
    const struct sp_recording *recording = topology->recording;
    const size_t count = topology->gpu_count;

    for (size_t i = 0; i < recording->pair_count; i++)
        for (size_t at = 0; at < count * count; at++)
            if (topology->gpu[at / count].number == (size_t)recording->pairs[i].from &&
                topology->gpu[at % count].number == (size_t)recording->pairs[i].to)
                topology->pair[at] = &recording->pairs[i];
}

/* ---- the platform ---- */

static bool has_option(const char *options, const char *option)
{
    const size_t len = strlen(option);

    for (const char *at = options; at; at = strchr(at, ' ') ? strchr(at, ' ') + 1 : NULL)
        if (strncmp(at, option, len) == 0 && (at[len] == ' ' || at[len] == '\0'))
            return true;
    return false;
}

static enum sp_iommu iommu_by_group(const struct sp_topology *topology)
{
    enum sp_iommu found = SP_IOMMU_UNKNOWN;

    for (size_t i = 0; i < topology->gpu_count; i++) {
        const char *type = topology->gpu[i].pci >= 0 ? topology->pci[topology->gpu[i].pci].is->group_type : NULL;

        if (type && strncmp(type, "DMA", 3) == 0)
            found = SP_IOMMU_TRANSLATED;
        else if (type && strcmp(type, "identity") == 0 && found == SP_IOMMU_UNKNOWN)
            found = SP_IOMMU_PASS;
    }
    return found;
}

/* The group's type is what is in force; the kernel's options are what was asked for. */
static enum sp_iommu find_iommu(const struct sp_topology *topology)
{
    const struct sp_rec_machine *machine = &topology->recording->machine;
    enum sp_iommu found = iommu_by_group(topology);

    if (found != SP_IOMMU_UNKNOWN)
        return found;
    if (machine->iommu_units == 0)
        return SP_IOMMU_OFF;
    if (has_option(machine->options, "iommu=off") || has_option(machine->options, "amd_iommu=off") ||
        has_option(machine->options, "intel_iommu=off"))
        return SP_IOMMU_OFF;
    if (has_option(machine->options, "iommu=pt"))
        return SP_IOMMU_PASS;
    return SP_IOMMU_UNKNOWN;
}

static bool find_guest(const struct sp_topology *topology)
{
    if (topology->recording->machine.hypervisor == 1)
        return true;
    for (size_t i = 0; i < topology->gpu_count; i++) {
        const char *mode = topology->gpu[i].is->virtualization;

        if (mode && (strcmp(mode, "passthrough") == 0 || strcmp(mode, "vgpu") == 0))
            return true;
    }
    return false;
}

static bool find_override(const char *registry)
{
    static const char *const keys[] = {"ForceP2P", "RMForceP2PType", "RMPcieP2PType", "RMForceStaticBar1",
                                       "PeerMappingOverride"};

    for (size_t i = 0; registry && i < sizeof keys / sizeof *keys; i++)
        if (strstr(registry, keys[i]))
            return true;
    return false;
}

/* ---- life ---- */

static int allocate(struct sp_topology *topology)
{
    const size_t gpus = topology->gpu_count, pci = topology->pci_count;

    topology->pci = calloc(pci ? pci : 1, sizeof *topology->pci);
    topology->gpu = calloc(gpus ? gpus : 1, sizeof *topology->gpu);
    topology->pair = calloc(gpus ? gpus * gpus : 1, sizeof *topology->pair);
    return topology->pci && topology->gpu && topology->pair ? SP_OK : sp_err(SP_ECANNOT, "out of memory");
}

double sp_link_gbs(double speed, int64_t lanes)
{
    const double lane = speed < 8 ? speed / 10 : speed < 64 ? speed / 8 * 128 / 130 : speed / 8 * 0.94;

    return speed > 0 && lanes > 0 ? lane * (double)lanes : 0;
}

int sp_topology_make(struct sp_topology *out, const struct sp_recording *recording, const size_t *gpus, size_t count)
{
    int rc;

    memset(out, 0, sizeof *out);
    out->recording = recording;
    out->pci_count = recording->pci_count;
    out->gpu_count = gpus ? count : recording->gpu_count;
    rc = allocate(out);
    if (rc < 0)
        return rc;
    for (size_t i = 0; i < out->pci_count; i++)
        place(out, i);
    for (size_t i = 0; i < out->gpu_count; i++)
        place_gpu(out, &out->gpu[i], gpus ? gpus[i] : i);
    place_pairs(out);
    out->iommu = find_iommu(out);
    out->guest = find_guest(out);
    out->overridden = find_override(recording->driver.registry);
    out->patched_name = recording->driver.version && strstr(recording->driver.version, "p2p");
    return SP_OK;
}

void sp_topology_free(struct sp_topology *topology)
{
    free(topology->pci);
    free(topology->gpu);
    free(topology->pair);
    memset(topology, 0, sizeof *topology);
}
