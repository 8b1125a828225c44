/*
 * What a Python interpreter says of the SGLang that it would import. It is not imported.
 */
#ifndef SP_PATCHER_INTERPRETER_H
#define SP_PATCHER_INTERPRETER_H

#include "patcher/install.h"

#include <limits.h>

/* *root: the folder that holds sglang/; *site: where something of ours goes that cannot lie beside it. Both for the
 * caller to free. 1: it has no SGLang, and the message says so. SP_ECANNOT: it cannot be asked; SP_EUSAGE: what it
 * finds is no package in a folder. */
int sp_interpreter_ask(char **root, char **site, const char *python);

/* The interpreter that was asked, or for --site alone the one that such a folder belongs to: <prefix>/bin/python3; ""
 * for none. */
void sp_interpreter_of(char out[PATH_MAX], const struct sp_install *install);

#endif
