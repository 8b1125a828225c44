/*
 * Files of sysfs and /proc: their size says nothing, they are small, and not being there is an answer.
 */
#ifndef SP_MACHINE_PSEUDO_H
#define SP_MACHINE_PSEUDO_H

#include <stdint.h>
#include <sys/types.h>

enum { SP_PSEUDO_MAX = 16384 };

/* Read <root>/<path> into out, a NUL behind it. Bytes read, 0 when it cannot be read. */
size_t sp_pseudo_read(char *out, size_t size, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

/* The first line without blanks at its end, allocated; NULL when it cannot be read or is empty. */
char *sp_pseudo_line(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* A decimal or 0x number; SP_ABSENT (record.h) when there is none. */
int64_t sp_pseudo_number(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

#endif
