#include "patcher/datadir.h"
#include "base/err.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* "/usr/bin/sgl-pcie" -> "/usr" */
static int prefix_of_executable(char prefix[PATH_MAX])
{
    ssize_t len = readlink("/proc/self/exe", prefix, PATH_MAX - 1);

    if (len < 0)
        return sp_err_hint(sp_err_sys(SP_ECANNOT, "cannot tell where this program is (/proc/self/exe)"),
                           "sudo mount -t proc proc /proc");
    prefix[len] = '\0';
    for (int up = 0; up < 2; up++) {
        char *slash = strrchr(prefix, '/');

        if (slash != NULL)
            *slash = '\0';
    }
    return 0;
}

int sp_datadir(char **out, const char *name)
{
    const char *from_user = getenv("SGL_PCIE_DATA");
    char prefix[PATH_MAX];
    int len, rc;

    *out = NULL;
    if (from_user != NULL && *from_user != '\0') {
        len = asprintf(out, "%s%s%s", from_user, name ? "/" : "", name ? name : "");
    } else {
        rc = prefix_of_executable(prefix);
        if (rc < 0)
            return rc;
        len = asprintf(out, "%s/share/sgl-pcie%s%s", prefix, name ? "/" : "", name ? name : "");
    }
    return len < 0 ? sp_err(SP_ECANNOT, "out of memory") : 0;
}

int sp_datadir_hint(int code)
{
    const char *from_user = getenv("SGL_PCIE_DATA");

    if (*sp_err_hint_text() != '\0')
        return code;
    if (code == SP_ECANNOT && (errno == EMFILE || errno == ENFILE))
        return sp_err_hint(code, "ulimit -n 1024");
    if (from_user != NULL && *from_user != '\0')
        return sp_err_hint(code, "unset SGL_PCIE_DATA, or name a folder with the data of this sgl-pcie");
    return sp_err_hint(code, "install sgl-pcie again: the data that came with it is not whole");
}
