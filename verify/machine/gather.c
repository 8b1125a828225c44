#include "verify/machine/gather.h"
#include "base/err.h"
#include "verify/machine/pseudo.h"

#include <ctype.h>
#include <dirent.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the processor ---- */

/* The value of "name : value" in /proc/cpuinfo's first block; allocated, or NULL. */
static char *cpuinfo(const char *text, const char *name)
{
    size_t len = strlen(name);

    for (const char *line = text; *line && *line != '\n'; line += strcspn(line, "\n") + 1) {
        const char *colon = strchr(line, ':');

        if (strncmp(line, name, len) == 0 && colon && strspn(line + len, "\t ") == (size_t)(colon - line) - len)
            return strndup(colon + 2, strcspn(colon + 2, "\n"));
        if (!strchr(line, '\n'))
            break;
    }
    return NULL;
}

static int64_t cpuinfo_number(const char *text, const char *name)
{
    char *value = cpuinfo(text, name);
    int64_t number = value && isdigit((unsigned char)*value) ? strtoll(value, NULL, 10) : SP_ABSENT;

    free(value);
    return number;
}

static void read_cpu(struct sp_rec_machine *machine, const char *root)
{
    char text[SP_PSEUDO_MAX], *flags;

    if (sp_pseudo_read(text, sizeof text, "%s/proc/cpuinfo", root) == 0)
        return;
    machine->cpu_vendor = cpuinfo(text, "vendor_id");
    machine->cpu = cpuinfo(text, "model name");
    machine->family = cpuinfo_number(text, "cpu family");
    machine->model = cpuinfo_number(text, "model");
    flags = cpuinfo(text, "flags");
    if (flags)
        machine->hypervisor = strstr(flags, " hypervisor") != NULL;
    free(flags);
}

/* ---- the system ---- */

/* Options that say how PCIe, the IOMMU and the driver are used; others are nobody's business. */
static bool matters(const char *option)
{
    static const char *const prefixes[] = {"iommu",      "amd_iommu", "intel_iommu",      "pci=", "pcie_", "nvidia",
                                           "rcutree.gp", "uvm_",      "default_hugepages"};

    for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes; i++)
        if (strncmp(option, prefixes[i], strlen(prefixes[i])) == 0)
            return true;
    return false;
}

static void read_options(struct sp_rec_machine *machine, const char *root)
{
    char text[4096], kept[SP_REC_TEXT_MAX] = "";
    size_t used = 0;

    if (sp_pseudo_read(text, sizeof text, "%s/proc/cmdline", root) == 0)
        return;
    for (char *save = NULL, *word = strtok_r(text, " \n", &save); word; word = strtok_r(NULL, " \n", &save)) {
        size_t len = strlen(word);

        if (!matters(word) || used + len + 2 > sizeof kept)
            continue;
        used += (size_t)snprintf(kept + used, sizeof kept - used, "%s%s", used ? " " : "", word);
    }
    machine->options = strdup(kept);
}

/* KEY=value or KEY="value" of os-release. */
static char *release_field(const char *text, const char *key)
{
    size_t len = strlen(key);

    for (const char *line = text; line; line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL) {
        const char *value = line + len + 1;

        if (strncmp(line, key, len) != 0 || line[len] != '=')
            continue;
        value += *value == '"';
        return strndup(value, strcspn(value, "\"\n"));
    }
    return NULL;
}

static void read_release(struct sp_rec_machine *machine, const char *root)
{
    char text[4096];

    if (sp_pseudo_read(text, sizeof text, "%s/etc/os-release", root) == 0)
        return;
    machine->distribution = release_field(text, "ID");
    machine->distribution_like = release_field(text, "ID_LIKE");
}

static int64_t count_entries(const char *root, const char *path)
{
    char name[PATH_MAX];
    int64_t count = 0;
    DIR *dir;

    (void)snprintf(name, sizeof name, "%s%s", root, path);
    dir = opendir(name);
    if (!dir)
        return SP_ABSENT;
    for (struct dirent *entry; (entry = readdir(dir)) != NULL;)
        count += entry->d_name[0] != '.';
    closedir(dir);
    return count;
}

