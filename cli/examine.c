#include "cli/examine.h"
#include "base/err.h"
#include "cli/report.h"

#include <stdlib.h>
#include <string.h>

/* ---- the choice ---- */

static int unknown(const char *word)
{
    const char *names[SP_EXAMS_MAX] = {NULL}, *near;

    for (size_t i = 0; sp_exams[i].id && i < SP_EXAMS_MAX - 1; i++)
        names[i] = sp_exams[i].id;
    near = sp_nearest(word, names);
    sp_err(SP_EUSAGE, "there is no check '%s'%s%s%s", word, near ? ", did you mean '" : "", near ? near : "",
           near ? "'?" : "");
    return sp_err_hint(SP_EUSAGE, "sgl-pcie doctor --list");
}

static bool chosen(const struct sp_examination *out, const struct sp_exam *exam)
{
    for (size_t i = 0; i < out->count; i++)
        if (out->exam[i] == exam)
            return true;
    return false;
}

int sp_examination_choose(struct sp_examination *out, const char *const *words)
{
    for (size_t i = 0; words && words[i]; i++) {
        const struct sp_exam *exam = sp_exam_find(words[i]);

        if (!exam)
            return unknown(words[i]);
        if (!chosen(out, exam))
            out->exam[out->count++] = exam;
    }
    for (size_t i = 0; out->count == i && !(words && words[0]) && sp_exams[i].id; i++)
        out->exam[out->count++] = &sp_exams[i];
    return SP_OK;
}

/* ---- the patient ---- */

static bool names_target(const struct sp_args *args)
{
    bool named = false;

    for (const struct sp_option *target = sp_target_options; target->name; target++)
        named = named || sp_args_has(args, target->name);
    return named;
}

/* Several candidates, or none: the machine can be looked at all the same. What was named must be there. */
static int open_install(struct sp_examination *out, const struct sp_args *args)
{
    int rc = sp_subject_open(&out->subject, args);

    if (rc == SP_OK)
        rc = sp_plan_make(&out->plan, out->subject.install, out->subject.sets, NULL);
    if (rc == SP_OK || rc == SP_EFAIL || (names_target(args) && !out->subject.install))
        return rc;
    out->no_install = strdup(sp_err_message());
    sp_err_clear();
    return SP_OK;
}

static bool wants_toolchain(const struct sp_examination *examination)
{
    return chosen(examination, sp_exam_find("toolchain"));
}

static int look(struct sp_examination *out, const struct sp_args *args)
{
    int rc = open_install(out, args);

    if (rc == SP_OK)
        rc = sp_survey_make(&out->survey, NULL, NULL);
    if (rc == SP_ECANNOT && out->survey.choice.source) { /* MIG in CUDA_VISIBLE_DEVICES has a check of its own */
        sp_err_clear();
        rc = SP_OK;
    }
    if (rc == SP_OK)
        rc = sp_around_read(&out->around);
    if (rc == SP_OK && wants_toolchain(out))
        rc = sp_around_toolchain(&out->around, out->subject.install);
    return rc;
}

int sp_examination_run(struct sp_examination *out, const struct sp_args *args)
{
    struct sp_patient patient = {.survey = &out->survey, .around = &out->around};
    int rc = look(out, args);

    patient.install = out->subject.install;
    patient.sets = out->subject.sets;
    patient.plan = out->plan;
    patient.no_install = out->no_install;
    for (size_t i = 0; i < out->count && rc == SP_OK; i++) {
        const size_t before = out->findings.count;

        out->skipped[i] = out->exam[i]->filter ? out->exam[i]->filter(&patient) : NULL;
        if (!out->skipped[i])
            rc = out->exam[i]->run(&out->findings, &patient);
        out->found[i] = out->findings.count - before;
    }
    return rc;
}

void sp_examination_free(struct sp_examination *examination)
{
    sp_findings_free(&examination->findings);
    sp_around_free(&examination->around);
    sp_survey_free(&examination->survey);
    sp_plan_free(examination->plan);
    sp_subject_close(&examination->subject);
    free(examination->no_install);
    memset(examination, 0, sizeof *examination);
}

/* ---- JSON ---- */

json_t *sp_examination_json(const struct sp_examination *examination, bool ran)
{
    json_t *list = json_array();

    for (size_t i = 0; list && i < examination->count; i++) {
        const struct sp_exam *exam = examination->exam[i];
        const char *status = examination->skipped[i] ? "skipped" : examination->found[i] ? "found" : "clean";

        (void)json_array_append_new(list, json_pack("{s:s, s:s, s:s, s:s?, s:o}", "id", exam->id, "what", exam->what,
                                                    "level", sp_level_name(exam->level), "status", ran ? status : NULL,
                                                    "reason", sp_json_text(examination->skipped[i])));
    }
    return list;
}
