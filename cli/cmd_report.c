#include "base/put.h"
#include "cli/examine.h"
#include "cli/report.h"
#include "cli/show.h"
#include "verify/redact.h"

#include <stdlib.h>

static const char *const description[] = {
    "Writes one JSON object for an issue: a recording of the machine (its GPUs, the bridges above them, what the "
    "driver "
    "says), the state of the install, and what doctor finds. Names of hosts and users, paths and serial numbers are "
    "replaced. Read it before you send it.",
    "The same file is what verify --from judges: everything that is concluded about the machine can be concluded again "
    "elsewhere. Run as root it has ACS, too.",
    NULL,
};

static const struct sp_option options[] = {
    {.name = "out", .value = "FILE", .complete = SP_COMPLETE_FILE, .help = "write it here (default: standard output)"},
    {.name = NULL},
};

static const struct sp_exit exits[] = {
    {0, "written, whatever is in it"}, {1, NULL}, {2, NULL}, {5, "it cannot be written"}, {-1, NULL},
};

static const struct sp_example examples[] = {
    {"sudo sgl-pcie report --out report.json", "with ACS, which needs root"},
    {"sgl-pcie verify --from report.json --level 1", "what is concluded from it"},
    {NULL, NULL},
};

static const char *const fields[] = {"bundle", "file", NULL};

#define BUNDLE_SCHEMA "sgl-pcie-report/1"

/* ---- the parts ---- */

/* What status shows, without the folders. */
static int status_json(json_t **out, const struct sp_examination *is)
{
    static const char *const folders[] = {"root", "site", "python"};
    struct sp_report inner = {.object = json_object()};
    struct sp_facts facts;
    int rc = sp_facts_read(&facts, is->subject.install);

    if (rc == SP_OK)
        sp_show_install(&inner, is->subject.install, is->plan, &facts);
    sp_facts_free(&facts);
    *out = inner.object;
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++)
        (void)json_object_del(json_object_get(*out, "install"), folders[i]);
    return rc;
}

static int bundle_json(json_t **out, const struct sp_examination *is)
{
    json_t *status = NULL;
    int rc = is->subject.install ? status_json(&status, is) : SP_OK;

    if (rc < 0) {
        json_decref(status);
        return rc;
    }
    *out = json_pack("{s:s, s:s, s:o, s:o?, s:s?, s:o, s:o, s:o}", "schema", BUNDLE_SCHEMA, "version", SP_VERSION,
                     "recording", sp_recording_json(&is->survey.recording), "status", status, "status_error",
                     is->no_install, "findings", sp_findings_json(&is->findings), "checks",
                     sp_examination_json(is, true), "backends", sp_candidates_json(&is->survey.candidates));
    return *out ? SP_OK : sp_err(SP_ECANNOT, "out of memory");
}

static int redact(json_t *bundle, const struct sp_examination *is)
{
    struct sp_redaction redaction;
    int rc = sp_redaction_init(&redaction, is->subject.install ? is->subject.install->root : NULL);

    if (rc == SP_OK)
        rc = sp_redact_json(bundle, &redaction);
    sp_redaction_free(&redaction);
    return rc;
}

/* ---- where it goes ---- */

static int write_file(const json_t *bundle, const char *path)
{
    char *text = json_dumps(bundle, JSON_SORT_KEYS | JSON_INDENT(1));
    struct sp_buf bytes = SP_BUF_INIT;
    int rc = text ? sp_buf_printf(&bytes, "%s\n", text) : sp_err(SP_ECANNOT, "out of memory");

    if (rc == SP_OK)
        rc = sp_put_file(path, bytes.data, bytes.len);
    sp_buf_free(&bytes);
    free(text);
    return rc;
}

/* On standard output the bundle is all there is, so that it can go into a pipe. */
static int deliver(struct sp_report *report, json_t *bundle, const char *path)
{
    int rc = SP_OK;

    if (path)
        rc = write_file(bundle, path);
    else if (!report->object && report->text)
        rc = json_dumpf(bundle, stdout, JSON_SORT_KEYS | JSON_INDENT(1)) == 0 ? SP_OK : SP_ECANNOT;
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

static int run(const struct sp_args *args, struct sp_report *report)
{
    struct sp_examination examination = {.count = 0};
    json_t *bundle = NULL;
    int rc = sp_examination_choose(&examination, NULL);

    if (rc == SP_OK)
        rc = sp_examination_run(&examination, args);
    if (rc == SP_OK)
        rc = bundle_json(&bundle, &examination);
    if (rc == SP_OK)
        rc = redact(bundle, &examination);
    if (rc == SP_OK)
        rc = deliver(report, bundle, sp_args_value(args, "out"));
    json_decref(bundle);
    sp_examination_free(&examination);
    return rc;
}

const struct sp_command sp_cmd_report = {
    .name = "report",
    .summary = "write what is known of this machine and its install, without names, for an issue",
    .description = description,
    .target = true,
    .options = options,
    .exits = exits,
    .examples = examples,
    .fields = fields,
    .run = run,
};
