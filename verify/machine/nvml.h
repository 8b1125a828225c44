/*
 * NVML, loaded at run time with prototypes of our own: the program links nothing of the driver.
 *
 * A symbol that an older library lacks is "not available", never an error; the same for a call that a GPU does not
 * support. Values that are not available are SP_ABSENT or "". Numbers are NVML's own (nvml.h, API 13).
 *
 *     struct sp_nvml *nvml;
 *     rc = sp_nvml_open(&nvml);        // SP_ECANNOT with NVML's reason
 *     n = sp_nvml_count(nvml);
 *     ...
 *     sp_nvml_close(nvml);
 *
 * NVML keeps the GPUs in the order of the bus and does not look at CUDA_VISIBLE_DEVICES. On a machine with a wedged GPU
 * it does not return: only children open it, by sp_nvml_ask().
 */
#ifndef SP_MACHINE_NVML_H
#define SP_MACHINE_NVML_H

#include "verify/machine/child.h"
#include "verify/machine/record.h"

struct sp_nvml;

enum { SP_NVML_TEXT = 96, SP_NVML_PROCESSES = 64 };

/* The message of a hang, also in a recording. */
#define SP_NVML_HANGS "NVML does not answer: a GPU may hang"

/* sp_child_ask() with a minute, for work that opens NVML. SP_EHANG: also where it hung before, without waiting again.
 */
int sp_nvml_ask(struct sp_buf *answer, sp_child_work *work, const void *context);

/* Text that a GPU has. */
enum sp_nvml_text { SP_NVML_UUID, SP_NVML_NAME, SP_NVML_BUS_ID };

/* Numbers that a GPU has. */
enum sp_nvml_number {
    SP_NVML_GENERATION,
    SP_NVML_WIDTH,
    SP_NVML_MAX_GENERATION,
    SP_NVML_MAX_WIDTH,
    SP_NVML_GPU_MAX_GENERATION,
    SP_NVML_PSTATE,
    SP_NVML_DISPLAY,
    SP_NVML_PERSISTENCE,
    SP_NVML_VIRTUALIZATION, /* 0 none, 1 passthrough, 2 vGPU, 3 and 4 host of vGPUs */
    SP_NVML_ARCHITECTURE,
    SP_NVML_NUMBERS
};

/* Of sp_nvml_p2p(): nvmlGpuP2PCapsIndex_t. */
enum { SP_NVML_READ = 0, SP_NVML_WRITE = 1, SP_NVML_NVLINK = 2, SP_NVML_ATOMICS = 3 };

int sp_nvml_open(struct sp_nvml **out);
void sp_nvml_close(struct sp_nvml *nvml);

unsigned sp_nvml_count(const struct sp_nvml *nvml);
void sp_nvml_driver(const struct sp_nvml *nvml, char out[SP_NVML_TEXT]);
int64_t sp_nvml_cuda(const struct sp_nvml *nvml); /* 13000 for 13.0 */

/* gpu: less than the count. */
void sp_nvml_text(const struct sp_nvml *nvml, unsigned gpu, enum sp_nvml_text what, char out[SP_NVML_TEXT]);
int64_t sp_nvml_number(const struct sp_nvml *nvml, unsigned gpu, enum sp_nvml_number what);
int64_t sp_nvml_memory(const struct sp_nvml *nvml, unsigned gpu); /* bytes */
int64_t sp_nvml_used(const struct sp_nvml *nvml, unsigned gpu);   /* by processes; what the driver keeps is not in it */
int64_t sp_nvml_bar1(const struct sp_nvml *nvml, unsigned gpu);
int64_t sp_nvml_mig(const struct sp_nvml *nvml, unsigned gpu);
void sp_nvml_capability(const struct sp_nvml *nvml, unsigned gpu, int64_t *major, int64_t *minor);

/* PCI device id without the vendor. */
int64_t sp_nvml_device(const struct sp_nvml *nvml, unsigned gpu);

/* Processes that compute on a GPU; *count 0 when that cannot be known. */
void sp_nvml_processes(const struct sp_nvml *nvml, unsigned gpu, int64_t pids[SP_NVML_PROCESSES], size_t *count);

/* "OK", "CNS", …, or NULL; "PIX", "PXB", …, or NULL. */
const char *sp_nvml_p2p(const struct sp_nvml *nvml, unsigned from, unsigned to, int index);
const char *sp_nvml_label(const struct sp_nvml *nvml, unsigned from, unsigned to);

#endif
