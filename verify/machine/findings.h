/*
 * What a topology means for the all-reduce: findings for people, and which backends are worth a try.
 *
 * A pure function of a topology (topology.h). A finding has an id that never changes its meaning, a level, a text with
 * the facts it rests on, and a remedy: the command for exactly this platform, where there is one. All that is concluded
 * here is about what the driver and the platform promise; whether data arrives is for level 2 to measure.
 *
 * | id                    | says                                                                          |
 * |-----------------------|-------------------------------------------------------------------------------|
 * | gpu.mig               | a GPU is split by MIG: no peer access over PCIe                               |
 * | p2p.refused           | the driver refuses peer access; code is its reason                            |
 * | p2p.forced            | peer access was forced: the grant proves nothing                              |
 * | p2p.cuda-disagrees    | NVML grants what CUDA refuses, or the other way round; CUDA is right          |
 * | p2p.mixed-chips       | GPUs of different chips                                                       |
 * | p2p.read-suspect      | loads from a peer are not to be trusted on this CPU; stores may be            |
 * | acs.redirect          | bridges send peer traffic up to the root complex                              |
 * | acs.unknown           | ACS cannot be read without root                                               |
 * | iommu.translated      | the IOMMU translates what GPUs address                                        |
 * | bar1.small            | BAR1 does not cover the GPU's memory                                          |
 * | bar1.uneven           | BAR1 differs between GPUs of one model                                        |
 * | link.idle             | a link is slow because it is idle: no fault                                   |
 * | link.narrow           | a link has fewer lanes than the GPU                                           |
 * | link.uneven           | links differ                                                                  |
 * | link.port-pm          | ports may power down under a Gen5 GPU                                         |
 * | topo.sockets          | GPUs on more than one socket                                                  |
 * | topo.islands          | groups of GPUs that are near each other                                       |
 * | topo.shared-uplink    | GPUs share one link to the root complex                                       |
 * | topo.numa-unknown     | the kernel does not know a GPU's NUMA node                                    |
 * | topo.chipset          | a GPU is behind the chipset                                                   |
 * | topo.nvlink           | NVLink joins GPUs                                                             |
 * | switch.write-collapse | a layout in which posted writes have collapsed: to be measured                |
 * | vm.guest              | a virtual machine: what is read of the platform is its emulation              |
 * | display.active        | a GPU drives a display                                                        |
 *
 * What only a measurement can tell, that data arrives and how fast, is for level 2 (ladder.h). Findings of the doctor
 * alone: doctor.h.
 */
#ifndef SP_MACHINE_FINDINGS_H
#define SP_MACHINE_FINDINGS_H

#include "verify/machine/topology.h"

enum sp_level_of { SP_INFO, SP_WARN, SP_BAD };

enum { SP_FINDING_ID = 32 };

struct sp_finding {
    char id[SP_FINDING_ID];
    char code[8]; /* of p2p.refused; "" elsewhere or unknown */
    enum sp_level_of level;
    char *text;
    char *remedy; /* NULL: nothing to do */
};

struct sp_findings {
    struct sp_finding *item;
    size_t count;
};

/* Worth a try? SUSPECT: try in a process of its own and expect it to fail. */
enum sp_candidate { SP_CANDIDATE_UNKNOWN, SP_CANDIDATE_YES, SP_CANDIDATE_SUSPECT, SP_CANDIDATE_NO };

struct sp_candidates {
    enum sp_candidate push, pull, host;
};

/* Free and set to zero; safe on zero. */
void sp_findings_free(struct sp_findings *findings);

/* Append; text by format. remedy may be NULL and is copied. */
int sp_finding_add(struct sp_findings *findings, const char *id, enum sp_level_of level, const char *remedy,
                   const char *fmt, ...) __attribute__((format(printf, 5, 6)));

/* All findings of a topology, appended in a fixed order. */
int sp_find_topology(struct sp_findings *findings, const struct sp_topology *topology);
const struct sp_finding *sp_finding_get(const struct sp_findings *findings, const char *id);

/* By a topology and what was found in it. */
void sp_candidates_of(struct sp_candidates *out, const struct sp_topology *topology,
                      const struct sp_findings *findings);

const char *sp_level_name(enum sp_level_of level);          /* "info", "warn", "fail" */
const char *sp_candidate_name(enum sp_candidate candidate); /* "unknown", "cand", "susp", "no" */

/* The rules, in the order of sp_find_topology(). */
int sp_find_guest(struct sp_findings *findings, const struct sp_topology *topology);
int sp_find_p2p(struct sp_findings *findings, const struct sp_topology *topology);
int sp_find_platform(struct sp_findings *findings, const struct sp_topology *topology);
int sp_find_bar1(struct sp_findings *findings, const struct sp_topology *topology);
int sp_find_links(struct sp_findings *findings, const struct sp_topology *topology);
int sp_find_layout(struct sp_findings *findings, const struct sp_topology *topology);

#endif
