#include "base/file.h"
#include "base/json.h"
#include "cli/bench.h"

#include <stdlib.h>

enum { FILE_MAX = 16 << 20 };

static int load(struct sp_bench *out, const char *path)
{
    struct sp_buf bytes = SP_BUF_INIT;
    json_t *content = NULL;
    int rc = sp_read_file(&bytes, path, FILE_MAX);

    if (rc == 1)
        rc = sp_err(SP_ECANNOT, "there is no '%s'", path);
    if (rc == SP_OK)
        rc = sp_json_load(&content, bytes.data, bytes.len, path);
    if (rc == SP_OK) {
        rc = sp_bench_read(out, content);
        if (rc < 0)
            (void)sp_err_wrap(rc, "'%s'", path);
    }
    if (rc < 0)
        rc = sp_err_hint(rc, "sgl-pcie bench # on the machine that it is of");
    json_decref(content);
    sp_buf_free(&bytes);
    return rc;
}

static int say(struct sp_report *report, const struct sp_bench *bench)
{
    bool wins = false;
    char *summary = sp_bench_summary(bench, &wins);
    int rc = SP_OK;

    if (!sp_bench_compared(bench))
        rc = sp_err(SP_EFAIL, "stock was not measured: there is nothing to compare with");
    else if (wins)
        rc = sp_report_say(report, NULL, "ours was faster: %s", summary ? summary : "?");
    else
        rc = sp_report_say(report, NULL, "stock was as fast at every size that was measured");
    free(summary);
    return rc;
}

int sp_bench_replay(struct sp_report *report, const char *path, const struct sp_bench_wanted *wanted)
{
    struct sp_bench bench = {.group_count = 0};
    int rc = load(&bench, path), wrong = SP_OK;

    if (rc == SP_OK) {
        wrong = sp_bench_tune(&bench);
        if (wrong < 0)
            (void)sp_report_judge(report, wrong);
        rc = sp_bench_tell(report, &bench, wanted);
        if (rc == SP_OK)
            rc = sp_bench_plot(report, &bench, wanted);
        report->judged = report->judged && rc == SP_OK;
    }
    if (rc == SP_OK)
        rc = wrong < 0 ? wrong : say(report, &bench);
    sp_bench_free(&bench);
    return rc;
}