static void read_driver(struct sp_rec_driver *driver, const char *root)
{
    char text[SP_PSEUDO_MAX], *line;

    driver->version = sp_pseudo_line("%s/sys/module/nvidia/version", root);
    if (sp_pseudo_read(text, sizeof text, "%s/proc/driver/nvidia/version", root) > 0)
        driver->module = strdup(strstr(text, "Open Kernel Module") ? "open" : "proprietary");
    if (sp_pseudo_read(text, sizeof text, "%s/proc/driver/nvidia/params", root) == 0)
        return;
    line = strstr(text, "RegistryDwords: ");
    if (line) {
        line += strlen("RegistryDwords: ");
        line += *line == '"';
        driver->registry = strndup(line, strcspn(line, "\"\n"));
    }
}

/* ---- NUMA nodes ---- */

static int add_node(struct sp_recording *recording, const char *root, int64_t number)
{
    struct sp_rec_node *node;
    void *item;
    int rc = sp_recording_add(&item, recording, "nodes");

    if (rc < 0)
        return rc;
    node = item;
    node->node = number;
    node->cpus = sp_pseudo_line("%s/sys/devices/system/node/node%jd/cpulist", root, (intmax_t)number);
    if (node->cpus && isdigit((unsigned char)node->cpus[0]))
        node->socket =
            sp_pseudo_number("%s/sys/devices/system/cpu/cpu%d/topology/physical_package_id", root, atoi(node->cpus));
    if (node->socket < 0) /* -1 in some guests: not known */
        node->socket = SP_ABSENT;
    return SP_OK;
}

static int read_nodes(struct sp_recording *recording, const char *root)
{
    char name[PATH_MAX];
    struct dirent **entries = NULL;
    int count, rc = SP_OK;

    (void)snprintf(name, sizeof name, "%s/sys/devices/system/node", root);
    count = scandir(name, &entries, NULL, versionsort);
    for (int i = 0; i < count; i++) {
        if (rc == SP_OK && strncmp(entries[i]->d_name, "node", 4) == 0 && isdigit((unsigned char)entries[i]->d_name[4]))
            rc = add_node(recording, root, atoi(entries[i]->d_name + 4));
        free(entries[i]);
    }
    free(entries);
    return rc;
}

static int gather_machine(struct sp_recording *recording, const char *root)
{
    struct sp_rec_machine *machine = &recording->machine;

    read_cpu(machine, root);
    machine->board = sp_pseudo_line("%s/sys/class/dmi/id/board_name", root);
    machine->product = sp_pseudo_line("%s/sys/class/dmi/id/product_name", root);
    machine->kernel = sp_pseudo_line("%s/proc/sys/kernel/osrelease", root);
    machine->iommu_units = count_entries(root, "/sys/class/iommu");
    read_options(machine, root);
    read_release(machine, root);
    read_driver(&recording->driver, root);
    return read_nodes(recording, root);
}

/* Bytes of a text that are not printable ASCII: firmware fills strings with what it likes. */
static void clean_text(char *text)
{
    for (; text && *text; text++)
        if (*text < ' ' || *text > '~')
            *text = '?';
}

int sp_gather(struct sp_recording *out, const char *root)
{
    int rc;

    sp_recording_init(out);
    out->source = strdup("live");
    rc = gather_machine(out, root);
    if (rc == SP_OK && root[0] == '\0')
        rc = sp_gather_nvml(out);
    if (rc == SP_OK)
        rc = sp_gather_pci(out, root);
    if (rc == SP_OK && root[0] == '\0')
        rc = sp_gather_cuda(out);
    clean_text(out->machine.cpu);
    clean_text(out->machine.board);
    clean_text(out->machine.product);
    clean_text(out->driver.registry);
    return rc;
}
