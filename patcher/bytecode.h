/*
 * Bytecode of a patched module. Python takes a .pyc by the source's time and size, an `unchecked-hash` one without
 * any look at the source; so what belongs to a file that we replace is removed, for every interpreter that left some.
 */
#ifndef SP_PATCHER_BYTECODE_H
#define SP_PATCHER_BYTECODE_H

#include "patcher/install.h"

#include <stddef.h>

/* Remove __pycache__/<module>.*.pyc beside path (relative to the root) and below the cache prefix. A .pyc that
 * cannot be removed is an error. *removed is increased. */
int sp_bytecode_remove(size_t *removed, const struct sp_install *install, const char *path);

#endif
