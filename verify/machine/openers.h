/*
 * Processes that have a device open. In a container NVML lists nobody, because its process numbers are the host's; what
 * /proc shows is then all there is.
 */
#ifndef SP_MACHINE_OPENERS_H
#define SP_MACHINE_OPENERS_H

#include <stddef.h>
#include <stdint.h>

/* Pids, but for our own, of processes that have path open, as far as we may look. Returns how many, at most max. */
size_t sp_openers(int64_t *pids, size_t max, const char *path);

#endif
