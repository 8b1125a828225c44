/*
 * Make a recording of the machine that we run on: sysfs and /proc, NVML, and what CUDA says about peers.
 *
 * NVML and CUDA are asked by children with a time limit, because neither returns on a machine with a wedged GPU.
 * Nothing is written, no GPU memory is used, and no context is made. What cannot be read is left absent, so that a
 * container without /sys and a machine without a driver give a recording too.
 */
#ifndef SP_MACHINE_GATHER_H
#define SP_MACHINE_GATHER_H

#include "verify/machine/record.h"

/* root: "" for this machine; else a folder with proc/, sys/ and etc/ in it, for tests. NVML and CUDA are asked only for
 * this machine. SP_ECANNOT without memory, nothing else. To be freed in any case. */
int sp_gather(struct sp_recording *out, const char *root);

/* The parts of it that have files of their own, each of which needs those before it. */
int sp_gather_nvml(struct sp_recording *recording);
int sp_gather_pci(struct sp_recording *recording, const char *root);
int sp_gather_cuda(struct sp_recording *recording);

#endif
