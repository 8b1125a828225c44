#include "build/elf.h"

#include <gelf.h>
#include <libelf.h>
#include <stdint.h>
#include <stdio.h>

void sp_elf_section(char out[SP_SECTION_MAX], const void *data, size_t len, size_t offset)
{
    Elf *elf = elf_version(EV_CURRENT) == EV_NONE ? NULL : elf_memory((char *)(uintptr_t)data, len);
    size_t names = 0;
    GElf_Shdr header;

    out[0] = '\0';
    if (elf == NULL || elf_getshdrstrndx(elf, &names) != 0) {
        elf_end(elf);
        return;
    }
    for (Elf_Scn *section = elf_nextscn(elf, NULL); section != NULL; section = elf_nextscn(elf, section)) {
        const char *name;

        if (gelf_getshdr(section, &header) == NULL || header.sh_type == SHT_NOBITS || offset < header.sh_offset ||
            offset - header.sh_offset >= header.sh_size)
            continue;
        name = elf_strptr(elf, names, header.sh_name);
        (void)snprintf(out, SP_SECTION_MAX, "%s", name ? name : "");
    }
    elf_end(elf);
}
