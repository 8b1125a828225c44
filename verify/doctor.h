/*
 * The doctor: small examinations of a machine, its environment and an install, each of which adds findings.
 *
 * An examination is one function and one line in sp_exams[] (exams.c). Its filter says why it makes no sense here, and
 * it is then skipped with that reason; a doctor who could not look never says "clean".
 *
 * Examinations read nothing but the patient, except for those of an install, which look at its files. So those that no
 * machine at hand can make fail are tested on made-up patients.
 */
#ifndef SP_VERIFY_DOCTOR_H
#define SP_VERIFY_DOCTOR_H

#include "patcher/plan.h"
#include "verify/around.h"
#include "verify/survey.h"

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

/* Fill in what there is to know of nvcc. site: that may hold pip's toolkit, or NULL. */
int sp_around_toolchain(struct sp_around *around, const char *site);

/* Variables that patched SGLang reads and cannot make sense of, which makes it stock: a finding for each. where: what
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
