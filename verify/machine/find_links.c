/*
 * Links: lanes count at any time, speed only under load. A link that idles at 2.5 GT/s is as it should be.
 */
#include "base/err.h"
#include "verify/machine/findings.h"

#include <string.h>

enum { FULL_ENOUGH = 8, GEN5 = 32 };

static bool is_idle(const struct sp_topo_link *link)
{
    return link->speed > 0 && link->possible_speed > 0 && link->speed < link->possible_speed;
}

static int find_idle(struct sp_findings *findings, const struct sp_topology *topology)
{
    const struct sp_topo_link *first = NULL;
    struct sp_buf list = SP_BUF_INIT;
    int rc = SP_OK;

    for (size_t i = 0; i < topology->gpu_count && rc == SP_OK; i++) {
        const struct sp_topo_link *link = &topology->gpu[i].link;

        if (!is_idle(link))
            continue;
        first = first ? first : link;
        rc = sp_buf_printf(&list, "%s%zu", list.len ? ", " : "", topology->gpu[i].number);
    }
    if (rc == SP_OK && first)
        rc = sp_finding_add(findings, "link.idle", SP_INFO, NULL,
                            "GPU %s: %g GT/s while idle, %g GT/s possible; speed is measured under load, at level 2",
                            list.data, first->speed, first->possible_speed);
    sp_buf_free(&list);
    return rc;
}

static bool is_narrow(const struct sp_topo_link *link)
{
    return link->width > 0 && link->gpu_width > 0 && link->width < link->gpu_width;
}

/* Fewer lanes than both ends have: a bad contact, a bad riser. */
static bool is_degraded(const struct sp_topo_link *link)
{
    return link->port_known && link->width > 0 && link->width < link->possible_width;
}

static bool widths_differ(const struct sp_topology *topology)
{
    for (size_t i = 1; i < topology->gpu_count; i++)
        if (topology->gpu[0].link.width > 0 && topology->gpu[i].link.width > 0 &&
            topology->gpu[i].link.width != topology->gpu[0].link.width)
            return true;
    return false;
}

static int find_narrow(struct sp_findings *findings, const struct sp_topology *topology)
{
    enum sp_level_of level = widths_differ(topology) ? SP_WARN : SP_INFO;
    struct sp_buf list = SP_BUF_INIT;
    bool degraded = false;
    int rc = SP_OK;

    for (size_t i = 0; i < topology->gpu_count && rc == SP_OK; i++) {
        const struct sp_topo_link *link = &topology->gpu[i].link;

        if (!is_narrow(link))
            continue;
        degraded = degraded || is_degraded(link);
        if (link->width < FULL_ENOUGH || is_degraded(link))
            level = SP_WARN;
        rc = sp_buf_printf(&list, "%sGPU %zu x%jd of x%jd%s", list.len ? ", " : "", topology->gpu[i].number,
                           (intmax_t)link->width, (intmax_t)link->gpu_width,
                           is_degraded(link) ? " though the slot has more" : "");
    }
    if (rc == SP_OK && list.len > 0)
        rc = sp_finding_add(findings, "link.narrow", level,
                            degraded           ? "reseat the card, try another riser or cable"
                            : level == SP_WARN ? "move the card to a wider slot"
                                               : NULL,
                            "fewer lanes than the GPU has: %s", list.data);
    sp_buf_free(&list);
    return rc;
}

static bool speeds_differ(const struct sp_topology *topology)
{
    for (size_t i = 1; i < topology->gpu_count; i++) {
        const double one = topology->gpu[0].link.possible_speed, two = topology->gpu[i].link.possible_speed;

        if (one > 0 && two > 0 && (one < two || two < one))
            return true;
    }
    return false;
}

static int find_uneven(struct sp_findings *findings, const struct sp_topology *topology)
{
    struct sp_buf list = SP_BUF_INIT;
    int rc = SP_OK;

    if (!widths_differ(topology) && !speeds_differ(topology))
        return SP_OK;
    for (size_t i = 0; i < topology->gpu_count && rc == SP_OK; i++) {
        const struct sp_topo_link *link = &topology->gpu[i].link;

        rc = sp_buf_printf(&list, "%sGPU %zu", list.len ? ", " : "", topology->gpu[i].number);
        if (rc == SP_OK && link->width > 0)
            rc = sp_buf_printf(&list, " x%jd", (intmax_t)link->width);
        if (rc == SP_OK && link->possible_speed > 0)
            rc = sp_buf_printf(&list, " up to %g GT/s", link->possible_speed);
    }
    if (rc == SP_OK)
        rc = sp_finding_add(findings, "link.uneven", SP_WARN, NULL, "the slowest link sets the pace: %s", list.data);
    sp_buf_free(&list);
    return rc;
}

/* A Gen5 GPU right below a root port that may power down has gone missing while its link was trained again. */
static int find_port_pm(struct sp_findings *findings, const struct sp_topology *topology)
{
    const char *options = topology->recording->machine.options;

    if (!options || strstr(options, "pcie_port_pm=off"))
        return SP_OK;
    for (size_t i = 0; i < topology->gpu_count; i++) {
        const struct sp_topo_gpu *gpu = &topology->gpu[i];

        if (gpu->parent >= 0 && gpu->parent == gpu->uplink && gpu->link.possible_speed >= GEN5)
            return sp_finding_add(findings, "link.port-pm", SP_INFO,
                                  "if a GPU falls off the bus: pcie_port_pm=off on the kernel's command line",
                                  "the ports above Gen5 GPUs may power down (no pcie_port_pm=off)");
    }
    return SP_OK;
}

int sp_find_links(struct sp_findings *findings, const struct sp_topology *topology)
{
    int rc = SP_OK;

    if (topology->guest)
        return rc;
    rc = find_idle(findings, topology);
    if (rc == SP_OK)
        rc = find_narrow(findings, topology);
    if (rc == SP_OK)
        rc = find_uneven(findings, topology);
    if (rc == SP_OK)
        rc = find_port_pm(findings, topology);
    return rc;
}
