#include "verify/machine/survey.h"
#include "base/err.h"
#include "verify/machine/gather.h"

#include <stdlib.h>
#include <string.h>

static int choose(struct sp_survey *out, const char *from, const char *gpus)
{
    /* The variables are about this machine, not about that of a recording. */
    const char *visible = from ? NULL : getenv("CUDA_VISIBLE_DEVICES");
    const char *order = from ? NULL : getenv("CUDA_DEVICE_ORDER");

    return sp_choose_gpus(&out->choice, &out->recording, gpus, visible, order);
}

int sp_survey_make(struct sp_survey *out, const char *from, const char *gpus)
{
    int rc;

    memset(out, 0, sizeof *out);
    rc = from ? sp_recording_load(&out->recording, from) : sp_gather(&out->recording, "");
    if (rc == SP_OK)
        rc = choose(out, from, gpus);
    if (rc == SP_OK)
        rc = sp_topology_make(&out->topology, &out->recording, out->choice.number, out->choice.count);
    if (rc == SP_OK)
        rc = sp_find_topology(&out->findings, &out->topology);
    if (rc == SP_OK)
        sp_candidates_of(&out->candidates, &out->topology, &out->findings);
    return rc;
}

void sp_survey_free(struct sp_survey *survey)
{
    sp_findings_free(&survey->findings);
    sp_topology_free(&survey->topology);
    sp_recording_free(&survey->recording);
}

/* ---- JSON ---- */

json_t *sp_findings_json(const struct sp_findings *findings)
{
    json_t *list = json_array();

    for (size_t i = 0; list && i < findings->count; i++) {
        const struct sp_finding *is = &findings->item[i];

        (void)json_array_append_new(list, json_pack("{s:s, s:s, s:s?, s:s, s:s?}", "id", is->id, "level",
                                                    sp_level_name(is->level), "code", is->code[0] ? is->code : NULL,
                                                    "text", is->text, "remedy", is->remedy));
    }
    return list;
}

json_t *sp_candidates_json(const struct sp_candidates *candidates)
{
    return json_pack("{s:s, s:s, s:s}", "peer-push", sp_candidate_name(candidates->push), "peer-pull",
                     sp_candidate_name(candidates->pull), "host", sp_candidate_name(candidates->host));
}

static json_t *number(int64_t value)
{
    return value == SP_ABSENT ? json_null() : json_integer(value);
}

json_t *sp_survey_gpus_json(const struct sp_survey *survey)
{
    json_t *list = json_array();

    for (size_t i = 0; list && i < survey->topology.gpu_count; i++) {
        const struct sp_topo_gpu *gpu = &survey->topology.gpu[i];

        (void)json_array_append_new(list, json_pack("{s:i, s:s, s:s?, s:s?, s:o, s:o}", "number", (int)gpu->number,
                                                    "bdf", gpu->is->bdf, "uuid", gpu->is->uuid, "name", gpu->is->name,
                                                    "numa", number(gpu->numa), "socket", number(gpu->socket)));
    }
    return list;
}
