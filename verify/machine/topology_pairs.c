#include "verify/machine/topology.h"

#include <string.h>

static const struct sp_rec_pair *pair_of(const struct sp_topology *topology, size_t from, size_t to)
{
    return topology->pair[from * topology->gpu_count + to];
}

/* ---- where two GPUs meet ---- */

int sp_topology_meet(const struct sp_topology *topology, size_t a, size_t b)
{
    int at = topology->gpu[a].parent;

    while (at >= 0 && !sp_topology_above(topology, at, topology->gpu[b].pci))
        at = topology->pci[at].parent;
    return at;
}

static const char *host_bridge(const struct sp_topology *topology, size_t gpu)
{
    const int pci = topology->gpu[gpu].pci;

    return topology->pci[topology->pci[pci].root].is->parent;
}

/* Upstream port, then downstream port: two steps from a GPU to where the switch begins, if it is one switch. */
static enum sp_label below_bridge(const struct sp_topology *topology, size_t a, size_t b, int meet)
{
    int deep = topology->pci[topology->gpu[a].pci].depth, other = topology->pci[topology->gpu[b].pci].depth;
    int steps = (deep > other ? deep : other) - topology->pci[meet].depth;

    return steps <= 2 ? SP_LABEL_PIX : SP_LABEL_PXB;
}

static enum sp_label by_paths(const struct sp_topology *topology, size_t a, size_t b)
{
    const struct sp_topo_gpu *one = &topology->gpu[a], *two = &topology->gpu[b];
    int meet = sp_topology_meet(topology, a, b);

    if (meet >= 0)
        return below_bridge(topology, a, b, meet);
    if (strcmp(host_bridge(topology, a), host_bridge(topology, b)) == 0)
        return SP_LABEL_PHB;
    if (one->numa == SP_ABSENT || two->numa == SP_ABSENT)
        return SP_LABEL_UNKNOWN;
    return one->numa == two->numa ? SP_LABEL_NODE : SP_LABEL_SYS;
}

static const char *const names[] = {"?", "PIX", "PXB", "PHB", "NODE", "SYS"};

static enum sp_label by_name(const char *name)
{
    for (int i = SP_LABEL_PIX; name && i <= SP_LABEL_SYS; i++)
        if (strcmp(names[i], name) == 0)
            return (enum sp_label)i;
    return SP_LABEL_UNKNOWN;
}

enum sp_label sp_topology_label(const struct sp_topology *topology, size_t a, size_t b)
{
    const struct sp_rec_pair *pair = pair_of(topology, a, b);
    enum sp_label label = SP_LABEL_UNKNOWN;

    if (topology->gpu[a].parent >= 0 && topology->gpu[b].parent >= 0)
        label = by_paths(topology, a, b);
    return label == SP_LABEL_UNKNOWN && pair ? by_name(pair->label) : label;
}

const char *sp_label_name(enum sp_label label)
{
    return names[label];
}

bool sp_topology_between(const struct sp_topology *topology, size_t pci)
{
    /* Root port, upstream port, downstream port, upstream port, …: a PCIe path alternates. */
    if (topology->pci[pci].depth % 2 == 1 && topology->pci[pci].is->acs < 0)
        return false;
    for (size_t a = 0; a < topology->gpu_count; a++) {
        if (topology->gpu[a].pci == (int)pci || !sp_topology_above(topology, (int)pci, topology->gpu[a].pci))
            continue;
        for (size_t b = 0; b < topology->gpu_count; b++)
            if (a != b && topology->gpu[b].pci >= 0 && !sp_topology_above(topology, (int)pci, topology->gpu[b].pci))
                return true;
    }
    return false;
}

bool sp_topology_known_switch(const struct sp_rec_pci *pci)
{
    static const struct {
        int64_t vendor, device, mask;
    } list[] = {
        {0x10b5, 0x8700, 0xff00}, {0x10b5, 0x9700, 0xff00}, {0x11f8, 0x8500, 0xff00},
        {0x11f8, 0x4000, 0xff00}, {0x15b3, 0x1976, 0xffff},
    };

    for (size_t i = 0; i < sizeof list / sizeof *list; i++)
        if (pci->vendor == list[i].vendor && pci->device >= 0 && (pci->device & list[i].mask) == list[i].device)
            return true;
    return false;
}

