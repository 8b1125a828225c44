/*
 * Where in an ELF file a byte is, for people who look at two builds that differ.
 */
#ifndef SP_BUILD_ELF_H
#define SP_BUILD_ELF_H

#include <stddef.h>

enum { SP_SECTION_MAX = 64 };

/* Name of the section that holds the byte at offset; "" when there is none, or it is no ELF file. */
void sp_elf_section(char out[SP_SECTION_MAX], const void *data, size_t len, size_t offset);

#endif
