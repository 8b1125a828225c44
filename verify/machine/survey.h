/*
 * A look at a machine: recording, choice of GPUs, topology, findings, candidates. What every command here begins with.
 *
 *     rc = sp_survey_make(&survey, from, gpus);     // NULL, NULL: this machine, as CUDA_VISIBLE_DEVICES has it
 *     ...
 *     sp_survey_free(&survey);
 */
#ifndef SP_MACHINE_SURVEY_H
#define SP_MACHINE_SURVEY_H

#include "verify/machine/choose.h"
#include "verify/machine/findings.h"

struct sp_survey {
    struct sp_recording recording;
    struct sp_choice choice;
    struct sp_topology topology;
    struct sp_findings findings;
    struct sp_candidates candidates;
};

/* from: a recording, or a folder with one; NULL: this machine. gpus: a list as --gpus takes it, or NULL. One GPU or
 * none is no error here. To be freed in any case. */
int sp_survey_make(struct sp_survey *out, const char *from, const char *gpus);
void sp_survey_free(struct sp_survey *survey);

/* "findings", "backends" and "gpus" for --json. */
json_t *sp_findings_json(const struct sp_findings *findings);
json_t *sp_candidates_json(const struct sp_candidates *candidates);
json_t *sp_survey_gpus_json(const struct sp_survey *survey);

#endif
