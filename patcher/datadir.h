/*
 * Where this program's data is: patches/, python/sgl_pcie/ and the kernels' sources.
 *
 * $SGL_PCIE_DATA when set; else ../share/sgl-pcie beside the folder of the executable, which holds for the
 * installed program and for the build tree alike.
 */
#ifndef SP_PATCHER_DATADIR_H
#define SP_PATCHER_DATADIR_H

/* *out: the data directory, or name below it when name is given; the caller frees it. */
int sp_datadir(char **out, const char *name);

/* After an error about what is in there: how to get it whole. Returns code. */
int sp_datadir_hint(int code);

#endif
