/*
 * State about this machine: verdict and profile, in FOLDER/KEY/ (docs/formats.md; python/sgl_pcie/state.py reads by the
 * same rules).
 *
 * FOLDER is $SGL_PCIE_STATE; else /var/lib/sgl-pcie for root; else .local/state/sgl-pcie of the home in the passwd
 * database, and for reading /var/lib/sgl-pcie after that. KEY names the install. A file counts only if it is a regular
 * one, of at most 4 MiB, owned by root or by the reader, not for others to write, and sound (sound.h). Of two that
 * count one that still holds is read, of two of those the newer: what root finds today is not hidden by what a user
 * proved last week, nor the other way round. It is written beside and renamed: whoever reads, reads a whole one.
 *
 * What root writes stays root's, also in somebody else's folder: the owner has a meaning, root's counts for every user.
 * Folders that root makes there are given to the owner of the folder above, who may replace and remove what is in them.
 */
#ifndef SP_VERDICT_STATE_H
#define SP_VERDICT_STATE_H

#include <jansson.h>

#define SP_STATE_ENV "SGL_PCIE_STATE"

/* *content: a new reference, or NULL where no file counts. *found: its path, or why there is none; for the caller to
 * free, never NULL on SP_OK. SP_ECANNOT without memory, SP_EUSAGE where
 * $SGL_PCIE_STATE is no path from the root; nothing else. */
int sp_state_read(json_t **content, char **found, const char *name, const char *schema, const char *site);

/* *path: where it was written, for the caller to free. SP_ECANNOT where that was not possible. */
int sp_state_write(char **path, const char *name, const json_t *content, const char *site);

/* Can this file be written? The folder is made if need be. For whoever works long before he writes. */
int sp_state_check(const char *site, const char *name);

/* Take away the file that sp_state_read() found at path, which needs no space. SP_ECANNOT. */
int sp_state_remove(const char *path);

/* A new object out of the one that there is (NULL: none that counts) and of what the caller has. */
typedef int sp_state_change(json_t **out, const json_t *before, const void *context);

/* Read, change and write, one process at a time where the file system can lock. *content: what was written; both for
 * the caller to free, and NULL on error. */
int sp_state_update(char **path, json_t **content, const char *name, const char *schema, const char *site,
                    sp_state_change *change, const void *context);

#endif
