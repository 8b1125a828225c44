#include "base/err.h"
#include "verify/machine/gather.h"
#include "verify/machine/nvml.h"
#include "verify/machine/openers.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { USED_LEAST = 128 << 20 }; /* a CUDA context takes more, an idle GPU a few MiB */

static char *text_of(const struct sp_nvml *nvml, unsigned gpu, enum sp_nvml_text what)
{
    char text[SP_NVML_TEXT];

    sp_nvml_text(nvml, gpu, what, text);
    return text[0] ? strdup(text) : NULL;
}

static char *copy(const char *text)
{
    return text ? strdup(text) : NULL;
}

static char *capability(const struct sp_nvml *nvml, unsigned gpu)
{
    char text[64];
    int64_t major, minor;

    sp_nvml_capability(nvml, gpu, &major, &minor);
    if (major == SP_ABSENT)
        return NULL;
    (void)snprintf(text, sizeof text, "%jd.%jd", (intmax_t)major, (intmax_t)minor);
    return strdup(text);
}

static char *virtualization(int64_t mode)
{
    static const char *const names[] = {"none", "passthrough", "vgpu", "host", "host"};

    return mode >= 0 && mode < (int64_t)(sizeof names / sizeof *names) ? strdup(names[mode]) : NULL;
}

static int add_gpu(struct sp_recording *recording, const struct sp_nvml *nvml, unsigned gpu)
{
    struct sp_rec_gpu *out;
    void *item;
    int rc = sp_recording_add(&item, recording, "gpus");

    if (rc < 0)
        return rc;
    out = item;
    out->bdf = text_of(nvml, gpu, SP_NVML_BUS_ID);
    out->uuid = text_of(nvml, gpu, SP_NVML_UUID);
    out->name = text_of(nvml, gpu, SP_NVML_NAME);
    out->device = sp_nvml_device(nvml, gpu);
    out->capability = capability(nvml, gpu);
    out->memory = sp_nvml_memory(nvml, gpu);
    out->bar1 = sp_nvml_bar1(nvml, gpu);
    out->generation = sp_nvml_number(nvml, gpu, SP_NVML_GENERATION);
    out->width = sp_nvml_number(nvml, gpu, SP_NVML_WIDTH);
    out->max_generation = sp_nvml_number(nvml, gpu, SP_NVML_MAX_GENERATION);
    out->max_width = sp_nvml_number(nvml, gpu, SP_NVML_MAX_WIDTH);
    out->gpu_max_generation = sp_nvml_number(nvml, gpu, SP_NVML_GPU_MAX_GENERATION);
    out->pstate = sp_nvml_number(nvml, gpu, SP_NVML_PSTATE);
    out->display = sp_nvml_number(nvml, gpu, SP_NVML_DISPLAY);
    out->persistence = sp_nvml_number(nvml, gpu, SP_NVML_PERSISTENCE);
    out->mig = sp_nvml_mig(nvml, gpu);
    out->virtualization = virtualization(sp_nvml_number(nvml, gpu, SP_NVML_VIRTUALIZATION));
    return out->bdf ? SP_OK : sp_err(SP_ECANNOT, "NVML does not say where GPU %u is on the bus", gpu);
}

static int add_pair(struct sp_recording *recording, const struct sp_nvml *nvml, unsigned from, unsigned to)
{
    struct sp_rec_pair *pair;
    void *item;
    int rc = sp_recording_add(&item, recording, "pairs");

    if (rc < 0)
        return rc;
    pair = item;
    pair->from = from;
    pair->to = to;
    pair->label = copy(sp_nvml_label(nvml, from, to));
    pair->read = copy(sp_nvml_p2p(nvml, from, to, SP_NVML_READ));
    pair->write = copy(sp_nvml_p2p(nvml, from, to, SP_NVML_WRITE));
    pair->nvlink = copy(sp_nvml_p2p(nvml, from, to, SP_NVML_NVLINK));
    pair->atomics = copy(sp_nvml_p2p(nvml, from, to, SP_NVML_ATOMICS));
    return SP_OK;
}

static int add_process(struct sp_recording *recording, unsigned gpu, int64_t pid, int64_t memory)
{
    void *item;
    int rc = sp_recording_add(&item, recording, "processes");

    if (rc == SP_OK)
        *(struct sp_rec_process *)item = (struct sp_rec_process){.gpu = gpu, .pid = pid, .memory = memory};
    return rc;
}

