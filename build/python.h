/*
 * Headers of Python for the module.
 *
 * The module uses the limited API (abi3), so that the headers of any CPython from 3.10 on will do: the target's own,
 * else those of a python3 that is here. An interpreter that cannot load such a module (free-threaded, older, not
 * CPython) is an error: SGLang would stay as stock there, whatever was built.
 */
#ifndef SP_BUILD_PYTHON_H
#define SP_BUILD_PYTHON_H

#include "patcher/install.h"

struct sp_python {
    char *include; /* folder of Python.h */
    char *version; /* of the headers */
};

/* SP_ECANNOT: the target cannot load the module, or there is no Python.h anywhere. To be freed in any case. */
int sp_python_find(struct sp_python *out, const struct sp_install *install);
void sp_python_free(struct sp_python *python);

#endif
