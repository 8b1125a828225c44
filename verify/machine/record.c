#include "verify/machine/record.h"
#include "base/err.h"
#include "verify/machine/record_fields.h"

#include <ctype.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#define FIELD(type, member, kind)                                                                                      \
    {                                                                                                                  \
#member, SP_KIND_##kind, false, offsetof(struct type, member)                                                  \
    }
#define REQUIRED(type, member, kind)                                                                                   \
    {                                                                                                                  \
#member, SP_KIND_##kind, true, offsetof(struct type, member)                                                   \
    }
#define END                                                                                                            \
    {                                                                                                                  \
        NULL, SP_KIND_TEXT, false, 0                                                                                   \
    }

static const struct sp_field machine_fields[] = {
#define F(member, kind) FIELD(sp_rec_machine, member, kind)
    F(cpu_vendor, TEXT),   F(cpu, TEXT),
    F(family, INT),        F(model, INT),
    F(hypervisor, BOOL),   F(board, TEXT),
    F(product, TEXT),      F(kernel, TEXT),
    F(iommu_units, INT),   F(privileged, BOOL),
    F(distribution, TEXT), F(distribution_like, TEXT),
    F(options, TEXT),      END,
#undef F
};

static const struct sp_field driver_fields[] = {
#define F(member, kind) FIELD(sp_rec_driver, member, kind)
    F(version, TEXT), F(module, TEXT), F(registry, TEXT), F(nvml_error, TEXT), F(cuda, INT), END,
#undef F
};

static const struct sp_field node_fields[] = {
    REQUIRED(sp_rec_node, node, INT),
    FIELD(sp_rec_node, socket, INT),
    FIELD(sp_rec_node, cpus, TEXT),
    END,
};

static const struct sp_field pci_fields[] = {
#define F(member, kind) FIELD(sp_rec_pci, member, kind)
    REQUIRED(sp_rec_pci, bdf, TEXT),
    REQUIRED(sp_rec_pci, parent, TEXT),
    F(vendor, HEX),
    F(device, HEX),
    F(class, HEX),
    F(numa, NODE),
    F(cpus, TEXT),
    F(speed, REAL),
    F(max_speed, REAL),
    F(width, INT),
    F(max_width, INT),
    F(bar1, INT),
    F(group, INT),
    F(group_type, TEXT),
    F(acs, ACS),
    F(acs_offset, HEX),
    END,
#undef F
};

static const struct sp_field gpu_fields[] = {
#define F(member, kind) FIELD(sp_rec_gpu, member, kind)
    REQUIRED(sp_rec_gpu, bdf, TEXT),
    F(uuid, TEXT),
    F(name, TEXT),
    F(device, HEX),
    F(capability, TEXT),
    F(memory, INT),
    F(bar1, INT),
    F(generation, INT),
    F(width, INT),
    F(max_generation, INT),
    F(max_width, INT),
    F(gpu_max_generation, INT),
    F(pstate, INT),
    F(display, BOOL),
    F(persistence, BOOL),
    F(mig, BOOL),
    F(virtualization, TEXT),
    END,
#undef F
};

static const struct sp_field pair_fields[] = {
#define F(member, kind) FIELD(sp_rec_pair, member, kind)
    REQUIRED(sp_rec_pair, from, INT),
    REQUIRED(sp_rec_pair, to, INT),
    F(label, TEXT),
    F(read, TEXT),
    F(write, TEXT),
    F(nvlink, TEXT),
    F(atomics, TEXT),
    F(cuda, BOOL),
    END,
#undef F
};

static const struct sp_field process_fields[] = {
    REQUIRED(sp_rec_process, gpu, INT),
    REQUIRED(sp_rec_process, pid, INT),
    FIELD(sp_rec_process, memory, INT),
    END,
};

const struct sp_field sp_top_fields[] = {
    FIELD(sp_recording, source, TEXT),
    FIELD(sp_recording, remarks, TEXT),
    END,
};

#define OBJECT(name)                                                                                                   \
    {                                                                                                                  \
#name, name##_fields, offsetof(struct sp_recording, name), SP_ONE, sizeof(struct sp_rec_##name), 1             \
    }