/* Memory is in use, and NVML names nobody: as in a container, where it knows the host's process numbers only. Named are
 * all who have CUDA's device open; 0 stands for somebody outside. A GPU with a display has memory in use anyway. */
static int add_hidden(struct sp_recording *recording, const struct sp_nvml *nvml, unsigned gpu)
{
    const int64_t used = sp_nvml_used(nvml, gpu);
    int64_t pids[SP_NVML_PROCESSES];
    size_t count;
    int rc = SP_OK;

    if (used < USED_LEAST || sp_nvml_number(nvml, gpu, SP_NVML_DISPLAY) == 1)
        return rc;
    count = sp_openers(pids, SP_NVML_PROCESSES, "/dev/nvidia-uvm");
    if (count == 0)
        return add_process(recording, gpu, 0, used);
    for (size_t i = 0; i < count && rc == SP_OK; i++)
        rc = add_process(recording, gpu, pids[i], SP_ABSENT);
    return rc;
}

static int add_processes(struct sp_recording *recording, const struct sp_nvml *nvml, unsigned gpu)
{
    int64_t pids[SP_NVML_PROCESSES];
    size_t count;
    int rc = SP_OK;

    sp_nvml_processes(nvml, gpu, pids, &count);
    for (size_t i = 0; i < count && rc == SP_OK; i++)
        rc = add_process(recording, gpu, pids[i], SP_ABSENT);
    return rc == SP_OK && count == 0 ? add_hidden(recording, nvml, gpu) : rc;
}

static int read_all(struct sp_recording *recording, const struct sp_nvml *nvml)
{
    const unsigned count = sp_nvml_count(nvml);
    int rc = SP_OK;

    for (unsigned i = 0; i < count && rc == SP_OK; i++) {
        rc = add_gpu(recording, nvml, i);
        if (rc == SP_OK)
            rc = add_processes(recording, nvml, i);
    }
    for (unsigned i = 0; i < count * count && rc == SP_OK; i++)
        if (i / count != i % count)
            rc = add_pair(recording, nvml, i / count, i % count);
    return rc;
}

static int read_here(struct sp_recording *recording)
{
    char version[SP_NVML_TEXT];
    struct sp_nvml *nvml;
    int rc = sp_nvml_open(&nvml);

    if (rc < 0)
        return rc;
    sp_nvml_driver(nvml, version);
    recording->driver.version = version[0] ? strdup(version) : NULL;
    recording->driver.cuda = sp_nvml_cuda(nvml);
    rc = read_all(recording, nvml);
    sp_nvml_close(nvml);
    return rc;
}

/* ---- the child: NVML on a machine with a wedged GPU does not return ---- */

static void ask(int fd, const void *context)
{
    struct sp_recording recording;
    json_t *json;

    (void)context;
    sp_recording_init(&recording);
    if (read_here(&recording) < 0)
        recording.driver.nvml_error = strdup(sp_err_message());
    json = sp_recording_json(&recording);
    (void)json_dumpfd(json, fd, JSON_COMPACT);
    json_decref(json);
    sp_recording_free(&recording);
}

/* ---- the parent ---- */

#define TAKE(field)                                                                                                    \
    do {                                                                                                               \
        to->field = from->field;                                                                                       \
        memset(&from->field, 0, sizeof from->field);                                                                   \
    } while (0)

/* What NVML knows; what sysfs said before stays. */
static void take(struct sp_recording *to, struct sp_recording *from)
{
    TAKE(gpus);
    TAKE(gpu_count);
    TAKE(pairs);
    TAKE(pair_count);
    TAKE(processes);
    TAKE(process_count);
    TAKE(driver.nvml_error);
    to->driver.cuda = from->driver.cuda;
    if (!to->driver.version)
        TAKE(driver.version);
}

int sp_gather_nvml(struct sp_recording *recording)
{
    struct sp_buf text = SP_BUF_INIT;
    struct sp_recording answer;
    int rc = sp_nvml_ask(&text, ask, NULL);

    if (rc == SP_OK)
        rc = sp_recording_parse(&answer, text.data ? text.data : "", text.len, "what NVML says");
    else
        sp_recording_init(&answer);
    if (rc == SP_OK)
        take(recording, &answer);
    else
        recording->driver.nvml_error = strdup(sp_err_message());
    sp_err_clear();
    sp_recording_free(&answer);
    sp_buf_free(&text);
    return SP_OK;
}
