#include "cli/bench.h"
#include "cli/bench_show.h"
#include "verify/page/plot.h"
#include "verify/verdict/profile.h"

#include <string.h>

static int draw(const struct sp_report *report, const struct sp_bench *bench)
{
    struct sp_buf text = SP_BUF_INIT;
    int rc = SP_OK;

    for (size_t i = 0; report->text && i < bench->group_count && rc == SP_OK; i++) {
        sp_buf_free(&text);
        rc = sp_plot_text(&text, &bench->group[i], sp_plot_columns());
        if (rc == SP_OK)
            (void)printf("%s\n", text.data);
    }
    sp_buf_free(&text);
    return rc;
}

int sp_bench_tell(struct sp_report *report, struct sp_bench *bench, const struct sp_bench_wanted *wanted)
{
    int rc = sp_bench_look(bench);

    json_decref(bench->steps);
    bench->steps = wanted->step_count > 0 ? sp_steps_json(bench, wanted->step, wanted->step_count) : NULL;
    sp_report_set(report, "steps", json_incref(bench->steps));
    sp_report_set(report, "bench", sp_bench_json(bench));
    if (rc == SP_OK && report->text)
        rc = sp_show_bench(report, bench);
    if (rc == SP_OK && report->text)
        rc = sp_show_steps(report, bench, wanted->step, wanted->step_count);
    return rc;
}

/* Last: a picture that fails costs nothing else. */
int sp_bench_plot(const struct sp_report *report, const struct sp_bench *bench, const struct sp_bench_wanted *wanted)
{
    if (!wanted->plot)
        return SP_OK;
    return strcmp(wanted->plot, "-") == 0 ? draw(report, bench) : sp_plot_file(wanted->plot, bench);
}

bool sp_bench_compared(const struct sp_bench *bench)
{
    bool any = false;

    for (size_t i = 0; i < bench->group_count; i++)
        for (size_t k = 0; k < bench->group[i].row_count; k++)
            any = any || bench->group[i].row[k].stock >= 0;
    return any;
}

char *sp_bench_summary(const struct sp_bench *bench, bool *wins)
{
    json_t *profile = NULL, *bound = json_object();
    char *text = NULL;

    if (sp_bench_profile(&profile, bench, bound) == SP_OK)
        text = sp_profile_summary(profile, NULL);
    *wins = sp_serve_best(profile, NULL) == SP_SERVED_FASTER;
    json_decref(profile);
    json_decref(bound);
    return text;
}
