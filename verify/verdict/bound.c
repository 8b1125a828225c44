#include "verify/verdict/bound.h"
#include "base/err.h"
#include "base/file.h"
#include "verify/machine/nvml.h"

#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define UNREADABLE "unreadable"

enum { TEXT_MAX = 65536, CONFIG_BYTES = 4096, LIBRARY_MAX = 256 << 20, NAME = 32, UUID = 64, CHAIN_MAX = 32 };

static const char *const built[] = {"libpar.so", "sgl-pcie-gpu"};

struct reader {
    json_t *table;
    const char *site, *root;
};

struct place {
    char path[PATH_MAX];         /* as resolved */
    const char *part[CHAIN_MAX]; /* host bridge, bridges, GPU; point into path */
    size_t count;
    char device[PATH_MAX]; /* /sys/bus/pci/devices/BDF */
};

/* ---- the table ---- */

static void put(struct reader *reader, const char *key, const char *value)
{
    (void)json_object_set_new(reader->table, key, json_string(value[0] ? value : UNREADABLE));
}

static void put_numbered(struct reader *reader, const char *name, size_t number, const char *value)
{
    char key[NAME];

    (void)snprintf(key, sizeof key, "%s %zu", name, number);
    put(reader, key, value);
}

/* ---- files ---- */

static int path_of(char out[PATH_MAX], const char *root, const char *path)
{
    return snprintf(out, PATH_MAX, "%s%s", root, path) < PATH_MAX ? 0 : -1;
}

static size_t read_bytes(char *out, size_t max, const char *path)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    size_t used = 0;
    ssize_t got = 1;

    while (fd >= 0 && used < max && got > 0) {
        got = read(fd, out + used, max - used);
        used += got > 0 ? (size_t)got : 0;
    }
    if (fd >= 0)
        close(fd);
    return used;
}

/* The text of a small file without the white space around it; "" if it cannot be read. For the caller to free. */
static char *text_of(const char *root, const char *path)
{
    char full[PATH_MAX];
    char *text = calloc(1, TEXT_MAX + 1);
    size_t len = text && path_of(full, root, path) == 0 ? read_bytes(text, TEXT_MAX, full) : 0, skip = 0;

    while (len > 0 && isspace((unsigned char)text[len - 1]))
        text[--len] = '\0';
    while (skip < len && isspace((unsigned char)text[skip]))
        skip++;
    if (text)
        memmove(text, text + skip, len - skip + 1);
    for (size_t i = 0; text && text[i]; i++) /* whatever it is, the table stays text */
        text[i] = (unsigned char)text[i] < 0x80 ? text[i] : '?';
    return text;
}

/* ---- driver ---- */

/* The first number with dots that stands alone: "580.95.05". */
static void version_in(char out[NAME], const char *text)
{
    out[0] = '\0';
    for (const char *at = text; *at && !out[0]; at += strcspn(at, " \t\n"), at += strspn(at, " \t\n")) {
        size_t len = strspn(at, "0123456789.");

        if (len > 2 && len < NAME && isdigit((unsigned char)at[0]) && isdigit((unsigned char)at[len - 1]) &&
            memchr(at, '.', len) && (at[len] == '\0' || isspace((unsigned char)at[len])))
            (void)snprintf(out, NAME, "%.*s", (int)len, at);
    }
}

static int read_driver(struct reader *reader)
{
    char *version = text_of(reader->root, "/sys/module/nvidia/version");
    char *build = text_of(reader->root, "/sys/module/nvidia/srcversion");
    char *line = text_of(reader->root, "/proc/driver/nvidia/version");
    char found[NAME] = "";
    int rc = version && build && line ? SP_OK : sp_err(SP_ECANNOT, "out of memory");

    if (rc == SP_OK && !version[0])
        version_in(found, line);
    if (rc == SP_OK) {
        put(reader, "driver", version[0] ? version : found);
        put(reader, "driver build", build);
    }
    free(version);
    free(build);
    free(line);
    return rc;
}

/* ---- the place of a GPU ---- */

static bool is_part(const char *text)
{
    return sp_is_bdf(text) || sp_is_host_bridge(text);
}

