/*
 * An install: may we write to it, and does Python really run what is in its files?
 */
#include "base/err.h"
#include "base/proc.h"
#include "base/shell.h"
#include "base/txn.h"
#include "patcher/access.h"
#include "patcher/apply.h"
#include "verify/doctor/doctor.h"
#include "verify/machine/pseudo.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SOURCE_MAX = 1 << 20, ENTRY_POINTS_MAX = 1 << 16, NAME_SIZE = 128, PROBE_SECONDS = 20 };

/* ---- access ---- */

/* PEP 668: the marker lies beside the standard library of an interpreter that is of no virtual environment. Without an
 * interpreter: where most have it, above site-packages. */
static bool is_managed(const struct sp_install *install)
{
    static const char probe[] = "import os, sys, sysconfig\n"
                                "marker = os.path.join(sysconfig.get_path('stdlib'), 'EXTERNALLY-MANAGED')\n"
                                "sys.exit(sys.prefix != sys.base_prefix or not os.path.exists(marker))\n";
    const char *const argv[] = {install->python, "-IB", "-c", probe, NULL};
    const struct sp_proc_options options = {.seconds = PROBE_SECONDS};
    struct sp_proc_result result = {0};
    bool managed;

    if (install->python)
        managed = sp_proc_run(&result, argv, &options) == SP_OK && result.status == 0;
    else
        managed = faccessat(install->site_fd, "../EXTERNALLY-MANAGED", F_OK, 0) == 0;
    sp_proc_free(&result);
    sp_err_clear();
    return managed;
}

int sp_exam_access(struct sp_findings *findings, const struct sp_patient *patient)
{
    const struct sp_install *install = patient->install;
    int rc = sp_access_check(install->root_fd, install->root, "sglang/__init__.py");

    if (rc == SP_OK)
        rc = sp_access_check(install->site_fd, install->site, "x");
    if (rc < 0)
        rc = sp_finding_add(findings, "access.denied", SP_WARN, sp_err_hint_text(), "%s", sp_err_message());
    sp_err_clear();
    if (rc == SP_OK && is_managed(install))
        rc = sp_finding_add(findings, "access.managed", SP_INFO, NULL,
                            "this Python is marked EXTERNALLY-MANAGED (PEP 668): pip would not change its packages, "
                            "apply and build do");
    return rc;
}

/* ---- plugins ---- */

static bool replaces(const char *source)
{
    static const char *const hooked[] = {"custom_all_reduce",         "CustomAllreduce", "is_full_nvlink",
                                         "dispatch_custom_allreduce", "parallel_state",  "GroupCoordinator"};

    for (size_t i = 0; i < sizeof hooked / sizeof *hooked; i++)
        if (strstr(source, hooked[i]))
            return true;
    return false;
}

/* The source of "package.module:function"; false when it is not a file of this site. */
static bool read_module(struct sp_buf *out, const struct sp_install *install, const char *target)
{
    static const char *const ends[] = {".py", "/__init__.py"};
    char module[NAME_SIZE], path[PATH_MAX];
    bool found = false;

    (void)snprintf(module, sizeof module, "%.*s", (int)strcspn(target, ": \t[\n"), target);
    for (char *at = module; *at; at++)
        if (*at == '.')
            *at = '/';
    for (size_t i = 0; i < sizeof ends / sizeof *ends && !found; i++)
        found = snprintf(path, sizeof path, "%s/%s%s", install->site, module, ends[i]) < (int)sizeof path &&
                sp_read_file(out, path, SOURCE_MAX) == SP_OK;
    sp_err_clear();
    return found;
}

static int judge_plugin(struct sp_findings *findings, const struct sp_patient *patient, const char *line)
{
    const char *equals = strchr(line, '=');
    struct sp_buf source = SP_BUF_INIT;
    char name[NAME_SIZE];
    bool hooks;
    int rc = SP_OK;

    if (!equals)
        return rc;
    (void)snprintf(name, sizeof name, "%.*s", (int)strcspn(line, " \t="), line);
    equals += 1 + strspn(equals + 1, " \t");
    hooks = read_module(&source, patient->install, equals) && replaces(source.data);
    rc = sp_finding_add(findings, hooks ? "plugins.replace" : "plugins.present", hooks ? SP_WARN : SP_INFO,
                        hooks ? "leave it out of SGLANG_PLUGINS, or start SGLang without it" : NULL,
                        "the plugin '%s' (%.*s) %s", name, (int)strcspn(equals, "\n"), equals,
                        hooks ? "touches SGLang's all-reduce: it may replace what the patch hooks"
                              : "is loaded when SGLang starts; nothing in it names SGLang's all-reduce");
    sp_buf_free(&source);
    return rc;
}

static int judge_entry_points(struct sp_findings *findings, const struct sp_patient *patient, const char *path)
{
    struct sp_buf text = SP_BUF_INIT;
    bool ours = false;
    int rc = SP_OK;

    if (sp_read_file(&text, path, ENTRY_POINTS_MAX) < 0) {
        sp_err_clear();
        return rc;
    }
    for (const char *line = text.data; line && *line && rc == SP_OK; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (*line == '[')
            ours = strncmp(line, "[sglang.srt.plugins]", 20) == 0;
        else if (ours && *line && *line != '\n' && *line != '#')
            rc = judge_plugin(findings, patient, line);
    }
    sp_buf_free(&text);
    return rc;
}

