/*
 * The plots of bench without a bench, for the Python tests here. bench.json comes on standard input.
 *
 *     plot_tool check FILE         can it be a plot?
 *     plot_tool file FILE          all groups
 *     plot_tool text COLUMNS       the first group
 */
#include "base/err.h"
#include "verify/page/plot.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int put_text(const struct sp_bench *bench, unsigned columns)
{
    struct sp_buf out = SP_BUF_INIT;
    int rc = bench->group_count ? sp_plot_text(&out, &bench->group[0], columns) : sp_err(SP_EFAIL, "no group");

    if (rc == SP_OK)
        (void)fputs(out.data, stdout);
    sp_buf_free(&out);
    return rc;
}

static int draw(const char *command, const char *word)
{
    struct sp_bench bench = {.group_count = 0};
    json_t *content = json_loadf(stdin, 0, NULL);
    int rc = sp_bench_read(&bench, content);

    if (rc == SP_OK)
        rc = sp_bench_tune(&bench);
    if (rc == SP_OK)
        rc = strcmp(command, "file") == 0 ? sp_plot_file(word, &bench) : put_text(&bench, (unsigned)atoi(word));
    sp_bench_free(&bench);
    json_decref(content);
    return rc;
}

int main(int argc, char **argv)
{
    int rc = SP_EUSAGE;

    if (argc == 3)
        rc = strcmp(argv[1], "check") == 0 ? sp_plot_check(argv[2]) : draw(argv[1], argv[2]);
    if (rc < 0)
        (void)fprintf(stderr, "%s\n%s\n", sp_err_message(), sp_err_hint_text());
    return sp_exit_status(rc);
}