/* A device that is not there keeps its own name as the only part. */
static void find_place(struct place *out, const char *root, const char *bus)
{
    char *rest, *part;

    memset(out, 0, sizeof *out);
    (void)snprintf(out->device, sizeof out->device, "%s/sys/bus/pci/devices/%s", root, bus);
    if (!realpath(out->device, out->path))
        (void)snprintf(out->path, sizeof out->path, "/%s", bus);
    for (part = strtok_r(out->path, "/", &rest); part; part = strtok_r(NULL, "/", &rest))
        if (is_part(part) && out->count < CHAIN_MAX)
            out->part[out->count++] = part;
}

static void put_path(struct reader *reader, size_t number, const struct place *place)
{
    char chain[PATH_MAX] = "";
    size_t used = 0;

    for (size_t i = 0; i < place->count && place->count > 1; i++)
        used += (size_t)snprintf(chain + used, sizeof chain - used, "%s%s", i ? "/" : "", place->part[i]);
    put_numbered(reader, "path", number, chain);
}

/* The width that was trained and the speed that is possible: an idle link slows down, and that is no change. */
static void put_link(struct reader *reader, size_t number, const struct place *place)
{
    char *width = text_of(place->device, "/current_link_width"), *speed = text_of(place->device, "/max_link_speed");
    char text[2 * NAME] = "";

    if (width && speed && width[0] && speed[0])
        (void)snprintf(text, sizeof text, "x%s, to %s", width, speed);
    put_numbered(reader, "link", number, text);
    free(width);
    free(speed);
}

static void put_iommu(struct reader *reader, size_t number, const struct place *place)
{
    char group[PATH_MAX];
    char *type = text_of(place->device, "/iommu_group/type");
    bool none = path_of(group, place->device, "/iommu_group") == 0 && access(place->device, F_OK) == 0 &&
                access(group, F_OK) != 0;

    put_numbered(reader, "iommu", number, type && type[0] ? type : none ? "none" : "");
    free(type);
}

static unsigned le16(const unsigned char *at)
{
    return at[0] | (unsigned)at[1] << 8;
}

/* The control word of Access Control Services. Root alone can read that far. */
static void acs_of(char out[NAME], const char *root, const char *bdf)
{
    unsigned char config[CONFIG_BYTES];
    char path[PATH_MAX];
    unsigned at = 0x100;

    (void)snprintf(path, sizeof path, "%s/sys/bus/pci/devices/%s/config", root, bdf);
    (void)snprintf(out, NAME, UNREADABLE);
    if (read_bytes((char *)config, sizeof config, path) < sizeof config)
        return;
    (void)snprintf(out, NAME, "-");
    for (int seen = 0; at >= 0x100 && at <= CONFIG_BYTES - 8 && seen < 64; seen++) {
        if (le16(config + at) == 0x000d) {
            (void)snprintf(out, NAME, "%02x", le16(config + at + 6));
            return;
        }
        at = le16(config + at + 2) >> 4;
    }
}

static void put_acs(struct reader *reader, size_t number, const struct place *place)
{
    char words[CHAIN_MAX * NAME] = "", word[NAME];
    size_t used = 0;
    bool known = place->count > 0;

    for (size_t i = 1; i + 1 < place->count && known; i++) {
        acs_of(word, reader->root, place->part[i]);
        known = strcmp(word, UNREADABLE) != 0;
        used += (size_t)snprintf(words + used, sizeof words - used, "%s%s", used ? " " : "", word);
    }
    put_numbered(reader, "acs", number, !known ? "" : used ? words : "none");
}

static void put_gpu(struct reader *reader, size_t number, const char *bus, const char *uuid)
{
    struct place place;

    find_place(&place, reader->root, bus);
    put_numbered(reader, "gpu", number, uuid);
    put_path(reader, number, &place);
    put_link(reader, number, &place);
    put_iommu(reader, number, &place);
    put_acs(reader, number, &place);
}

/* ---- which GPUs ---- */

struct gpus {
    size_t count;
    char bus[SP_REC_GPUS_MAX][NAME], uuid[SP_REC_GPUS_MAX][UUID];
};