int sp_exam_plugins(struct sp_findings *findings, const struct sp_patient *patient)
{
    glob_t hits;
    int rc = SP_OK;

    sp_glob_beneath(&hits, patient->install->site, "*.dist-info/entry_points.txt");
    for (size_t i = 0; i < hits.gl_pathc && rc == SP_OK; i++)
        rc = judge_entry_points(findings, patient, hits.gl_pathv[i]);
    globfree(&hits);
    return rc;
}

/* ---- bytecode ---- */

/* PEP 552: bit 0 of the flags, by hash; bit 1, look at the source. Others are by time and size, and Python looks. */
static bool is_unchecked(const char *path)
{
    unsigned char head[17];

    return sp_pseudo_read((char *)head, sizeof head, "%s", path) >= 16 && (head[4] & 3) == 1;
}

static int judge_bytecode(struct sp_findings *findings, const char *folder, const char *pattern, const char *source)
{
    char quoted[SP_QUOTED_MAX], remedy[SP_QUOTED_MAX + 8];
    glob_t hits;
    int rc = SP_OK;

    sp_glob_beneath(&hits, folder, pattern);
    for (size_t i = 0; i < hits.gl_pathc && rc == SP_OK; i++) {
        if (!is_unchecked(hits.gl_pathv[i]))
            continue;
        (void)snprintf(remedy, sizeof remedy, "rm %s", sp_shell_quote(quoted, hits.gl_pathv[i]));
        rc = sp_finding_add(findings, "bytecode.unchecked", SP_BAD, remedy,
                            "Python takes bytecode of '%s' without a look at the patched file: it was compiled with "
                            "unchecked hashes",
                            source);
    }
    globfree(&hits);
    return rc;
}

/* Beside the source, or in the folder that PYTHONPYCACHEPREFIX names. */
static int judge_file(struct sp_findings *findings, const struct sp_install *install, const char *path)
{
    const char *prefix = install->pycache_prefix, *slash = strrchr(path, '/');
    const char *name = slash ? slash + 1 : path;
    char folder[PATH_MAX], pattern[PATH_MAX];
    int rc = SP_OK;

    (void)snprintf(pattern, sizeof pattern, "%.*s.*.pyc", (int)strcspn(name, "."), name);
    if (snprintf(folder, sizeof folder, "%s/%.*s__pycache__", install->root, (int)(name - path), path) <
        (int)sizeof folder)
        rc = judge_bytecode(findings, folder, pattern, path);
    if (rc == SP_OK && prefix &&
        snprintf(folder, sizeof folder, "%s%s/%.*s", prefix, install->root, (int)(name - path), path) <
            (int)sizeof folder)
        rc = judge_bytecode(findings, folder, pattern, path);
    return rc;
}

int sp_exam_bytecode(struct sp_findings *findings, const struct sp_patient *patient)
{
    int rc = SP_OK;

    for (size_t i = 0; patient->plan && i < patient->plan->file_count && rc == SP_OK; i++) {
        const struct sp_plan_file *file = &patient->plan->files[i];

        if (file->state == SP_APPLIED || file->state == SP_APPLIED_OLD)
            rc = judge_file(findings, patient->install, file->path);
    }
    return rc;
}

/* ---- side files ---- */

/* Files that a write keeps beside its targets belong to its journal; without one nobody clears them away. */
static int judge_sides(struct sp_findings *findings, const char *folder)
{
    static const char *const patterns[] = {SP_STATE_DIR "-*-*.new", SP_STATE_DIR "-*-*.old"};
    char quoted[SP_QUOTED_MAX], remedy[SP_QUOTED_MAX + NAME_SIZE];
    size_t count = 0;

    for (size_t i = 0; i < sizeof patterns / sizeof *patterns; i++) {
        glob_t hits;

        sp_glob_beneath(&hits, folder, patterns[i]);
        count += hits.gl_pathc;
        globfree(&hits);
    }
    if (count == 0)
        return SP_OK;
    (void)snprintf(remedy, sizeof remedy, "(cd %s && rm -f " SP_STATE_DIR "-*-*.new " SP_STATE_DIR "-*-*.old)",
                   sp_shell_quote(quoted, folder));
    return sp_finding_add(findings, "leftovers.side-files", SP_WARN, remedy,
                          "%zu file%s of an interrupted write %s in '%s', and its journal is gone", count,
                          count == 1 ? "" : "s", count == 1 ? "lies" : "lie", folder);
}

/* Is this file the first of its folder? */
static bool new_folder(const struct sp_plan *plan, size_t at, size_t len)
{
    bool first = true;

    for (size_t i = 0; i < at && first; i++)
        first = strncmp(plan->files[i].path, plan->files[at].path, len) != 0 || strchr(plan->files[i].path + len, '/');
    return first;
}

int sp_exam_leftovers(struct sp_findings *findings, const struct sp_patient *patient)
{
    const struct sp_install *install = patient->install;
    char folder[PATH_MAX];
    int rc = SP_OK;

    if (sp_pending_check(install) < 0) { /* recover knows what to do with them */
        sp_err_clear();
        return SP_OK;
    }
    for (size_t i = 0; patient->plan && i < patient->plan->file_count && rc == SP_OK; i++) {
        const char *path = patient->plan->files[i].path, *slash = strrchr(path, '/');
        const size_t len = slash ? (size_t)(slash + 1 - path) : 0;

        if (!new_folder(patient->plan, i, len))
            continue;
        (void)snprintf(folder, sizeof folder, "%s/%.*s", install->root, (int)(len ? len - 1 : 0), path);
        rc = judge_sides(findings, folder);
    }
    if (rc == SP_OK) {
        (void)snprintf(folder, sizeof folder, "%s/sgl_pcie", install->site);
        rc = judge_sides(findings, folder);
    }
    return rc;
}
