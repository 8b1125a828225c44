#include "patcher/mend.h"
#include "base/err.h"
#include "base/proc.h"
#include "base/shell.h"
#include "patcher/interpreter.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ASK_SECONDS = 20, HAS_PIP = 20, HAS_NO_PIP = 21 };

/* Would this interpreter install into that folder, and with which tool? Environments of uv have no pip. */
static int ask(const char *python, const char *root)
{
    static const char probe[] = "import importlib.util, os, sys, sysconfig\n"
                                "if os.path.realpath(sysconfig.get_path('purelib')) != sys.argv[1]:\n"
                                "    sys.exit(1)\n"
                                "sys.exit(20 if importlib.util.find_spec('pip') else 21)\n";
    const char *const argv[] = {python, "-EB", "-c", probe, root, NULL};
    const struct sp_proc_options options = {.seconds = ASK_SECONDS};
    struct sp_proc_result result = {0};
    int status = -1;

    if (sp_proc_run(&result, argv, &options) == 0)
        status = result.status;
    sp_proc_free(&result);
    return status;
}

/* again: over what is there. */
static int hint_install(int code, const struct sp_install *install, const char *folder, const char *what, bool again)
{
    char python[PATH_MAX], quoted[SP_QUOTED_MAX], *message = strdup(sp_err_message());
    int tool = -1;

    sp_interpreter_of(python, install);
    if (python[0] != '\0')
        tool = ask(python, folder);
    sp_err(code, "%s", message != NULL ? message : "out of memory");
    free(message);
    if (tool == HAS_PIP)
        sp_err_hint(code, "%s -m pip install %s%s", sp_shell_quote(quoted, python),
                    again ? "--force-reinstall --no-deps " : "", what);
    else if (tool == HAS_NO_PIP)
        sp_err_hint(code, "uv pip install --python %s %s%s", sp_shell_quote(quoted, python),
                    again ? "--reinstall --no-deps " : "", what);
    return code;
}

static int hint_reinstall(int code, const struct sp_install *install, const char *version)
{
    char what[64];

    return version != NULL && snprintf(what, sizeof what, "sglang==%s", version) < (int)sizeof what
               ? hint_install(code, install, install->root, what, true)
               : code;
}

static int hint_restore(int code, const struct sp_install *install, const struct sp_plan_file *file)
{
    char checkout[SP_QUOTED_MAX], quoted[SP_QUOTED_MAX], *path = NULL;
    int rc = sp_plan_git_path(&path, install, file);

    if (rc == 0)
        rc = sp_err_hint(code, "git -C %s restore --staged --worktree %s", sp_shell_quote(checkout, install->checkout),
                         sp_shell_quote(quoted, path));
    free(path);
    return rc;
}

int sp_mend_hint(int code, const struct sp_install *install, const struct sp_plan_file *file, const char *version)
{
    if (file->dirty != NULL || file->head.hex[0] != '\0')
        return hint_restore(code, install, file);
    return hint_reinstall(code, install, version);
}

int sp_mend_package_hint(int code, const struct sp_install *install, const char *package)
{
    return install != NULL ? hint_install(code, install, install->site, package, false) : code;
}