/* "GPU UUID:   GPU-1a2b…" in a file of the driver; question marks until the GPU was first opened. */
static void uuid_in(char out[UUID], const char *text)
{
    const char *at = strstr(text, "GPU UUID:");
    size_t len = 0;

    out[0] = '\0';
    if (at && (at == text || at[-1] == '\n')) {
        at += strlen("GPU UUID:");
        at += strspn(at, " \t");
        len = strncmp(at, "GPU-", 4) == 0 ? 4 + strspn(at + 4, "0123456789abcdef-") : 0;
    }
    if (len > 4 && len < UUID && (at[len] == '\0' || isspace((unsigned char)at[len])))
        (void)snprintf(out, UUID, "%.*s", (int)len, at);
}

static void add_gpu(struct gpus *gpus, const char *root, const char *name)
{
    char full[PATH_MAX];
    char *text;

    (void)snprintf(full, sizeof full, "%s/proc/driver/nvidia/gpus/%s/information", root, name);
    if (gpus->count == SP_REC_GPUS_MAX || strlen(name) >= NAME || access(full, F_OK) != 0)
        return;
    text = text_of("", full);
    uuid_in(gpus->uuid[gpus->count], text ? text : "");
    for (size_t i = 0; i <= strlen(name); i++)
        gpus->bus[gpus->count][i] = (char)tolower((unsigned char)name[i]);
    gpus->count++;
    free(text);
}

static void gpus_of_proc(struct gpus *out, const char *root)
{
    char folder[PATH_MAX];
    struct dirent **entries;
    int count =
        path_of(folder, root, "/proc/driver/nvidia/gpus") == 0 ? scandir(folder, &entries, NULL, alphasort) : -1;

    out->count = 0;
    for (int i = 0; i < count; i++) {
        if (entries[i]->d_name[0] != '.')
            add_gpu(out, root, entries[i]->d_name);
        free(entries[i]);
    }
    if (count >= 0)
        free(entries);
}

/* In the child. */
static void ask_nvml(int fd, const void *context)
{
    static struct gpus gpus;
    struct sp_nvml *nvml;
    char text[SP_NVML_TEXT];

    (void)context;
    if (sp_nvml_open(&nvml) < 0)
        return;
    for (unsigned i = 0; i < sp_nvml_count(nvml) && i < SP_REC_GPUS_MAX; i++) {
        sp_nvml_text(nvml, i, SP_NVML_BUS_ID, text);
        (void)snprintf(gpus.bus[i], NAME, "%.*s", NAME - 1, text);
        sp_nvml_text(nvml, i, SP_NVML_UUID, text);
        (void)snprintf(gpus.uuid[i], UUID, "%.*s", UUID - 1, text);
        gpus.count++;
    }
    (void)sp_write_all(fd, &gpus, sizeof gpus, "what NVML says");
}

/* Without NVML there is no GPU; but where it hangs nobody knows. */
static int gpus_of_nvml(struct gpus *out)
{
    struct sp_buf answer = SP_BUF_INIT;
    int rc = sp_nvml_ask(&answer, ask_nvml, NULL);

    out->count = 0;
    if (rc == SP_OK && answer.len == sizeof *out)
        memcpy(out, answer.data, sizeof *out);
    if (rc != SP_EHANG) {
        sp_err_clear();
        rc = SP_OK;
    }
    sp_buf_free(&answer);
    return rc;
}

static int read_gpus(struct reader *reader)
{
    static struct gpus gpus; /* large for a stack */
    bool known = true;
    int rc = SP_OK;

    gpus_of_proc(&gpus, reader->root);
    for (size_t i = 0; i < gpus.count; i++)
        known = known && gpus.uuid[i][0];
    if (reader->root[0] == '\0' && (gpus.count == 0 || !known))
        rc = gpus_of_nvml(&gpus);
    for (size_t i = 0; i < gpus.count; i++)
        put_gpu(reader, i, gpus.bus[i], gpus.uuid[i]);
    return rc;
}

/* ---- the install ---- */

int sp_built_sum(char sum[SP_SHA256_HEX + 1], const char *site, const char *name)
{
    struct sp_buf bytes = SP_BUF_INIT;
    char path[PATH_MAX];
    int rc = SP_OK;

    sum[0] = '\0';
    (void)snprintf(path, sizeof path, "%s/sgl_pcie/%s", site, name);
    if (access(path, R_OK) == 0 && sp_read_file(&bytes, path, LIBRARY_MAX) == SP_OK)
        rc = sp_sha256(sum, bytes.data, bytes.len);
    else
        sp_err_clear();
    sp_buf_free(&bytes);
    return rc;
}

