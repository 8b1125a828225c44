#include "build/python.h"
#include "base/err.h"
#include "base/json.h"
#include "base/proc.h"
#include "patcher/interpreter.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ANSWER_SECONDS = 20, ANSWER_MAX = 1 << 16, OLDEST_MINOR = 10 };

static const char probe[] = "import json, os, sys, sysconfig\n"
                            "include = sysconfig.get_path('include')\n"
                            "json.dump({'implementation': sys.implementation.name,\n"
                            "           'version': '.'.join(map(str, sys.version_info[:3])),\n"
                            "           'minor': sys.version_info[1] if sys.version_info[0] == 3 else 0,\n"
                            "           'free_threaded': bool(sysconfig.get_config_var('Py_GIL_DISABLED')),\n"
                            "           'headers': os.path.exists(os.path.join(include, 'Python.h')),\n"
                            "           'include': include}, sys.stdout)\n";

/* What an interpreter says about itself; the strings live as long as the object. */
struct answer {
    json_t *object;
    const char *implementation, *version, *include;
    json_int_t minor;
    bool free_threaded, headers;
};

static int read_answer(struct answer *out, const struct sp_proc_result *result)
{
    int rc = sp_json_load(&out->object, result->out.data, result->out.len, "its answer");

    if (rc == 0)
        rc = sp_json_string(&out->implementation, out->object, "implementation");
    if (rc == 0)
        rc = sp_json_string(&out->version, out->object, "version");
    if (rc == 0)
        rc = sp_json_string(&out->include, out->object, "include");
    if (rc == 0)
        rc = sp_json_integer(&out->minor, out->object, "minor", 0, 1000);
    if (rc == 0)
        rc = sp_json_bool(&out->free_threaded, out->object, "free_threaded");
    return rc < 0 ? rc : sp_json_bool(&out->headers, out->object, "headers");
}

static int ask(struct answer *out, const char *python)
{
    const char *const argv[] = {python, "-I", "-S", "-c", probe, NULL};
    const struct sp_proc_options options = {.seconds = ANSWER_SECONDS, .output_max = ANSWER_MAX};
    struct sp_proc_result result;
    int rc;

    memset(out, 0, sizeof *out);
    rc = sp_proc_run_ok(&result, argv, &options);
    if (rc == 0)
        rc = read_answer(out, &result);
    sp_proc_free(&result);
    return rc < 0 ? sp_err_wrap(SP_ECANNOT, "cannot ask the interpreter '%s'", python) : 0;
}

static int keep(char **out, const char *text)
{
    *out = strdup(text);
    return *out ? 0 : sp_err(SP_ECANNOT, "out of memory");
}

/* Why this interpreter cannot load an abi3 module of ours. NULL: it can. */
static const char *cannot_load(const struct answer *answer)
{
    const char *why = NULL;

    if (strcmp(answer->implementation, "cpython") != 0)
        why = "this Python is not CPython";
    else if (answer->free_threaded)
        why = "this Python is free-threaded, and such a one loads no abi3 module";
    else if (answer->minor < OLDEST_MINOR)
        why = "this Python is older than 3.10";
    return why;
}

/* Take its headers if it has some that will do. */
static int take_headers(struct sp_python *out, const struct answer *answer)
{
    int rc = 0;

    if (answer->headers && cannot_load(answer) == NULL) {
        rc = keep(&out->include, answer->include);
        if (rc == 0)
            rc = keep(&out->version, answer->version);
    }
    return rc;
}

/* An interpreter that is only looked at for its headers: one that does not answer has none. */
static int try_headers(struct sp_python *out, const char *python)
{
    struct answer answer;
    int rc = 0;

    if (ask(&answer, python) == 0)
        rc = take_headers(out, &answer);
    else
        sp_err_clear();
    json_decref(answer.object);
    return rc;
}

static int ask_target(struct sp_python *out, const char *target)
{
    struct answer answer;
    const char *why = NULL;
    int rc = ask(&answer, target);

    if (rc == 0)
        why = cannot_load(&answer);
    if (why != NULL)
        rc = sp_err(SP_ECANNOT, "nothing to build for '%s': %s, so SGLang would stay as stock", target, why);
    else if (rc == 0)
        rc = take_headers(out, &answer);
    json_decref(answer.object);
    return rc;
}

int sp_python_find(struct sp_python *out, const struct sp_install *install)
{
    static const char *const others[] = {"python3", "/usr/bin/python3", NULL};
    char target[PATH_MAX];
    int rc = 0;

    memset(out, 0, sizeof *out);
    sp_interpreter_of(target, install);
    if (target[0] != '\0')
        rc = ask_target(out, target);
    for (size_t i = 0; others[i] && rc == 0 && out->include == NULL; i++)
        rc = try_headers(out, others[i]);
    if (rc == 0 && out->include == NULL) {
        sp_err(SP_ECANNOT,
               "no Python.h: neither %s%s%s nor a python3 on PATH has the headers of a CPython from 3.10 on "
               "(python3-dev, or the like)",
               target[0] ? "'" : "", target[0] ? target : "the target", target[0] ? "'" : "");
        rc = sp_err_hint(SP_ECANNOT, "sudo apt-get install python3-dev");
    }
    return rc;
}

void sp_python_free(struct sp_python *python)
{
    free(python->include);
    free(python->version);
    memset(python, 0, sizeof *python);
}
