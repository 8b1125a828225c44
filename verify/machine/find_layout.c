/*
 * Sockets, islands, switches: where GPUs are to each other.
 */
#include "base/err.h"
#include "verify/machine/findings.h"

#include <stdio.h>
#include <string.h>

enum { LEVELS = 3, ISLANDS_TEXT = 128 };

/* ---- sockets ---- */

/* "socket 0: GPU 0, 1; socket 1: GPU 2, 3": in the order in which the sockets occur. */
static int list_socket(struct sp_buf *out, const struct sp_topology *topology, size_t first)
{
    const int64_t socket = topology->gpu[first].socket;
    int rc = sp_buf_printf(out, "%ssocket %jd: GPU", out->len ? "; " : "", (intmax_t)socket);

    for (size_t i = first; i < topology->gpu_count && rc == SP_OK; i++)
        if (topology->gpu[i].socket == socket)
            rc = sp_buf_printf(out, "%s %zu", i == first ? "" : ",", topology->gpu[i].number);
    return rc;
}

/* Is this the first GPU of its socket? */
static bool begins_socket(const struct sp_topology *topology, size_t gpu)
{
    if (topology->gpu[gpu].socket == SP_ABSENT)
        return false;
    for (size_t i = 0; i < gpu; i++)
        if (topology->gpu[i].socket == topology->gpu[gpu].socket)
            return false;
    return true;
}

static int find_sockets(struct sp_findings *findings, const struct sp_topology *topology)
{
    struct sp_buf list = SP_BUF_INIT;
    size_t sockets = 0;
    int rc = SP_OK;

    for (size_t i = 0; i < topology->gpu_count && rc == SP_OK; i++) {
        if (!begins_socket(topology, i))
            continue;
        sockets++;
        rc = list_socket(&list, topology, i);
    }
    if (rc == SP_OK && sockets > 1)
        rc = sp_finding_add(findings, "topo.sockets", SP_WARN, NULL,
                            "GPUs on %zu sockets, and groups within one are faster: %s", sockets, list.data);
    sp_buf_free(&list);
    return rc;
}

static int find_numa_unknown(struct sp_findings *findings, const struct sp_topology *topology)
{
    if (topology->recording->node_count < 2)
        return SP_OK; /* with one node -1 is what most boards say */
    for (size_t i = 0; i < topology->gpu_count; i++)
        if (topology->gpu[i].numa == -1)
            return sp_finding_add(findings, "topo.numa-unknown", SP_INFO, NULL,
                                  "the kernel does not know the NUMA node of GPU %zu: memory is not bound, and the "
                                  "label SYS does not mean two sockets",
                                  topology->gpu[i].number);
    return SP_OK;
}

/* ---- islands ---- */

/* What GPUs of one island have in common: the socket, the link to the root complex, the switch. */
static int64_t key_of(const struct sp_topology *topology, size_t gpu, int level)
{
    const struct sp_topo_gpu *is = &topology->gpu[gpu];
    const int64_t alone = -1 - (int64_t)gpu;
    int up = is->parent;

    if (level == 0)
        return is->socket != SP_ABSENT ? is->socket : alone;
    if (is->uplink < 0)
        return alone;
    if (level == 1)
        return is->uplink;
    return up >= 0 && topology->pci[up].parent >= 0 ? topology->pci[up].parent : alone;
}

struct group {
    size_t member[SP_REC_GPUS_MAX];
    size_t count;
};

/* The members that are like the first one on this level, and the rest. */
static void split(const struct sp_topology *topology, const struct group *all, int level, struct group *first,
                  struct group *rest)
{
    first->count = rest->count = 0;
    for (size_t i = 0; i < all->count; i++) {
        struct group *to =
            key_of(topology, all->member[i], level) == key_of(topology, all->member[0], level) ? first : rest;

        to->member[to->count++] = all->member[i];
    }
}

struct shape {
    size_t groups, largest, smallest;
    struct group first;
};

static void measure(struct shape *shape, const struct sp_topology *topology, const struct group *all, int level)
{
    struct group left = *all, one, rest;

    memset(shape, 0, sizeof *shape);
    while (left.count > 0) {
        split(topology, &left, level, &one, &rest);
        if (shape->groups++ == 0) {
            shape->first = one;
            shape->smallest = one.count;
        }
        shape->largest = one.count > shape->largest ? one.count : shape->largest;
        shape->smallest = one.count < shape->smallest ? one.count : shape->smallest;
        left = rest;
    }
}

