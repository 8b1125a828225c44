/* gather_tree FOLDER: the recording of a made-up /sys and /proc, for test_gather.py. */
#include "base/err.h"
#include "verify/machine/gather.h"

#include <stdio.h>

int main(int argc, char **argv)
{
    struct sp_recording recording;
    json_t *json;
    int rc;

    if (argc != 2)
        return 2;
    rc = sp_gather(&recording, argv[1]);
    json = sp_recording_json(&recording);
    if (rc < 0)
        (void)fprintf(stderr, "%s\n", sp_err_message());
    else
        (void)json_dumpf(json, stdout, JSON_INDENT(1));
    json_decref(json);
    sp_recording_free(&recording);
    return sp_exit_status(rc);
}