/* ---- what is granted ---- */

static enum sp_grant by_code(const char *code)
{
    if (!code || strcmp(code, "U") == 0)
        return SP_GRANT_UNKNOWN;
    return strcmp(code, "OK") == 0 ? SP_GRANT_YES : SP_GRANT_NO;
}

/* CUDA decides; where only one direction was recorded, it stands for the other. */
static enum sp_grant grant(const struct sp_rec_pair *pair, const char *first, const char *second)
{
    enum sp_grant found;

    if (!pair)
        return SP_GRANT_UNKNOWN;
    found = by_code(first);
    if (found == SP_GRANT_UNKNOWN)
        found = by_code(second);
    if (pair->cuda == SP_ABSENT)
        return found;
    return pair->cuda ? SP_GRANT_YES : SP_GRANT_NO;
}

enum sp_grant sp_topology_write(const struct sp_topology *topology, size_t from, size_t to)
{
    const struct sp_rec_pair *pair = pair_of(topology, from, to);

    return pair ? grant(pair, pair->write, pair->read) : SP_GRANT_UNKNOWN;
}

enum sp_grant sp_topology_read(const struct sp_topology *topology, size_t from, size_t to)
{
    const struct sp_rec_pair *pair = pair_of(topology, from, to);

    return pair ? grant(pair, pair->read, pair->write) : SP_GRANT_UNKNOWN;
}

const char *sp_topology_code(const struct sp_topology *topology, size_t from, size_t to)
{
    const struct sp_rec_pair *pair = pair_of(topology, from, to);
    const char *code = pair && by_code(pair->read) == SP_GRANT_NO    ? pair->read
                       : pair && by_code(pair->write) == SP_GRANT_NO ? pair->write
                                                                     : NULL;

    return code ? code : "";
}

bool sp_topology_nvlink(const struct sp_topology *topology, size_t a, size_t b)
{
    const struct sp_rec_pair *pair = pair_of(topology, a, b);

    return pair && by_code(pair->nvlink) == SP_GRANT_YES;
}

/* ---- all of them ---- */

enum sp_grant sp_topology_all(const struct sp_topology *topology,
                              enum sp_grant (*grant_of)(const struct sp_topology *, size_t, size_t))
{
    const size_t count = topology->gpu_count;
    enum sp_grant all = SP_GRANT_YES;

    for (size_t i = 0; i < count * count; i++) {
        enum sp_grant one;

        if (i / count == i % count || sp_topology_nvlink(topology, i / count, i % count))
            continue;
        one = grant_of(topology, i / count, i % count);
        if (one == SP_GRANT_NO)
            return one;
        if (one == SP_GRANT_UNKNOWN)
            all = one;
    }
    return all;
}

bool sp_topology_pcie(const struct sp_topology *topology)
{
    const size_t count = topology->gpu_count;

    for (size_t i = 0; i < count * count; i++)
        if (i / count != i % count && !sp_topology_nvlink(topology, i / count, i % count))
            return true;
    return false;
}

bool sp_topology_refused(const struct sp_topology *topology)
{
    const size_t count = topology->gpu_count;
    bool any = false;

    for (size_t i = 0; i < count * count; i++) {
        if (i / count == i % count)
            continue;
        if (sp_topology_write(topology, i / count, i % count) != SP_GRANT_NO)
            return false;
        any = true;
    }
    return any;
}

/* By NVML or by CUDA: an override makes NVML grant what CUDA still refuses. */
static bool granted(const struct sp_topology *topology, size_t from, size_t to)
{
    const struct sp_rec_pair *pair = pair_of(topology, from, to);

    return pair && (by_code(pair->read) == SP_GRANT_YES || by_code(pair->write) == SP_GRANT_YES || pair->cuda == 1);
}

/* Today's drivers refuse GeForce cards over PCIe, and every pair that spans a guest's emulated bridges. */
bool sp_topology_forced(const struct sp_topology *topology)
{
    const size_t count = topology->gpu_count;

    for (size_t i = 0; i < count * count; i++) {
        const size_t a = i / count, b = i % count;

        if (a == b || sp_topology_nvlink(topology, a, b) || !granted(topology, a, b))
            continue;
        if (topology->gpu[a].geforce || topology->gpu[b].geforce || topology->guest)
            return true;
    }
    return false;
}
