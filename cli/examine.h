/*
 * What doctor and report have in common: the patient, and all or some examinations of it.
 */
#ifndef SP_CLI_EXAMINE_H
#define SP_CLI_EXAMINE_H

#include "cli/subject.h"
#include "verify/doctor/doctor.h"

enum { SP_EXAMS_MAX = 64 };

struct sp_examination {
    struct sp_subject subject; /* its install is NULL where there is none */
    struct sp_survey survey;
    struct sp_around around;
    struct sp_plan *plan;
    char *no_install; /* why there is none */
    struct sp_findings findings;
    const struct sp_exam *exam[SP_EXAMS_MAX]; /* those that were asked for */
    const char *skipped[SP_EXAMS_MAX];        /* why, or NULL */
    size_t found[SP_EXAMS_MAX];               /* findings of each */
    size_t count;
};

/* Which ones: words of the command line, or all when there is none. SP_EUSAGE: no such one. */
int sp_examination_choose(struct sp_examination *out, const char *const *words);

/* Look at the patient, and run them. No install is no error. */
int sp_examination_run(struct sp_examination *out, const struct sp_args *args);
void sp_examination_free(struct sp_examination *examination);

/* Every examination with what came of it; without a run: the list of them. */
json_t *sp_examination_json(const struct sp_examination *examination, bool ran);

#endif
