/*
 * State about this machine: verdict and profile, in FOLDER/KEY/ (docs/formats.md; python/sgl_pcie/state.py reads by the
 * same rules).
 *
 * FOLDER is $SGL_PCIE_STATE; else /var/lib/sgl-pcie for root; else .local/state/sgl-pcie of the home in the passwd
 * database, and for reading /var/lib/sgl-pcie after that. KEY names the install. A file counts only if it is a regular
 * one, of at most 4 MiB, owned by root or by the reader. It is written beside and renamed: whoever reads, reads a whole
 * one.
 */
#ifndef SP_VERIFY_STATE_H
#define SP_VERIFY_STATE_H

#include <jansson.h>

#define SP_STATE_ENV "SGL_PCIE_STATE"

/* *content: a new reference, or NULL where no file counts. *found: its path, or why there is none; for the caller to
 * free, never NULL on SP_OK. SP_ECANNOT without memory, nothing else. */
int sp_state_read(json_t **content, char **found, const char *name, const char *schema, const char *site);

/* *path: where it was written, for the caller to free. SP_ECANNOT where that was not possible. */
int sp_state_write(char **path, const char *name, const json_t *content, const char *site);

#endif
