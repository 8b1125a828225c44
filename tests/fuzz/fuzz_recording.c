/* Recordings come from issues: whatever is in one, it is refused or judged. */
#include "base/err.h"
#include "verify/machine/picture.h"
#include "verify/machine/survey.h"

#include <stdint.h>

static void judge(const struct sp_recording *recording)
{
    struct sp_findings findings = {NULL, 0};
    struct sp_candidates candidates;
    struct sp_topology topology;
    struct sp_table *table = NULL;
    struct sp_buf tree = SP_BUF_INIT;

    if (sp_topology_make(&topology, recording, NULL, 0) == SP_OK && sp_find_topology(&findings, &topology) == SP_OK) {
        sp_candidates_of(&candidates, &topology, &findings);
        (void)sp_picture_tree(&tree, &topology, true);
        (void)sp_picture_pairs(&table, &topology);
    }
    sp_table_free(table);
    sp_buf_free(&tree);
    sp_findings_free(&findings);
    sp_topology_free(&topology);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct sp_recording recording;
    json_t *json;

    if (sp_recording_parse(&recording, (const char *)data, size, "input") == SP_OK) {
        judge(&recording);
        json = sp_recording_json(&recording);
        json_decref(json);
    }
    sp_recording_free(&recording);
    return 0;
}
