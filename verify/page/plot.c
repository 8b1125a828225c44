#include "verify/page/plot.h"
#include "base/err.h"
#include "base/proc.h"
#include "base/put.h"
#include "verify/page/plot_script.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum { SECONDS = 20, PICTURE_MAX = 16 << 20, ROWS = 24, COLUMNS = 80, COLUMNS_LEAST = 48, COLUMNS_MOST = 160 };

/* ---- gnuplot ---- */

static bool is_here(const char *program)
{
    const char *folder = getenv("PATH");
    char path[PATH_MAX];

    while (folder && *folder) {
        const size_t len = strcspn(folder, ":");

        if (snprintf(path, sizeof path, "%.*s/%s", (int)len, folder, program) < PATH_MAX && access(path, X_OK) == 0)
            return true;
        folder += len + (folder[len] == ':');
    }
    return false;
}

static int find_gnuplot(void)
{
    if (is_here("gnuplot"))
        return SP_OK;
    sp_err(SP_ECANNOT, "a plot needs gnuplot, which is not here");
    return sp_err_hint(SP_ECANNOT, "apt install gnuplot-nox");
}

static int draw(struct sp_proc_result *picture, const struct sp_out *script)
{
    static const char *const argv[] = {"gnuplot", "-d", "-", NULL}; /* -d: without the user's settings */
    const struct sp_proc_options options = {
        .seconds = SECONDS, .output_max = PICTURE_MAX, .input = script->buf.data, .input_len = script->buf.len};
    int rc = script->rc;

    if (rc == SP_OK)
        rc = sp_proc_run_ok(picture, argv, &options);
    if (rc == SP_OK && (picture->out.len == 0 || picture->out_cut))
        rc = sp_err(SP_ECANNOT, "gnuplot drew %s", picture->out_cut ? "too much" : "nothing");
    return rc < 0 ? sp_err_wrap(rc, "the plot") : rc;
}

/* ---- a file ---- */

static int format_of(enum sp_plot_format *out, const char *path)
{
    const char *dot = strrchr(path, '.');

    *out = dot && strcasecmp(dot, ".png") == 0 ? SP_PLOT_PNG : SP_PLOT_SVG;
    if (*out == SP_PLOT_PNG || (dot && strcasecmp(dot, ".svg") == 0))
        return SP_OK;
    return sp_err(SP_EUSAGE, "a plot is a .svg or a .png, not '%s'", path);
}

int sp_plot_check(const char *path)
{
    enum sp_plot_format format;
    const bool shown = strcmp(path, "-") == 0;
    int rc = shown ? SP_OK : format_of(&format, path);

    if (rc == SP_OK && !shown)
        rc = sp_put_check(path);
    return rc == SP_OK ? find_gnuplot() : rc;
}

static bool has_anything(const struct sp_bench *bench)
{
    struct sp_lines lines;
    bool any = false;

    for (size_t i = 0; i < bench->group_count; i++) {
        sp_lines_of(&lines, &bench->group[i]);
        any = any || lines.most > 0;
    }
    return any;
}

int sp_plot_file(const char *path, const struct sp_bench *bench)
{
    struct sp_proc_result picture = {.status = 0};
    struct sp_out script = {.rc = SP_OK};
    enum sp_plot_format format;
    int rc = format_of(&format, path);

    if (rc == SP_OK)
        rc = find_gnuplot();
    if (rc == SP_OK && !has_anything(bench))
        rc = sp_err(SP_EFAIL, "nothing was measured that could be plotted");
    if (rc == SP_OK) {
        sp_script_file(&script, bench, format);
        rc = draw(&picture, &script);
    }
    if (rc == SP_OK)
        rc = sp_put_file(path, picture.out.data, picture.out.len);
    sp_buf_free(&script.buf);
    sp_proc_free(&picture);
    return rc;
}

/* ---- a terminal ---- */

unsigned sp_plot_columns(void)
{
    struct winsize size;

    return ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : COLUMNS;
}

/* gnuplot fills every line with blanks, and feeds a page first. */
static void put_trimmed(struct sp_out *out, const char *text)
{
    text += strspn(text, "\f\n");
    while (*text) {
        const size_t whole = strcspn(text, "\n");
        size_t len = whole;

        while (len > 0 && text[len - 1] == ' ')
            len--;
        if (len > 0)
            sp_put(out, "%.*s\n", (int)len, text);
        text += whole + (text[whole] == '\n');
    }
}

int sp_plot_text(struct sp_buf *out, const struct sp_bench_group *group, unsigned columns)
{
    struct sp_proc_result picture = {.status = 0};
    struct sp_out script = {.rc = SP_OK}, text = {.rc = SP_OK};
    struct sp_lines lines;
    int rc = find_gnuplot();

    sp_lines_of(&lines, group);
    if (rc == SP_OK && lines.most <= 0)
        rc = sp_err(SP_EFAIL, "nothing was measured that could be plotted");
    if (rc == SP_OK) {
        sp_script_text(&script, group,
                       columns < COLUMNS_LEAST  ? COLUMNS_LEAST
                       : columns > COLUMNS_MOST ? COLUMNS_MOST
                                                : columns,
                       ROWS);
        rc = draw(&picture, &script);
    }
    if (rc == SP_OK) {
        put_trimmed(&text, picture.out.data);
        rc = text.rc < 0 ? text.rc : sp_buf_append(out, text.buf.data, text.buf.len);
    }
    sp_buf_free(&text.buf);
    sp_buf_free(&script.buf);
    sp_proc_free(&picture);
    return rc;
}
