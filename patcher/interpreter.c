#include "patcher/interpreter.h"
#include "base/err.h"
#include "base/file.h"
#include "base/proc.h"
#include "patcher/rest.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { ANSWER_MAX = 1 << 20, PROBE_SECONDS = 20 };

/* `site` has done its work as for a server: user site, .pth files, finders of editable installs. PYTHONPATH has no say
 * (-E), nor has the current folder: its entry goes before anything is imported. find_spec() of a top-level name imports
 * nothing. The answer comes after a mark, as start-up files may print; the mark is not in this text, which they may
 * print too. */
static const char probe[] = "import sys\n"
                            "sys.path[:] = [entry for entry in sys.path if entry != '']\n"
                            "import json, sysconfig\n"
                            "from importlib.util import find_spec\n"
                            "spec = find_spec('sglang')\n"
                            "metadata = None\n"
                            "try:\n"
                            "    from importlib.metadata import distribution\n"
                            "    metadata = str(distribution('sglang').locate_file(''))\n"
                            "except Exception:\n"
                            "    pass\n"
                            "print('\\nsgl-pcie' + ':answer\\n' + json.dumps({\n"
                            "    'origin': spec.origin if spec else None, 'metadata': metadata,\n"
                            "    'purelib': sysconfig.get_path('purelib')}), flush=True)\n";
static const char mark[] = "\nsgl-pcie:answer\n";

/* The object after the last mark, or NULL. */
static json_t *read_answer(const struct sp_buf *out)
{
    const size_t len = sizeof mark - 1;
    const char *text = NULL, *end = out->data + out->len, *next = out->data;

    while ((next = memmem(next, (size_t)(end - next), mark, len)) != NULL)
        text = next += len;
    return text ? json_loadb(text, (size_t)(end - text), JSON_DISABLE_EOF_CHECK, NULL) : NULL;
}

/* In the current folder, as the shims of version managers choose by it; without leaving bytecode behind. -E drops
 * PYTHONNOUSERSITE too, which servers obey. */
static int ask(json_t **answer, const char *python)
{
    const char *no_user = getenv("PYTHONNOUSERSITE");
    const char *const argv[] = {python, no_user && *no_user ? "-sEB" : "-EB", "-c", probe, NULL};
    struct sp_proc_options options = {.seconds = PROBE_SECONDS, .output_max = ANSWER_MAX};
    struct sp_proc_result result = {0};
    int rc = sp_proc_run_ok(&result, argv, &options);

    if (result.timed_out)
        rc = sp_err(SP_ECANNOT, "the interpreter '%s' did not answer within %d s", python, PROBE_SECONDS);
    else if (rc < 0)
        rc = sp_err_wrap(SP_ECANNOT, "cannot ask the interpreter '%s'", python);
    else if ((*answer = read_answer(&result.out)) == NULL)
        rc = sp_err(SP_ECANNOT, "the interpreter '%s' gave no usable answer", python);
    if (rc < 0)
        rc = sp_err_hint(rc, "name another one with --python, or the folder with --site");
    sp_proc_free(&result);
    return rc;
}

/* "/x/sglang/__init__.py" -> "/x"; -1 when it is something else: a module, or a package in "/". */
static int root_of_origin(char **root, const char *origin, const char *python)
{
    static const char tail[] = "/sglang/__init__.";
    const char *slash = strrchr(origin, '/'), *package = slash;
    int rc = 0;

    while (package > origin && *--package != '/')
        ;
    if (package == origin || strncmp(package, tail, sizeof tail - 1) != 0) {
        sp_err(SP_EUSAGE, "the interpreter '%s' finds SGLang at '%s', which is not a package in a folder sglang/",
               python, origin);
        rc = sp_err_hint(SP_EUSAGE, "name another one with --python, or the folder with --site");
    } else if ((*root = strndup(origin, (size_t)(package - origin))) == NULL) {
        rc = sp_err(SP_ECANNOT, "out of memory");
    } else if (!sp_is_folder(*root)) {
        sp_err(SP_EUSAGE, "the interpreter '%s' finds SGLang packed in '%s': only files in a folder can be patched",
               python, *root);
        rc = sp_err_hint(SP_EUSAGE, "name another one with --python, or the folder with --site");
    }
    return rc;
}

/* Where the runtime goes when it cannot lie beside the package: with the metadata of an editable install (it may be
 * the user's), else where this interpreter installs. */
static const char *site_of_answer(const json_t *answer, const char *root)
{
    const char *metadata = json_string_value(json_object_get(answer, "metadata"));
    const char *purelib = json_string_value(json_object_get(answer, "purelib"));
    const char *site = root;

    if (metadata != NULL && strcmp(metadata, root) != 0 && sp_is_folder(metadata))
        site = metadata;
    else if (purelib != NULL && sp_is_folder(purelib))
        site = purelib;
    return site;
}

static int read_places(char **root, char **site, const json_t *answer, const char *python)
{
    const char *origin = json_string_value(json_object_get(answer, "origin"));
    const char *purelib = json_string_value(json_object_get(answer, "purelib"));
    int rc;

    if (origin == NULL || *origin != '/') {
        sp_err(SP_EUSAGE, "the interpreter '%s' has no SGLang", python);
        sp_err_hint(SP_EUSAGE, "name another one with --python, or a folder with --site");
        if (purelib != NULL)
            (void)sp_rest_hint(SP_EUSAGE, purelib);
        return 1;
    }
    rc = root_of_origin(root, origin, python);
    if (rc == 0 && (*site = strdup(site_of_answer(answer, *root))) == NULL)
        rc = sp_err(SP_ECANNOT, "out of memory");
    return rc;
}

int sp_interpreter_ask(char **root, char **site, const char *python)
{
    json_t *answer = NULL;
    int rc = ask(&answer, python);

    *root = *site = NULL;
    if (rc == 0)
        rc = read_places(root, site, answer, python);
    json_decref(answer);
    return rc;
}

/* The last "/lib/python" of a path: an environment may lie beneath a folder of that name. NULL: there is none. */
static const char *find_lib(const char *site)
{
    const char *lib = NULL;

    for (const char *next = site; (next = strstr(next, "/lib/python")) != NULL; next++)
        lib = next;
    return lib;
}

void sp_interpreter_of(char out[PATH_MAX], const struct sp_install *install)
{
    const char *lib = find_lib(install->site);

    out[0] = '\0';
    if (install->python != NULL)
        (void)snprintf(out, PATH_MAX, "%s", install->python);
    else if (lib != NULL)
        (void)snprintf(out, PATH_MAX, "%.*s/bin/python3", (int)(lib - install->site), install->site);
    if (install->python == NULL && out[0] != '\0' && access(out, X_OK) != 0)
        out[0] = '\0';
}
