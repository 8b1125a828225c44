/*
 * Processes that have an install loaded. Workers that such a process starts after a patch would import new files
 * beside its old ones, so apply and revert look first.
 */
#ifndef SP_PATCHER_SERVERS_H
#define SP_PATCHER_SERVERS_H

#include "patcher/install.h"

/* SP_OK when none is seen; SP_ECANNOT with the list of pids otherwise. A process counts when it has a file of
 * sglang/ or of the kernel package mapped or open, or when its command line starts sglang and it runs on an interpreter
 * of this install. Those that started us do not count. Processes that we may not look at are not seen: run as their
 * user or root. */
int sp_servers_check(const struct sp_install *install);

#endif
