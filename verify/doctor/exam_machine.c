/*
 * The machine: driver, toolchain, devices, limits.
 */
#include "base/err.h"
#include "build/toolchain.h"
#include "verify/doctor/doctor.h"
#include "verify/machine/nvml.h"

#include <stdlib.h>
#include <string.h>

static const int64_t SHM_LEAST = INT64_C(1) << 30, MEMLOCK_LEAST = INT64_C(64) << 20;

int sp_exam_driver(struct sp_findings *findings, const struct sp_patient *patient)
{
    const struct sp_recording *recording = &patient->survey->recording;

    if (!recording->driver.nvml_error && recording->gpu_count > 0)
        return SP_OK;
    if (recording->driver.nvml_error && strcmp(recording->driver.nvml_error, SP_NVML_HANGS) == 0)
        return sp_finding_add(findings, "driver.hangs", SP_BAD, "sudo dmesg | grep NVRM", SP_NVML_HANGS);
    if (!recording->driver.nvml_error)
        return sp_finding_add(findings, "driver.no-gpu", SP_WARN, "nvidia-smi; in a container: docker run --gpus all",
                              "the driver sees no GPU");
    return sp_finding_add(findings, "driver.none", SP_WARN,
                          recording->gpu_count > 0 || patient->around->devices
                              ? "nvidia-smi; after an update of the driver: boot again"
                              : "in a container: docker run --gpus all; without GPUs only patching and building work",
                          "%s%s", recording->driver.nvml_error,
                          recording->gpu_count > 0 ? ", although GPUs are on the bus" : "");
}

/* ---- the toolchain ---- */

/* What a compiler said over several lines, in one. */
static void join_lines(char *text)
{
    char *out = text;

    for (const char *at = text; at && *at; at++) {
        const bool gap = *at == '\n' || *at == ' ';

        if (!gap || (out > text && out[-1] != ' '))
            *out++ = *at == '\n' ? ' ' : *at;
    }
    if (out)
        *out = '\0';
}

int sp_around_toolchain(struct sp_around *around, const struct sp_install *install)
{
    struct sp_toolchain tools;
    int rc = sp_toolchain_find(&tools, install);

    if (rc == SP_OK) {
        around->nvcc = strdup(tools.nvcc_version);
        around->nvcc_major = sp_toolchain_major(&tools);
    } else {
        around->no_nvcc = strdup(sp_err_message());
        around->get_nvcc = *sp_err_hint_text() ? strdup(sp_err_hint_text()) : NULL;
        join_lines(around->no_nvcc);
        sp_err_clear();
    }
    sp_toolchain_free(&tools);
    return SP_OK;
}

int sp_exam_toolchain(struct sp_findings *findings, const struct sp_patient *patient)
{
    const struct sp_around *around = patient->around;
    const int64_t cuda = patient->survey->recording.driver.cuda;

    if (!around->nvcc)
        return sp_finding_add(findings, "toolchain.none", SP_WARN,
                              around->get_nvcc ? around->get_nvcc : "name an nvcc that works with SGL_PCIE_NVCC", "%s",
                              around->no_nvcc ? around->no_nvcc : "no nvcc");
    if (cuda != SP_ABSENT && around->nvcc_major > (unsigned)(cuda / 1000))
        return sp_finding_add(findings, "toolchain.too-new", SP_BAD,
                              "an nvcc of the driver's CUDA, named with SGL_PCIE_NVCC, or a newer driver",
                              "nvcc is %s, and the driver supports CUDA up to %jd.%jd: it cannot run what nvcc makes",
                              around->nvcc, (intmax_t)(cuda / 1000), (intmax_t)(cuda % 1000 / 10));
    return SP_OK;
}

/* ---- devices and limits ---- */

int sp_exam_devices(struct sp_findings *findings, const struct sp_patient *patient)
{
    if (!patient->around->devices || patient->around->may_open)
        return SP_OK;
    return sp_finding_add(findings, "devices.denied", SP_BAD,
                          patient->around->container
                              ? "docker run --gpus all"
                              : "sudo usermod -aG \"$(stat -c %G /dev/nvidiactl)\" \"$USER\" # and log in "
                                "again",
                          "this user may not open /dev/nvidiactl");
}

static int find_shm(struct sp_findings *findings, const struct sp_around *around)
{
    if (around->shm_bytes != SP_ABSENT && around->shm_bytes >= SHM_LEAST)
        return SP_OK;
    return sp_finding_add(findings, "limits.shm", SP_WARN,
                          around->container ? "docker run --ipc=host, or --shm-size=16g"
                                            : "sudo mount -o remount,size=50% /dev/shm",
                          "/dev/shm has %jd MiB: NCCL and SGLang need 1 GiB or more",
                          (intmax_t)(around->shm_bytes == SP_ABSENT ? 0 : around->shm_bytes >> 20));
}

/* CUDA pins memory without counting it; what counts is what else pins: RDMA, and old NCCL. */
static int find_memlock(struct sp_findings *findings, const struct sp_around *around)
{
    if (around->memlock == SP_UNLIMITED || around->memlock >= MEMLOCK_LEAST)
        return SP_OK;
    return sp_finding_add(findings, "limits.memlock", SP_INFO,
                          around->container ? "docker run --ulimit memlock=-1"
                                            : "ulimit -l unlimited # for a service: LimitMEMLOCK=infinity",
                          "locked memory is limited to %jd KiB", (intmax_t)(around->memlock >> 10));
}

int sp_exam_limits(struct sp_findings *findings, const struct sp_patient *patient)
{
    int rc = find_shm(findings, patient->around);

    return rc < 0 ? rc : find_memlock(findings, patient->around);
}

int sp_exam_persistence(struct sp_findings *findings, const struct sp_patient *patient)
{
    const struct sp_recording *recording = &patient->survey->recording;

    for (size_t i = 0; i < recording->gpu_count; i++)
        if (recording->gpus[i].persistence == 0)
            return sp_finding_add(findings, "persistence.off", SP_WARN,
                                  "sudo systemctl enable --now nvidia-persistenced || sudo nvidia-smi -pm 1",
                                  "persistence mode is off on GPU %zu: the first process waits for the driver, and "
                                  "settings are lost when the last one ends",
                                  i);
    return SP_OK;
}
