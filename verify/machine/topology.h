/*
 * The machine as the all-reduce sees it: which GPUs, how they are linked, what the platform does with a peer's access.
 *
 * A pure function of a recording (record.h) and of the GPUs that were chosen; nothing here reads a machine.
 *
 * Labels of pairs follow from the paths: one switch PIX, several PXB, one host bridge PHB, one NUMA node NODE, else
 * SYS. A label is not a speed (GPUs under one switch are the slow pair where peer access is refused), so nothing here
 * ranks by it. What is not known stays unknown: a tristate is 1, 0 or SP_ABSENT.
 */
#ifndef SP_MACHINE_TOPOLOGY_H
#define SP_MACHINE_TOPOLOGY_H

#include "verify/machine/record.h"

enum sp_label { SP_LABEL_UNKNOWN, SP_LABEL_PIX, SP_LABEL_PXB, SP_LABEL_PHB, SP_LABEL_NODE, SP_LABEL_SYS };

enum sp_grant { SP_GRANT_UNKNOWN, SP_GRANT_YES, SP_GRANT_NO };

enum sp_iommu { SP_IOMMU_UNKNOWN, SP_IOMMU_OFF, SP_IOMMU_PASS, SP_IOMMU_TRANSLATED };

enum { SP_ACS_REDIRECT = 0x0c }; /* of a control word: request and completion redirect */

/* A function of the tree. */
struct sp_topo_pci {
    const struct sp_rec_pci *is;
    int parent; /* index, or -1 below a host bridge */
    int root;   /* index of the root port above it, or itself; never -1 */
    int depth;  /* 0 for a root port */
    bool chipset;
    size_t gpus; /* of the chosen ones, at or below it */
};

/* What a link does, and the most that both of its ends can do. */
struct sp_topo_link {
    double speed, possible_speed, gpu_speed; /* GT/s; negative: unknown */
    int64_t width, possible_width, gpu_width;
    bool port_known; /* the possible values take the upper end into account */
};

struct sp_topo_gpu {
    const struct sp_rec_gpu *is;
    size_t number; /* in the recording: NVML's index */
    int pci;       /* index, or -1 */
    int uplink;    /* the root port above it, -1 unknown */
    int parent;    /* the bridge right above it, -1 none or unknown */
    struct sp_topo_link link;
    int64_t numa, socket, chip; /* SP_ABSENT: unknown */
    int64_t bar1, memory;
    bool geforce;
};

struct sp_topology {
    const struct sp_recording *recording;
    struct sp_topo_pci *pci;
    size_t pci_count;
    struct sp_topo_gpu *gpu; /* the chosen ones, in their order */
    size_t gpu_count;
    const struct sp_rec_pair **pair; /* gpu_count squared; NULL where nothing is recorded */
    enum sp_iommu iommu;
    bool guest;        /* a virtual machine */
    bool overridden;   /* registry keys that force peer access */
    bool patched_name; /* the driver's version names a peer-to-peer build */
};

/* gpus: numbers of the recording's GPUs, in the order wanted; NULL: all of them. The recording must outlive it. To be
 * freed in any case. */
int sp_topology_make(struct sp_topology *out, const struct sp_recording *recording, const size_t *gpus, size_t count);
void sp_topology_free(struct sp_topology *topology);

/* GB/s each way of so many lanes at so many GT/s, less the coding; 0 where one is not known. */
double sp_link_gbs(double speed, int64_t lanes);

/* Of two chosen GPUs; the label by the paths, else as recorded. */
enum sp_label sp_topology_label(const struct sp_topology *topology, size_t a, size_t b);
const char *sp_label_name(enum sp_label label);

/* May from write to, read from, to's memory? */
enum sp_grant sp_topology_write(const struct sp_topology *topology, size_t from, size_t to);
enum sp_grant sp_topology_read(const struct sp_topology *topology, size_t from, size_t to);

/* NVML's code of a refusal: "CNS", …; "" when there is none or none is known. */
const char *sp_topology_code(const struct sp_topology *topology, size_t from, size_t to);
bool sp_topology_nvlink(const struct sp_topology *topology, size_t a, size_t b);

/* All pairs that NVLink does not join: is every one granted, is one refused? No such pair: SP_GRANT_YES. */
enum sp_grant sp_topology_all(const struct sp_topology *topology,
                              enum sp_grant (*grant)(const struct sp_topology *, size_t, size_t));

/* Is every pair refused? */
bool sp_topology_refused(const struct sp_topology *topology);

/* Peer access is there although this driver would refuse it: it proves nothing. */
bool sp_topology_forced(const struct sp_topology *topology);

/* Is there a pair that only PCIe joins? */
bool sp_topology_pcie(const struct sp_topology *topology);

/* Deepest bridge above both, -1 when they meet in the root complex or beyond. */
int sp_topology_meet(const struct sp_topology *topology, size_t a, size_t b);

/* Bridges whose ACS decides about traffic between chosen GPUs: those below the place where a pair meets, but for the
 * upstream ports of switches, which have none unless they are of several functions. */
bool sp_topology_between(const struct sp_topology *topology, size_t pci);

/* Is bridge (an index, or -1) at or above pci? */
bool sp_topology_above(const struct sp_topology *topology, int bridge, int pci);

/* A switch that the driver knows and takes into account. */
bool sp_topology_known_switch(const struct sp_rec_pci *pci);

#endif
