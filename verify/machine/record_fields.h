/*
 * The fields of a recording, said once: reading, writing, freeing and "absent" all go by these tables.
 */
#ifndef SP_MACHINE_RECORD_FIELDS_H
#define SP_MACHINE_RECORD_FIELDS_H

#include "verify/machine/record.h"

/* INT: from 0 up. NODE: -1, too: the kernel does not know. */
enum sp_kind { SP_KIND_TEXT, SP_KIND_INT, SP_KIND_NODE, SP_KIND_BOOL, SP_KIND_REAL, SP_KIND_HEX, SP_KIND_ACS };

struct sp_field {
    const char *key; /* NULL ends a table */
    enum sp_kind kind;
    bool required;
    size_t offset;
};

/* An object or a list of objects of a recording. */
struct sp_part {
    const char *key; /* NULL ends the table */
    const struct sp_field *fields;
    size_t offset;       /* of the object, or of the pointer to the first one */
    size_t count_offset; /* SIZE_MAX: one object */
    size_t size, max;
};

extern const struct sp_part sp_parts[];
extern const struct sp_field sp_top_fields[]; /* besides "schema" */

#define SP_ONE SIZE_MAX

static inline void *sp_at(const void *object, size_t offset)
{
    return (char *)(uintptr_t)object + offset;
}

#endif
