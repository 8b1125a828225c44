#include "verify/machine/choose.h"
#include "base/err.h"
#include "verify/machine/nvml.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { NAME_MAX_LEN = 80, UUID_LEAST = 5 };

/* ---- names ---- */

/* A number and nothing else; -1 when it is none. */
static long parse_number(const char *text)
{
    char *end;
    long value = isdigit((unsigned char)text[0]) ? strtol(text, &end, 10) : -1;

    return value >= 0 && *end == '\0' && value < 1000000 ? value : -1;
}

static size_t count_uuids(const struct sp_recording *recording, const char *prefix, size_t *number)
{
    const size_t len = strlen(prefix);
    size_t found = 0;

    for (size_t i = 0; i < recording->gpu_count; i++)
        if (recording->gpus[i].uuid && strncasecmp(recording->gpus[i].uuid, prefix, len) == 0) {
            *number = i;
            found++;
        }
    return found;
}

static bool is_uuid(const char *name)
{
    return strncasecmp(name, "GPU-", 4) == 0 && strlen(name) >= UUID_LEAST;
}

static bool is_mig(const char *name)
{
    return strncasecmp(name, "MIG-", 4) == 0;
}

/* With its domain, without one, or as nvidia-smi writes it: 00000000:16:00.0. */
static bool find_bus(const struct sp_recording *recording, const char *name, size_t *number)
{
    if (strlen(name) == strlen("00000000:16:00.0") && strncmp(name, "0000", 4) == 0)
        name += 4;
    for (size_t i = 0; i < recording->gpu_count; i++)
        if (strcasecmp(recording->gpus[i].bdf, name) == 0 || strcasecmp(recording->gpus[i].bdf + 5, name) == 0) {
            *number = i;
            return true;
        }
    return false;
}

static bool has(const struct sp_choice *choice, size_t number)
{
    for (size_t i = 0; i < choice->count; i++)
        if (choice->number[i] == number)
            return true;
    return false;
}

/* The next entry of a list without the blanks around it. *at moves on; false at the end. */
static bool next_name(char out[NAME_MAX_LEN], const char **at)
{
    const char *text = *at;
    size_t len;

    if (!text)
        return false;
    len = strcspn(text, ",");
    *at = text[len] ? text + len + 1 : NULL;
    while (len > 0 && isspace((unsigned char)*text)) {
        text++;
        len--;
    }
    while (len > 0 && isspace((unsigned char)text[len - 1]))
        len--;
    if (len >= NAME_MAX_LEN)
        len = NAME_MAX_LEN - 1;
    memcpy(out, text, len);
    out[len] = '\0';
    return true;
}

/* ---- none ---- */

/* The driver did not say which there are: what sysfs shows has no UUIDs and no pairs. */
static bool is_mute(const struct sp_recording *recording)
{
    return recording->driver.nvml_error && recording->pair_count == 0;
}

static int no_gpu(const struct sp_recording *recording)
{
    if (recording->driver.nvml_error && strcmp(recording->driver.nvml_error, SP_NVML_HANGS) == 0)
        return sp_err_hint(sp_err(SP_EHANG, SP_NVML_HANGS), "sudo dmesg | grep NVRM");
    if (recording->driver.nvml_error && recording->gpu_count > 0) {
        sp_err(SP_ECANNOT, "%zu NVIDIA GPUs are on the bus, but %s", recording->gpu_count,
               recording->driver.nvml_error);
        return sp_err_hint(SP_ECANNOT, "nvidia-smi; in a container: docker run --gpus all");
    }
    sp_err(SP_ECANNOT, "no GPU%s%s", recording->driver.nvml_error ? ": " : "",
           recording->driver.nvml_error ? recording->driver.nvml_error : "");
    return sp_err_hint(SP_ECANNOT, "run it on the machine with the GPUs; in a container: docker run --gpus all; a "
                                   "recording of another machine: --from FILE");
}

/* ---- --gpus ---- */

static int no_mig(const char *name)
{
    sp_err(SP_ECANNOT, "'%s' is a MIG instance: its GPU offers no peer access, and SGLang cannot use such names", name);
    return sp_err_hint(SP_ECANNOT, "name whole GPUs: --gpus 0,1");
}

static int take(struct sp_choice *out, const struct sp_recording *recording, size_t number, const char *name)
{
    if (number >= recording->gpu_count && is_mute(recording))
        return no_gpu(recording);
    if (number >= recording->gpu_count) {
        sp_err(SP_EUSAGE, "there is no GPU '%s': this machine has %zu", name, recording->gpu_count);
        return sp_err_hint(SP_EUSAGE, "nvidia-smi -L");
    }
    if (has(out, number))
        return sp_err(SP_EUSAGE, "GPU '%s' is named twice", name);
    out->number[out->count++] = number;
    return SP_OK;
}