#define LIST(name, plural, max)                                                                                        \
    {                                                                                                                  \
#plural, name##_fields, offsetof(struct sp_recording, plural), offsetof(struct sp_recording, name##_count),    \
            sizeof(struct sp_rec_##name), max                                                                          \
    }

const struct sp_part sp_parts[] = {
    OBJECT(machine),
    OBJECT(driver),
    LIST(node, nodes, SP_REC_PCI_MAX),
    LIST(pci, pci, SP_REC_PCI_MAX),
    LIST(gpu, gpus, SP_REC_GPUS_MAX),
    LIST(pair, pairs, SP_REC_LIST_MAX),
    LIST(process, processes, SP_REC_LIST_MAX),
    {NULL, NULL, 0, 0, 0, 0},
};

/* ---- memory ---- */

static void make_absent(void *object, const struct sp_field *fields)
{
    for (; fields->key; fields++) {
        void *at = sp_at(object, fields->offset);

        if (fields->kind == SP_KIND_TEXT)
            *(char **)at = NULL;
        else if (fields->kind == SP_KIND_REAL)
            *(double *)at = -1;
        else
            *(int64_t *)at = SP_ABSENT;
    }
}

static void free_texts(void *object, const struct sp_field *fields)
{
    for (; fields->key; fields++)
        if (fields->kind == SP_KIND_TEXT)
            free(*(char **)sp_at(object, fields->offset));
}

void sp_recording_init(struct sp_recording *recording)
{
    memset(recording, 0, sizeof *recording);
    for (const struct sp_part *part = sp_parts; part->key; part++)
        if (part->count_offset == SP_ONE)
            make_absent(sp_at(recording, part->offset), part->fields);
}

static void free_list(struct sp_recording *recording, const struct sp_part *part)
{
    char *items = *(char **)sp_at(recording, part->offset);
    size_t count = *(size_t *)sp_at(recording, part->count_offset);

    for (size_t i = 0; i < count; i++)
        free_texts(items + i * part->size, part->fields);
    free(items);
}

void sp_recording_free(struct sp_recording *recording)
{
    for (const struct sp_part *part = sp_parts; part->key; part++) {
        if (part->count_offset == SP_ONE)
            free_texts(sp_at(recording, part->offset), part->fields);
        else
            free_list(recording, part);
    }
    free_texts(recording, sp_top_fields);
    memset(recording, 0, sizeof *recording);
}

static int grow(void **out, struct sp_recording *recording, const struct sp_part *part)
{
    char **items = sp_at(recording, part->offset);
    size_t *count = sp_at(recording, part->count_offset);
    char *grown;

    if (*count >= part->max)
        return sp_err(SP_EFAIL, "field '%s' has more than %zu items", part->key, part->max);
    grown = realloc(*items, (*count + 1) * part->size);
    if (!grown)
        return sp_err(SP_ECANNOT, "out of memory");
    *items = grown;
    *out = grown + *count * part->size;
    memset(*out, 0, part->size);
    make_absent(*out, part->fields);
    ++*count;
    return SP_OK;
}

int sp_recording_add(void **out, struct sp_recording *recording, const char *list)
{
    *out = NULL;
    for (const struct sp_part *part = sp_parts; part->key; part++)
        if (part->count_offset != SP_ONE && strcmp(part->key, list) == 0)
            return grow(out, recording, part);
    return sp_err(SP_EFAIL, "a recording has no list '%s'", list);
}

/* ---- names ---- */

/* pattern: 'x' a hex digit, anything else itself. */
static bool fits(const char *text, const char *pattern)
{
    for (; *pattern; pattern++, text++)
        if (*pattern == 'x' ? !isxdigit((unsigned char)*text) || isupper((unsigned char)*text) : *text != *pattern)
            return false;
    return *text == '\0';
}

bool sp_is_bdf(const char *text)
{
    return fits(text, "xxxx:xx:xx.x") || fits(text, "xxxxx:xx:xx.x"); /* VMD makes domains above ffff */
}

bool sp_is_host_bridge(const char *text)
{
    /* 'x' of the pattern would be a digit: "pci" has none. */
    return strncmp(text, "pci", 3) == 0 && (fits(text + 3, "xxxx:xx") || fits(text + 3, "xxxxx:xx"));
}

const struct sp_rec_pci *sp_recording_pci(const struct sp_recording *recording, const char *bdf)
{
    for (size_t i = 0; i < recording->pci_count; i++)
        if (strcmp(recording->pci[i].bdf, bdf) == 0)
            return &recording->pci[i];
    return NULL;
}
