#include "base/put.h"
#include "cli/bundle.h"
#include "cli/report.h"
#include "verify/page/page.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

static const char *const description[] = {
    "Writes what is known of this machine and its install: a recording of the machine (its GPUs, the bridges above "
    "them, what the driver says), the state of the install, what verify proved, what bench measured, and what doctor "
    "finds. Names of hosts and users, paths and serial numbers are replaced. Read it before you send it.",
    "With --out FILE.html it is a page for people: tables, plots, a picture of the machine, in one file that loads "
    "nothing and runs nothing. Anything else gets one JSON object, for an issue; it is also what verify --from "
    "judges and what report --from shows: everything that is concluded about the machine can be concluded again "
    "elsewhere. Run as root it has ACS, too.",
    NULL,
};

static const struct sp_option options[] = {
    {.name = "out",
     .value = "FILE",
     .complete = SP_COMPLETE_FILE,
     .help = "write it here, a page if it ends in .html or .htm (default, or -: JSON on standard output)"},
    {.name = "from",
     .value = "PATH",
     .complete = SP_COMPLETE_FILE,
     .help = "of a bundle that report wrote, or a recording, in place of this machine"},
    {.name = NULL},
};

static const struct sp_exit exits[] = {
    {0, "written, whatever is in it"},
    {1, "with --from: that file is neither a bundle nor a recording, or a field of it is malformed"},
    {2, NULL},
    {5, "it cannot be written, or there is nothing to read by --from"},
    {-1, NULL},
};

static const struct sp_example examples[] = {
    {"sudo sgl-pcie report --out report.json", "with ACS, which needs root"},
    {"sgl-pcie report --out report.html", "for a browser"},
    {"sgl-pcie report --from report.json --out report.html", "of another machine"},
    {"sgl-pcie verify --from report.json --level 1", "what is concluded from it"},
    {NULL, NULL},
};

static const char *const fields[] = {"bundle", "file", NULL};

/* ---- where it goes ---- */

static bool is_page(const char *path)
{
    const char *dot = path ? strrchr(path, '.') : NULL;

    return dot && (strcasecmp(dot, ".html") == 0 || strcasecmp(dot, ".htm") == 0);
}

static int put_json(struct sp_buf *out, const json_t *bundle)
{
    char *text = json_dumps(bundle, JSON_SORT_KEYS | JSON_INDENT(1));
    int rc = text ? sp_buf_printf(out, "%s\n", text) : sp_err(SP_ECANNOT, "out of memory");

    free(text);
    return rc;
}

static int write_file(const json_t *bundle, const char *path)
{
    struct sp_buf bytes = SP_BUF_INIT;
    int rc = is_page(path) ? sp_page_make(&bytes, bundle) : put_json(&bytes, bundle);

    if (rc == SP_OK)
        rc = sp_put_file(path, bytes.data, bytes.len);
    sp_buf_free(&bytes);
    return rc < 0 && *sp_err_hint_text() == '\0' ? sp_err_hint(rc, "--out FILE, in a folder that you can write") : rc;
}

/* On standard output the bundle is all there is, so that it can go into a pipe. */
static int deliver(struct sp_report *report, json_t *bundle, const char *path)
{
    int rc = SP_OK;

    if (path)
        rc = write_file(bundle, path);
    else if (!report->object && report->text && json_dumpf(bundle, stdout, JSON_SORT_KEYS | JSON_INDENT(1)) != 0)
        rc = ferror(stdout) ? SP_OK : sp_err(SP_ECANNOT, "out of memory"); /* main() tells of standard output */
    if (rc == SP_OK && !path && !report->object && report->text)
        (void)putchar('\n');
    sp_report_set(report, "file", sp_json_text(path));
    sp_report_set(report, "bundle", json_incref(bundle));
    if (rc == SP_OK && (path || report->object))
        rc = sp_report_say(report, NULL, "a report%s%s; read it before you send it", path ? " is in " : "",
                           path ? path : "");
    return rc;
}

/* ---- the command ---- */

/* A bundle says by itself which install it is of. */
static int check_from(const struct sp_args *args)
{
    int rc = SP_OK;

    for (const struct sp_option *target = sp_target_options; target->name && rc == SP_OK; target++)
        if (sp_args_has(args, "from") && sp_args_has(args, target->name))
            rc = sp_err(SP_EUSAGE, "--from looks at no install, --%s names one", target->name);
    return rc;
}

static int run(const struct sp_args *args, struct sp_report *report)
{
    const char *from = sp_args_value(args, "from"), *out = sp_args_value(args, "out");
    json_t *bundle = NULL;
    int rc = check_from(args);

    if (rc == SP_OK)
        rc = from ? sp_bundle_load(&bundle, from) : sp_bundle_make(&bundle, args);
    if (rc == SP_OK)
        rc = deliver(report, bundle, out && strcmp(out, "-") == 0 ? NULL : out);
    json_decref(bundle);
    return rc;
}

const struct sp_command sp_cmd_report = {
    .name = "report",
    .summary = "write what is known of this machine and its install, without names: a page, or a bundle for an issue",
    .description = description,
    .target = true,
    .options = options,
    .exits = exits,
    .examples = examples,
    .fields = fields,
    .run = run,
};