/* "2 x 4 of 2 x 2"; "" when there are no islands. */
static void describe(char out[ISLANDS_TEXT], const struct sp_topology *topology, struct group all)
{
    size_t used = 0;

    out[0] = '\0';
    for (int level = 0; level < LEVELS && used < ISLANDS_TEXT; level++) {
        struct shape shape;

        measure(&shape, topology, &all, level);
        if (shape.groups < 2 || shape.largest < 2)
            continue;
        used += (size_t)snprintf(out + used, ISLANDS_TEXT - used, "%s%zu x ", used ? " of " : "", shape.groups);
        if (shape.smallest == shape.largest)
            used += (size_t)snprintf(out + used, ISLANDS_TEXT - used, "%zu", shape.largest);
        else
            used += (size_t)snprintf(out + used, ISLANDS_TEXT - used, "%zu-%zu", shape.smallest, shape.largest);
        all = shape.first;
    }
}

static int find_islands(struct sp_findings *findings, const struct sp_topology *topology)
{
    char islands[ISLANDS_TEXT];
    struct group all = {.count = topology->gpu_count};

    if (!sp_topology_pcie(topology) || topology->gpu_count > SP_REC_GPUS_MAX)
        return SP_OK;
    for (size_t i = 0; i < all.count; i++)
        all.member[i] = i;
    describe(islands, topology, all);
    if (!islands[0])
        return SP_OK;
    return sp_finding_add(findings, "topo.islands", SP_INFO, NULL, "islands of GPUs near each other: %s", islands);
}

/* ---- switches ---- */

/* Root ports with at least this many of the chosen GPUs. */
static size_t uplinks(const struct sp_topology *topology, size_t least)
{
    size_t count = 0;

    for (size_t i = 0; i < topology->pci_count; i++)
        count += topology->pci[i].depth == 0 && topology->pci[i].gpus >= least;
    return count;
}

static int find_uplinks(struct sp_findings *findings, const struct sp_topology *topology)
{
    const size_t shared = uplinks(topology, 2);
    const bool refused = sp_topology_refused(topology);
    int rc;

    if (shared == 0)
        return SP_OK;
    rc = sp_finding_add(findings, "topo.shared-uplink", refused ? SP_WARN : SP_INFO, NULL,
                        "behind %zu root port%s two or more GPUs share one link%s", shared, shared == 1 ? "" : "s",
                        refused ? ", and without peer access all they say to each other crosses it, up and down" : "");
    if (rc == SP_OK && !refused && sp_topology_pcie(topology) && uplinks(topology, 1) >= 3)
        rc =
            sp_finding_add(findings, "switch.write-collapse", SP_INFO, "sgl-pcie verify --level 2",
                           "GPUs that share a link store to GPUs behind two or more other root ports: such stores have "
                           "collapsed to a tenth on other machines, so it is measured");
    return rc;
}

/* By shape, where the vendor is not known: alone behind a switch while others have none. */
static bool looks_like_chipset(const struct sp_topology *topology, const struct sp_topo_gpu *gpu)
{
    bool others_direct = false;

    if (gpu->parent < 0 || gpu->parent == gpu->uplink || topology->pci[gpu->uplink].gpus > 1)
        return false;
    for (size_t i = 0; i < topology->gpu_count; i++)
        others_direct =
            others_direct || (topology->gpu[i].parent >= 0 && topology->gpu[i].parent == topology->gpu[i].uplink);
    return others_direct && topology->pci[gpu->parent].is->vendor == SP_ABSENT;
}

static int find_chipset(struct sp_findings *findings, const struct sp_topology *topology)
{
    for (size_t i = 0; i < topology->gpu_count && !topology->guest; i++) {
        const struct sp_topo_gpu *gpu = &topology->gpu[i];

        if ((gpu->parent >= 0 && topology->pci[gpu->parent].chipset) || looks_like_chipset(topology, gpu))
            return sp_finding_add(findings, "topo.chipset", SP_WARN, "move it to a slot of the CPU",
                                  "GPU %zu is behind the chipset: it shares that link with disks and network",
                                  gpu->number);
    }
    return SP_OK;
}

static int find_nvlink(struct sp_findings *findings, const struct sp_topology *topology)
{
    const size_t count = topology->gpu_count;
    size_t pairs = 0;

    for (size_t i = 0; i < count * count; i++)
        pairs += i / count != i % count && sp_topology_nvlink(topology, i / count, i % count);
    if (pairs == 0)
        return SP_OK;
    return sp_finding_add(
        findings, "topo.nvlink", SP_INFO, NULL, "NVLink joins %zu of %zu ordered pairs%s", pairs, count * (count - 1),
        sp_topology_pcie(topology) ? ""
                                   : ": SGLANG_PCIE_AR_BACKEND=auto leaves such a group to SGLang's own all-reduce");
}

int sp_find_layout(struct sp_findings *findings, const struct sp_topology *topology)
{
    static int (*const rules[])(struct sp_findings *, const struct sp_topology *) = {
        find_nvlink, find_sockets, find_numa_unknown, find_islands, find_uplinks, find_chipset,
    };
    int rc = SP_OK;

    for (size_t i = 0; i < sizeof rules / sizeof *rules && rc == SP_OK; i++)
        rc = rules[i](findings, topology);
    return rc;
}
