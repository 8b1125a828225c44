/*
 * The doctor: small examinations of a machine, its environment and an install, each of which adds findings.
 *
 * An examination is one function and one line in sp_exams[] (exams.c). Its filter says why it makes no sense here, and
 * it is then skipped with that reason; a doctor who could not look never says "clean".
 *
 * Examinations read nothing but the patient, except for those of an install, which look at its files and ask its
 * Python. So those that no machine at hand can make fail are tested on made-up patients.
 *
 * Findings besides those of a topology (findings.h); their ids never change their meaning either:
 *
 * | id                       | says                                                                      |
 * |--------------------------|---------------------------------------------------------------------------|
 * | driver.none              | no driver answers                                                         |
 * | driver.hangs             | NVML did not answer within a minute                                       |
 * | driver.no-gpu            | the driver sees no GPU                                                    |
 * | toolchain.none           | no nvcc that can be used                                                  |
 * | toolchain.too-new        | the driver cannot run what this nvcc makes                                |
 * | devices.denied           | this user may not open the GPUs                                           |
 * | limits.shm               | /dev/shm is too small for NCCL and SGLang                                 |
 * | limits.memlock           | locked memory is limited                                                  |
 * | persistence.off          | the driver does not stay loaded                                           |
 * | visible.mig              | CUDA_VISIBLE_DEVICES names MIG instances                                  |
 * | visible.uuid             | it names GPUs by UUID, which SGLang cannot read                           |
 * | visible.numbers          | it is no list of numbers, which SGLang cannot read                        |
 * | visible.order            | CUDA numbers the GPUs otherwise than the bus does                         |
 * | settings.flag            | the flag is a word that SGLang cannot read                                |
 * | settings.backend         | so is SGLANG_PCIE_AR_BACKEND                                              |
 * | settings.timeout         | so is SGLANG_PCIE_AR_TIMEOUT_S                                            |
 * | settings.state           | SGL_PCIE_STATE is no path from the root                                   |
 * | settings.limits          | SGLANG_PCIE_UPSTREAM_LIMITS is not two numbers of bytes                   |
 * | settings.pythonpath      | PYTHONPATH leads to another SGLang                                        |
 * | settings.stock           | the flag is 0                                                             |
 * | settings.unsafe          | the flag is unsafe                                                        |
 * | settings.nccl-p2p        | NCCL does without peer access                                             |
 * | settings.launch-blocking | every kernel is waited for                                                |
 * | bypass.disabled          | a server runs without any custom all-reduce                               |
 * | bypass.deterministic     | and so does one in deterministic mode                                     |
 * | bypass.symm-mem          | NCCL's symmetric memory is asked before ours, or after it, by the release |
 * | bypass.torch-symm-mem    | torch's symmetric memory is asked after ours                              |
 * | bypass.mscclpp           | MSCCL++ is asked before ours                                              |
 * | bypass.flashinfer        | FlashInfer does the all-reduce together with the norm                     |
 * | bypass.host-staged       | an all-reduce through host memory is asked before ours                    |
 * | bypass.pcie-ipc          | SGLang's own PCIe all-reduce is asked after ours                          |
 * | bypass.v2                | SGLang's V2 is asked for, and closed over PCIe                            |
 * | servers.graphs           | graphs for batches that never come take memory from the KV cache          |
 * | access.denied            | this user may not write to the install                                    |
 * | access.managed           | its Python is marked EXTERNALLY-MANAGED                                   |
 * | plugins.present          | SGLang loads a plugin                                                     |
 * | plugins.replace          | and it touches what the patch hooks                                       |
 * | bytecode.unchecked       | Python takes bytecode in place of a patched file                          |
 * | leftovers.side-files     | side files of a write whose journal is gone                               |
 * | uv-cache.contaminated    | uv's cache does not hold SGLang as released                               |
 */
#ifndef SP_DOCTOR_DOCTOR_H
#define SP_DOCTOR_DOCTOR_H

#include "patcher/plan.h"
#include "verify/doctor/around.h"
#include "verify/machine/survey.h"

struct sp_patient {
    const struct sp_survey *survey;
    const struct sp_around *around;
    const struct sp_install *install; /* NULL: none */
    const struct sp_patchsets *sets;  /* NULL: none */
    const struct sp_plan *plan;       /* NULL: none */
    const char *no_install;           /* why there is none */
};

struct sp_exam {
    const char *id;         /* NULL ends the list */
    enum sp_level_of level; /* the worst that it can report */
    const char *what;
    const char *(*filter)(const struct sp_patient *patient); /* why it is skipped, or NULL; may be NULL itself */
    int (*run)(struct sp_findings *findings, const struct sp_patient *patient);
};

extern const struct sp_exam sp_exams[];

/* NULL when there is none of this id. */
const struct sp_exam *sp_exam_find(const char *id);

/* The worst level among findings from number first on; SP_INFO when there is none. */
enum sp_level_of sp_findings_worst(const struct sp_findings *findings, size_t first);

/* Fill in what there is to know of nvcc. install: that may hold pip's toolkit, or NULL. */
int sp_around_toolchain(struct sp_around *around, const struct sp_install *install);

/* Variables that patched SGLang reads and cannot make sense of, and what comes of it: a finding for each. where: what
 * the sentence begins with, "in pid 42 ", or nothing for this shell. */
int sp_find_odd(struct sp_findings *findings, char *const *env, const char *where);

/* ---- the examinations ---- */

int sp_exam_driver(struct sp_findings *findings, const struct sp_patient *patient);
int sp_exam_toolchain(struct sp_findings *findings, const struct sp_patient *patient);
int sp_exam_devices(struct sp_findings *findings, const struct sp_patient *patient);
int sp_exam_limits(struct sp_findings *findings, const struct sp_patient *patient);
int sp_exam_persistence(struct sp_findings *findings, const struct sp_patient *patient);

int sp_exam_visible(struct sp_findings *findings, const struct sp_patient *patient);
int sp_exam_settings(struct sp_findings *findings, const struct sp_patient *patient);
int sp_exam_servers(struct sp_findings *findings, const struct sp_patient *patient);

int sp_exam_access(struct sp_findings *findings, const struct sp_patient *patient);
int sp_exam_plugins(struct sp_findings *findings, const struct sp_patient *patient);
int sp_exam_leftovers(struct sp_findings *findings, const struct sp_patient *patient);
int sp_exam_bytecode(struct sp_findings *findings, const struct sp_patient *patient);
int sp_exam_uv(struct sp_findings *findings, const struct sp_patient *patient);

#endif
