#include "verify/machine/picture.h"
#include "base/clean.h"
#include "base/err.h"

#include <stdio.h>
#include <string.h>

enum { PREFIX_MAX = 256, CELL = SP_PICTURE_PAIR };

struct lines {
    struct sp_buf *out;
    const struct sp_topology *topology;
    bool utf8;
};

/* ---- one line ---- */

static int put_link(struct sp_buf *out, double speed, int64_t width)
{
    int rc = SP_OK;

    if (speed > 0)
        rc = sp_buf_printf(out, "  %g GT/s", speed);
    if (rc == SP_OK && width > 0)
        rc = sp_buf_printf(out, "%sx%jd", speed > 0 ? " " : "  ", (intmax_t)width);
    return rc;
}

static int put_gpu(struct sp_buf *out, const struct sp_topo_gpu *gpu)
{
    int rc = sp_buf_printf(out, "GPU %zu  %s  %s", gpu->number, gpu->is->bdf, gpu->is->name ? gpu->is->name : "?");

    if (rc == SP_OK)
        rc = put_link(out, gpu->link.possible_speed, gpu->link.width);
    if (rc == SP_OK && gpu->numa >= 0)
        rc = sp_buf_printf(out, "  node %jd", (intmax_t)gpu->numa);
    return rc < 0 ? rc : sp_buf_append(out, "\n", 1);
}

static int put_bridge(struct sp_buf *out, const struct sp_topo_pci *pci)
{
    int rc = sp_buf_printf(out, "%s", pci->is->bdf);

    if (rc == SP_OK && pci->depth == 0)
        rc = sp_buf_printf(out, "  root port");
    else if (rc == SP_OK && pci->is->vendor >= 0 && pci->is->device >= 0)
        rc = sp_buf_printf(out, "  switch %04jx:%04jx", (intmax_t)pci->is->vendor, (intmax_t)pci->is->device);
    if (rc == SP_OK)
        rc = put_link(out, pci->is->max_speed, pci->is->max_width);
    if (rc == SP_OK && pci->chipset)
        rc = sp_buf_printf(out, "  chipset");
    if (rc == SP_OK && pci->is->acs >= 0 && (pci->is->acs & SP_ACS_REDIRECT))
        rc = sp_buf_printf(out, "  ACS redirect");
    return rc < 0 ? rc : sp_buf_append(out, "\n", 1);
}

/* ---- the tree ---- */

static const struct sp_topo_gpu *gpu_at(const struct sp_topology *topology, int pci)
{
    for (size_t i = 0; i < topology->gpu_count; i++)
        if (topology->gpu[i].pci == pci)
            return &topology->gpu[i];
    return NULL;
}

/* The next child after one, which has chosen GPUs below it; -1 when there is none. host: of depth 0, by its name. */
static int next_child(const struct sp_topology *topology, int parent, const char *host, int after)
{
    for (size_t i = (size_t)(after + 1); i < topology->pci_count; i++) {
        const struct sp_topo_pci *pci = &topology->pci[i];

        if (pci->gpus > 0 && pci->parent == parent && (!host || strcmp(pci->is->parent, host) == 0))
            return (int)i;
    }
    return -1;
}

static int put_children(const struct lines *lines, int parent, const char *host, const char *prefix)
{
    static const char *const marks[][2] = {{"|-- ", "`-- "}, {"├─ ", "└─ "}};
    static const char *const bars[][2] = {{"|   ", "    "}, {"│  ", "   "}};
    int at = next_child(lines->topology, parent, host, -1), rc = SP_OK;

    while (at >= 0 && rc == SP_OK) {
        int next = next_child(lines->topology, parent, host, at);
        const struct sp_topo_gpu *gpu = gpu_at(lines->topology, at);
        char deeper[PREFIX_MAX];

        rc = sp_buf_printf(lines->out, "%s%s", prefix, marks[lines->utf8][next < 0]);
        if (rc == SP_OK)
            rc = gpu ? put_gpu(lines->out, gpu) : put_bridge(lines->out, &lines->topology->pci[at]);
        if (rc == SP_OK && snprintf(deeper, sizeof deeper, "%s%s", prefix, bars[lines->utf8][next < 0]) < PREFIX_MAX)
            rc = put_children(lines, at, NULL, deeper);
        at = next;
    }
    return rc;
}

/* Is this the first chosen root port of its host bridge? */
static bool begins_host(const struct sp_topology *topology, size_t pci)
{
    const struct sp_topo_pci *is = &topology->pci[pci];

    return is->depth == 0 && is->gpus > 0 && next_child(topology, -1, is->is->parent, -1) == (int)pci;
}

static int put_host(const struct lines *lines, size_t pci)
{
    const char *host = lines->topology->pci[pci].is->parent;
    int rc = sp_buf_printf(lines->out, "%s\n", host);

    return rc < 0 ? rc : put_children(lines, -1, host, "");
}

int sp_picture_tree(struct sp_buf *out, const struct sp_topology *topology, bool utf8)
{
    const struct lines lines = {out, topology, utf8};
    int rc = SP_OK;

    for (size_t i = 0; i < topology->pci_count && rc == SP_OK; i++)
        if (begins_host(topology, i))
            rc = put_host(&lines, i);
    for (size_t i = 0; i < topology->gpu_count && rc == SP_OK; i++)
        if (topology->gpu[i].pci < 0) /* its place on the bus is not recorded */
            rc = put_gpu(out, &topology->gpu[i]);
    if (out->data)
        (void)sp_clean(out->data, 1); /* names may come from a stranger's recording */
    return rc;
}

/* ---- the pairs ---- */

void sp_picture_pair(char out[SP_PICTURE_PAIR], const struct sp_topology *topology, size_t from, size_t to)
{
    enum sp_grant grant = sp_topology_write(topology, from, to);
    const char *code = sp_topology_code(topology, from, to);
    const char *label =
        sp_topology_nvlink(topology, from, to) ? "NV" : sp_label_name(sp_topology_label(topology, from, to));

    if (from == to)
        (void)snprintf(out, SP_PICTURE_PAIR, "-");
    else
        (void)snprintf(out, SP_PICTURE_PAIR, "%s %s", label,
                       grant == SP_GRANT_YES  ? "ok"
                       : grant == SP_GRANT_NO ? (code[0] ? code : "no")
                                              : "?");
}

static int put_row(struct sp_table *table, const struct sp_topology *topology, size_t from)
{
    char text[SP_REC_GPUS_MAX + 1][CELL];
    const char *cells[SP_REC_GPUS_MAX + 1];

    (void)snprintf(text[0], CELL, "GPU %zu", topology->gpu[from].number);
    cells[0] = text[0];
    for (size_t to = 0; to < topology->gpu_count; to++) {
        sp_picture_pair(text[to + 1], topology, from, to);
        cells[to + 1] = text[to + 1];
    }
    return sp_table_row(table, cells);
}

int sp_picture_pairs(struct sp_table **out, const struct sp_topology *topology)
{
    char text[SP_REC_GPUS_MAX + 1][CELL] = {"writes to"};
    const char *heads[SP_REC_GPUS_MAX + 1] = {text[0]};
    int rc;

    for (size_t i = 0; i < topology->gpu_count; i++) {
        (void)snprintf(text[i + 1], CELL, "GPU %zu", topology->gpu[i].number);
        heads[i + 1] = text[i + 1];
    }
    rc = sp_table_new(out, topology->gpu_count + 1, heads);
    for (size_t i = 0; i < topology->gpu_count && rc == SP_OK; i++)
        rc = put_row(*out, topology, i);
    return rc;
}