static int read_built(struct reader *reader)
{
    char sum[SP_SHA256_HEX + 1];
    int rc = SP_OK;

    for (size_t i = 0; i < sizeof built / sizeof *built && rc == SP_OK; i++) {
        rc = sp_built_sum(sum, reader->site, built[i]);
        if (rc == SP_OK && sum[0])
            put(reader, built[i], sum);
    }
    return rc;
}

static void read_patches(struct reader *reader)
{
    char path[PATH_MAX], key[128], value[NAME];
    struct sp_buf bytes = SP_BUF_INIT;
    json_t *root = NULL, *set, *revision;
    const char *name;
    bool good;

    (void)snprintf(path, sizeof path, "%s/.sgl-pcie/install.json", reader->site);
    if (sp_read_file(&bytes, path, 1 << 20) == SP_OK)
        root = json_loadb(bytes.data, bytes.len, 0, NULL);
    good = json_is_object(json_object_get(root, "sets"));
    json_object_foreach(json_object_get(root, "sets"), name, set)
    {
        revision = json_object_get(set, "revision");
        good = good && json_is_integer(revision);
        (void)snprintf(key, sizeof key, "patch %s", name);
        (void)snprintf(value, sizeof value, "%" JSON_INTEGER_FORMAT, json_integer_value(revision));
        if (good)
            put(reader, key, value);
    }
    if (!good)
        put(reader, "patch", "");
    sp_err_clear();
    json_decref(root);
    sp_buf_free(&bytes);
}

int sp_bound_read(json_t **out, const char *site, const char *root)
{
    struct reader reader = {json_object(), site, root};
    int rc = reader.table ? read_driver(&reader) : sp_err(SP_ECANNOT, "out of memory");

    if (rc == SP_OK)
        rc = read_gpus(&reader);
    if (rc == SP_OK)
        rc = read_built(&reader);
    if (rc == SP_OK)
        read_patches(&reader);
    if (rc < 0) {
        json_decref(reader.table);
        reader.table = NULL;
    }
    *out = reader.table;
    return rc;
}

/* ---- what changed ---- */

static const char *value_of(const json_t *table, const char *key)
{
    const char *value = json_string_value(json_object_get(table, key));

    return value ? value : "absent";
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static size_t collect_keys(const char **keys, size_t used, const json_t *table, const json_t *unless)
{
    const char *key;
    json_t *value;

    json_object_foreach((json_t *)(uintptr_t)table, key, value) if (!json_object_get(unless, key)) keys[used++] = key;
    return used;
}

int sp_bound_changes(json_t **out, const json_t *was, const json_t *is)
{
    const char **keys = calloc(json_object_size(was) + json_object_size(is) + 1, sizeof *keys);
    json_t *list = json_array();
    size_t count = 0;
    int rc = keys && list ? SP_OK : sp_err(SP_ECANNOT, "out of memory");

    if (rc == SP_OK) {
        count = collect_keys(keys, collect_keys(keys, 0, was, NULL), is, was);
        qsort(keys, count, sizeof *keys, by_name);
    }
    for (size_t i = 0; i < count; i++) {
        const char *before = value_of(was, keys[i]), *now = value_of(is, keys[i]);

        if (strcmp(before, now) != 0 && strcmp(before, UNREADABLE) != 0 && strcmp(now, UNREADABLE) != 0)
            (void)json_array_append_new(list, json_sprintf("%s was %s, is %s", keys[i], before, now));
    }
    free(keys);
    *out = rc == SP_OK ? list : NULL;
    if (rc < 0)
        json_decref(list);
    return rc;
}

int sp_bound_since(json_t **out, const json_t *was, const char *site)
{
    json_t *is = NULL;
    int rc = sp_bound_read(&is, site, "");

    if (rc == SP_OK)
        rc = sp_bound_changes(out, was, is);
    else
        *out = rc == SP_EHANG ? json_pack("[s]", sp_err_message()) : NULL;
    if (rc == SP_EHANG && *out) {
        sp_err_clear();
        rc = SP_OK;
    }
    json_decref(is);
    return rc;
}