static int take_uuid(struct sp_choice *out, const struct sp_recording *recording, const char *name)
{
    size_t number = 0, found = count_uuids(recording, name, &number);

    out->uuids = true;
    if (found > 1)
        return sp_err(SP_EUSAGE, "'%s' is the beginning of %zu UUIDs", name, found);
    return take(out, recording, found ? number : SIZE_MAX, name);
}

static int take_range(struct sp_choice *out, const struct sp_recording *recording, char *name)
{
    char *dash = strchr(name, '-');
    long first, last;
    int rc = SP_OK;

    *dash = '\0';
    first = parse_number(name);
    last = parse_number(dash + 1);
    *dash = '-';
    if (first < 0 || last < first)
        return sp_err(SP_EUSAGE, "'%s' is no range of GPUs, like 0-3", name);
    for (long i = first; i <= last && rc == SP_OK; i++)
        rc = take(out, recording, (size_t)i, name);
    return rc;
}

static int take_name(struct sp_choice *out, const struct sp_recording *recording, char *name)
{
    size_t number = 0;

    if (is_mig(name))
        return no_mig(name);
    if (is_uuid(name))
        return take_uuid(out, recording, name);
    if (find_bus(recording, name, &number))
        return take(out, recording, number, name);
    if (isdigit((unsigned char)name[0]) && strchr(name, '-'))
        return take_range(out, recording, name);
    if (parse_number(name) >= 0)
        return take(out, recording, (size_t)parse_number(name), name);
    sp_err(SP_EUSAGE, "'%s' names no GPU", name);
    return sp_err_hint(SP_EUSAGE, "a number, a UUID or an address: --gpus 0,1 or --gpus GPU-1a2b,0000:81:00.0");
}

static int by_list(struct sp_choice *out, const struct sp_recording *recording, const char *list)
{
    char name[NAME_MAX_LEN];
    int rc = SP_OK;

    out->source = "--gpus";
    while (rc == SP_OK && next_name(name, &list))
        rc = take_name(out, recording, name);
    return rc;
}

/* ---- CUDA_VISIBLE_DEVICES ---- */

/* SIZE_MAX: no such GPU, the list ends here. */
static size_t visible_number(struct sp_choice *out, const struct sp_recording *recording, const char *name)
{
    size_t number = SIZE_MAX;
    long value = parse_number(name);

    if (is_uuid(name)) {
        out->uuids = true;
        return count_uuids(recording, name, &number) == 1 ? number : SIZE_MAX;
    }
    return value >= 0 && (size_t)value < recording->gpu_count ? (size_t)value : SIZE_MAX;
}

static bool one_chip(const struct sp_recording *recording)
{
    for (size_t i = 1; i < recording->gpu_count; i++)
        if (recording->gpus[i].device != recording->gpus[0].device)
            return false;
    return true;
}

static int by_visible(struct sp_choice *out, const struct sp_recording *recording, const char *visible,
                      const char *order)
{
    char name[NAME_MAX_LEN];

    out->source = "CUDA_VISIBLE_DEVICES";
    while (next_name(name, &visible)) {
        size_t number;

        if (is_mig(name))
            return no_mig(name);
        number = visible_number(out, recording, name);
        if (number == SIZE_MAX)
            break;
        if (has(out, number)) { /* CUDA then shows none at all */
            out->count = 0;
            break;
        }
        out->number[out->count++] = number;
    }
    out->reordered = !out->uuids && !one_chip(recording) && !(order && strcmp(order, "PCI_BUS_ID") == 0);
    return SP_OK;
}

/* ---- the choice ---- */

int sp_choose_gpus(struct sp_choice *out, const struct sp_recording *recording, const char *list, const char *visible,
                   const char *order)
{
    memset(out, 0, sizeof *out);
    out->source = "all";
    if (list && strcmp(list, "all") != 0)
        return by_list(out, recording, list);
    if (!list && visible)
        return by_visible(out, recording, visible, order);
    for (; out->count < recording->gpu_count; out->count++)
        out->number[out->count] = out->count;
    return SP_OK;
}

int sp_choice_check(const struct sp_choice *choice, const struct sp_recording *recording)
{
    if (recording->gpu_count == 0 || is_mute(recording))
        return no_gpu(recording);
    if (choice->count >= 2)
        return SP_OK;
    if (recording->gpu_count >= 2) {
        sp_err(SP_ECANNOT, "%s leaves %s of %zu GPUs: an all-reduce needs two", choice->source,
               choice->count ? "one" : "none", recording->gpu_count);
        return sp_err_hint(SP_ECANNOT, "--gpus all");
    }
    sp_err(SP_ECANNOT, "this machine has one GPU: an all-reduce needs two");
    return sp_err_hint(SP_ECANNOT, "nothing: with one GPU SGLang makes no all-reduce");
}
