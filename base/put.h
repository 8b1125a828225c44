/*
 * A file that the user asked for by name: --out, --plot.
 *
 * Not for an install, and not for state. Here the name may be a device, a pipe or a link, and is written as such. A
 * file that was there is the old one or the new one, whatever happens: it is written beside and renamed, with the mode
 * and the owner that it had; a link goes on leading to it. Where that cannot be (a folder that may not be written, a
 * second hard link, a mount of the file alone) there is room for all of it before the first byte is written over. One
 * that was not there is given to its folder's owner where root makes it, and is gone again when it could not be
 * finished.
 */
#ifndef SP_BASE_PUT_H
#define SP_BASE_PUT_H

#include <stddef.h>

/* Could it be written, as far as can be told without doing so? For what takes long to make. SP_ECANNOT names the path.
 */
int sp_put_check(const char *path);

/* SP_ECANNOT names the path. */
int sp_put_file(const char *path, const void *data, size_t len);

#endif
