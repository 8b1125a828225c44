/*
 * Images of files: the side files of a transaction (base/txn.h), written and kept beside the live file.
 *
 * dir is the directory of the live file, name and side are names in it. Everything is on disk (fsync) when these
 * return, except the directory entry.
 */
#ifndef SP_BASE_IMAGE_H
#define SP_BASE_IMAGE_H

#include "base/file.h"

#include <stdbool.h>

enum { SP_IMAGE_MAX = 512 << 20 };

/* Blob id of a regular file beneath root; hex "" when there is none. st may be NULL. */
int sp_image_id(struct sp_oid *out, struct stat *st, int root, const char *path);

/* Keep the live file under a second name: by a hard link, so that putting it back restores the very inode, or by a
 * copy with all its attributes where links cannot be had. SP_EDRIFT when its blob id is not pre. */
int sp_image_keep(int dir, const char *name, const char *side, const struct sp_oid *pre);

/* Write a new image. like: the live file that it will replace, whose mode, owner and extended attributes it gets, and
 * whose modification time (in seconds, all that bytecode remembers) it avoids; NULL for a new file with this mode
 * and, if adopt, the owner of dir (sp_adopt). */
int sp_image_write(int dir, const char *side, const void *data, size_t len, mode_t mode, const char *like, bool adopt);

#endif
