/*
 * A recording: everything that topology logic reads of a machine, as one JSON object.
 *
 * It is made from a live machine (gather.h) or read from a file, so that the logic can be tested on machines that
 * nobody here has, and an issue can be looked into far from where it happened. It holds no name of a host, a user or a
 * path, and no serial number but the GPUs' UUIDs, which `report` replaces (redact.h).
 *
 * What was not there or could not be read is absent: nothing is guessed. In memory absent is NULL, SP_ABSENT or a
 * negative real. The schema is docs/json-schema/recording.json.
 *
 *     rc = sp_recording_load(&recording, "machine.json");     // or a folder with recording.json or report.json
 *     rc = sp_topology_make(&topology, &recording, NULL, 0);
 *     ...
 *     sp_recording_free(&recording);
 */
#ifndef SP_MACHINE_RECORD_H
#define SP_MACHINE_RECORD_H

#include "base/file.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#define SP_RECORDING_SCHEMA "sgl-pcie-recording/1"
#define SP_BUNDLE_SCHEMA    "sgl-pcie-report/1" /* of what `report` writes, which has one in it */
#define SP_RECORDING_HINT                                                                                              \
    "sgl-pcie report --out report.json # on the machine that it is of" /* where one is malformed */
#define SP_ABSENT INT64_MIN

enum {
    SP_REC_GPUS_MAX = 64,
    SP_REC_PCI_MAX = 1024,
    SP_REC_LIST_MAX = 4096,
    SP_REC_TEXT_MAX = 512,
    SP_REC_BYTES_MAX = 8 << 20
};

/* Of sp_rec_pci.acs: the function can be read and has no ACS capability. */
enum { SP_ACS_NONE = -1 };

struct sp_rec_machine {
    char *cpu_vendor; /* "AuthenticAMD", "GenuineIntel" */
    char *cpu;
    int64_t family, model;
    int64_t hypervisor; /* the CPU says that it is a guest's */
    char *board, *product;
    char *kernel;
    char *distribution, *distribution_like; /* ID and ID_LIKE of os-release */
    char *options;                          /* the kernel's options that matter here; "" when there are none */
    int64_t iommu_units;                    /* entries of /sys/class/iommu */
    int64_t privileged;                     /* extended configuration space could be read */
};

struct sp_rec_driver {
    char *version;
    char *module;   /* "open" or "proprietary" */
    char *registry; /* RegistryDwords; "" when none are set */
    char *nvml_error;
    int64_t cuda; /* newest CUDA that it supports, 13000 for 13.0 */
};

struct sp_rec_node {
    int64_t node, socket;
    char *cpus;
};

/* A GPU, or a bridge above one. */
struct sp_rec_pci {
    char *bdf;    /* "0000:16:00.0" */
    char *parent; /* a bridge listed before, or a host bridge: "pci0000:10" */
    int64_t vendor, device, class;
    int64_t numa; /* -1: the kernel does not know */
    char *cpus;
    double speed, max_speed; /* GT/s, of this function */
    int64_t width, max_width;
    int64_t bar1;       /* bytes */
    int64_t group;      /* of the IOMMU */
    char *group_type;   /* "DMA", "DMA-FQ", "identity", … */
    int64_t acs;        /* control word, or SP_ACS_NONE */
    int64_t acs_offset; /* of the capability */
};

/* In NVML's order, which is that of the bus. */
struct sp_rec_gpu {
    char *bdf, *uuid, *name;
    int64_t device;   /* PCI device id */
    char *capability; /* "12.0" */
    int64_t memory, bar1;
    int64_t generation, width, max_generation, max_width, gpu_max_generation; /* as NVML says */
    int64_t pstate;
    int64_t display, persistence, mig;
    char *virtualization; /* "none", "passthrough", "vgpu" */
};

/* An ordered pair of GPUs. */
struct sp_rec_pair {
    int64_t from, to;
    char *label;                           /* nearest common ancestor: PIX, PXB, PHB, NODE, SYS */
    char *read, *write, *nvlink, *atomics; /* OK, CNS, GNS, TNS, DR, NS, U */
    int64_t cuda;                          /* cuDeviceCanAccessPeer */
};

struct sp_rec_process {
    int64_t gpu, pid; /* 0: somebody whom this container does not show */
    int64_t memory;   /* bytes in use on this GPU by such */
};

struct sp_recording {
    char *source;  /* "live", or where a hand-made one comes from */
    char *remarks; /* what of it is inferred or made up */
    struct sp_rec_machine machine;
    struct sp_rec_driver driver;
    struct sp_rec_node *nodes;
    struct sp_rec_pci *pci;
    struct sp_rec_gpu *gpus;
    struct sp_rec_pair *pairs;
    struct sp_rec_process *processes; /* that compute */
    size_t node_count, pci_count, gpu_count, pair_count, process_count;
};

/* Everything absent. To be freed; safe on a zeroed one. */
void sp_recording_init(struct sp_recording *recording);
void sp_recording_free(struct sp_recording *recording);

/* A new last element with everything absent, valid until the next one is added. list: "nodes", "pci", "gpus", "pairs",
 * "processes". SP_EFAIL when it is full. */
int sp_recording_add(void **out, struct sp_recording *recording, const char *list);

/* Read a recording, or the one in a bundle that `report` wrote. SP_EFAIL names the field. To be freed in any case. */
int sp_recording_parse(struct sp_recording *out, const char *data, size_t len, const char *name);

/* The same from a file, or from recording.json or report.json in a folder. SP_ECANNOT: it is not there. */
int sp_recording_load(struct sp_recording *out, const char *path);

/* A new reference; NULL without memory. */
json_t *sp_recording_json(const struct sp_recording *recording);

const struct sp_rec_pci *sp_recording_pci(const struct sp_recording *recording, const char *bdf);

/* "0000:16:00.0", "pci0000:10" */
bool sp_is_bdf(const char *text);
bool sp_is_host_bridge(const char *text);

#endif
