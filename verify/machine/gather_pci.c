/*
 * The GPUs and every bridge above them, from sysfs.
 *
 * The path of a device in /sys/devices is the path to the root: /sys/devices/pci0000:80/0000:80:01.1/0000:81:00.0.
 * ACS has no file of its own: it is read from the extended configuration space, which needs CAP_SYS_ADMIN.
 */
#include "base/err.h"
#include "verify/machine/gather.h"
#include "verify/machine/pseudo.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { NVIDIA = 0x10de, CLASS_DISPLAY = 0x03, CONFIG = 4096, CONFIG_HEADER = 256, CAPABILITY_ACS = 0x0d };

/* ---- extended configuration space ---- */

static unsigned word(const unsigned char *at)
{
    return at[0] | (unsigned)at[1] << 8;
}

static unsigned dword(const unsigned char *at)
{
    return word(at) | word(at + 2) << 16;
}

/* Offset of an extended capability, 0 when there is none. Each step goes somewhere new, or the count ends it. */
static unsigned find_capability(const unsigned char *config, unsigned id)
{
    unsigned at = CONFIG_HEADER;

    for (int left = CONFIG / 8; left > 0 && at >= CONFIG_HEADER && at <= CONFIG - 8; left--) {
        unsigned header = dword(config + at);

        if (header == 0 || header == 0xffffffff)
            return 0;
        if ((header & 0xffff) == id)
            return at;
        at = header >> 20 & 0xffc;
    }
    return 0;
}

static void read_acs(struct sp_rec_pci *pci, const char *root, int64_t *privileged)
{
    unsigned char config[CONFIG + 1];
    size_t len = sp_pseudo_read((char *)config, sizeof config, "%s/sys/bus/pci/devices/%s/config", root, pci->bdf);
    unsigned at;

    /* 64 bytes without the privilege. 256: a conventional device, which has no ACS either way. */
    if (len != CONFIG && len != CONFIG_HEADER) {
        if (len > 0 && *privileged == SP_ABSENT)
            *privileged = 0;
        return;
    }
    *privileged = 1;
    at = len == CONFIG ? find_capability(config, CAPABILITY_ACS) : 0;
    pci->acs = at ? (int64_t)word(config + at + 6) : SP_ACS_NONE;
    pci->acs_offset = at ? (int64_t)at : SP_ABSENT;
}

/* ---- one function ---- */

/* "16.0 GT/s PCIe", "16 GT/s", "Unknown" */
static double speed(const char *root, const char *bdf, const char *file)
{
    char text[64], *end;
    double value;

    if (sp_pseudo_read(text, sizeof text, "%s/sys/bus/pci/devices/%s/%s", root, bdf, file) == 0)
        return -1;
    value = strtod(text, &end);
    return end == text || !(value > 0 && value < 1e4) ? -1 : value;
}

/* 255 lanes: the link is down. */
static int64_t width(const char *root, const char *bdf, const char *file)
{
    int64_t lanes = sp_pseudo_number("%s/sys/bus/pci/devices/%s/%s", root, bdf, file);

    return lanes > 0 && lanes <= 32 ? lanes : SP_ABSENT;
}

/* Second line of "resource": start, end, flags. A line of zeros is a BAR without an address. */
static int64_t bar1(const char *root, const char *bdf)
{
    char text[4096];
    const char *line = sp_pseudo_read(text, sizeof text, "%s/sys/bus/pci/devices/%s/resource", root, bdf) > 0
                           ? strchr(text, '\n')
                           : NULL;
    unsigned long long start, end;

    if (!line || sscanf(line + 1, "%llx %llx", &start, &end) != 2 || end <= start || end - start > INT64_MAX - 1)
        return SP_ABSENT;
    return (int64_t)(end - start + 1);
}

static void read_group(struct sp_rec_pci *pci, const char *root)
{
    char path[PATH_MAX], target[PATH_MAX];
    ssize_t len;

    (void)snprintf(path, sizeof path, "%s/sys/bus/pci/devices/%s/iommu_group", root, pci->bdf);
    len = readlink(path, target, sizeof target - 1);
    if (len <= 0)
        return;
    target[len] = '\0';
    pci->group = strrchr(target, '/') ? atoll(strrchr(target, '/') + 1) : SP_ABSENT;
    pci->group_type = sp_pseudo_line("%s/sys/bus/pci/devices/%s/iommu_group/type", root, pci->bdf);
}

static void read_function(struct sp_rec_pci *pci, const char *root, int64_t *privileged)
{
#define NUMBER(file) sp_pseudo_number("%s/sys/bus/pci/devices/%s/" file, root, pci->bdf)
    pci->vendor = NUMBER("vendor");
    pci->device = NUMBER("device");
    pci->class = NUMBER("class");
    pci->numa = NUMBER("numa_node");
#undef NUMBER
    pci->cpus = sp_pseudo_line("%s/sys/bus/pci/devices/%s/local_cpulist", root, pci->bdf);
    pci->speed = speed(root, pci->bdf, "current_link_speed");
    pci->max_speed = speed(root, pci->bdf, "max_link_speed");
    pci->width = width(root, pci->bdf, "current_link_width");
    pci->max_width = width(root, pci->bdf, "max_link_width");
    if (pci->vendor == NVIDIA)
        pci->bar1 = bar1(root, pci->bdf);
    read_group(pci, root);
    read_acs(pci, root, privileged);
}

/* ---- the path to the root ---- */

static int add_function(struct sp_recording *recording, const char *root, const char *bdf, const char *parent)
{
    struct sp_rec_pci *pci;
    void *item;
    int rc;

    if (sp_recording_pci(recording, bdf))
        return SP_OK;
    rc = sp_recording_add(&item, recording, "pci");
    if (rc < 0)
        return rc;
    pci = item;
    pci->bdf = strdup(bdf);
    pci->parent = strdup(parent);
    if (!pci->bdf || !pci->parent)
        return sp_err(SP_ECANNOT, "out of memory");
    read_function(pci, root, &recording->machine.privileged);
    return SP_OK;
}

/* Every component from the host bridge on, parents first. */
static int add_path(struct sp_recording *recording, const char *root, char *path)
{
    char *save = NULL;
    const char *parent = NULL;
    int rc = SP_OK;

    for (char *part = strtok_r(path, "/", &save); part && rc == SP_OK; part = strtok_r(NULL, "/", &save)) {
        if (sp_is_host_bridge(part)) {
            parent = part;
        } else if (parent && sp_is_bdf(part)) {
            rc = add_function(recording, root, part, parent);
            parent = part;
        }
    }
    return rc;
}

static int add_device(struct sp_recording *recording, const char *root, const char *bdf)
{
    char link[PATH_MAX], path[PATH_MAX];

    (void)snprintf(link, sizeof link, "%s/sys/bus/pci/devices/%s", root, bdf);
    return realpath(link, path) ? add_path(recording, root, path) : SP_OK;
}

/* ---- GPUs that only sysfs knows: there is no driver ---- */

static int add_gpu(struct sp_recording *recording, const char *root, const char *bdf)
{
    struct sp_rec_gpu *gpu;
    void *item;
    int rc = sp_recording_add(&item, recording, "gpus");

    if (rc < 0)
        return rc;
    gpu = item;
    gpu->bdf = strdup(bdf);
    gpu->device = sp_pseudo_number("%s/sys/bus/pci/devices/%s/device", root, bdf);
    return gpu->bdf ? SP_OK : sp_err(SP_ECANNOT, "out of memory");
}

static bool is_gpu(const char *root, const char *bdf)
{
    int64_t class = sp_pseudo_number("%s/sys/bus/pci/devices/%s/class", root, bdf);

    return class != SP_ABSENT && class >> 16 == CLASS_DISPLAY &&
           sp_pseudo_number("%s/sys/bus/pci/devices/%s/vendor", root, bdf) == NVIDIA;
}

static int find_gpus(struct sp_recording *recording, const char *root)
{
    char name[PATH_MAX];
    struct dirent **entries = NULL;
    int count, rc = SP_OK;

    (void)snprintf(name, sizeof name, "%s/sys/bus/pci/devices", root);
    count = scandir(name, &entries, NULL, alphasort);
    for (int i = 0; i < count; i++) {
        if (rc == SP_OK && sp_is_bdf(entries[i]->d_name) && is_gpu(root, entries[i]->d_name))
            rc = add_gpu(recording, root, entries[i]->d_name);
        free(entries[i]);
    }
    free(entries);
    return rc;
}

int sp_gather_pci(struct sp_recording *recording, const char *root)
{
    int rc = recording->gpu_count == 0 ? find_gpus(recording, root) : SP_OK;

    for (size_t i = 0; i < recording->gpu_count && rc == SP_OK; i++)
        rc = add_device(recording, root, recording->gpus[i].bdf);
    return rc;
}
