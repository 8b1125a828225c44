#include "patcher/access.h"
#include "base/err.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

int sp_access_check(int dirfd, const char *shown, const char *path)
{
    const char *slash = strrchr(path, '/');
    char folder[PATH_MAX];

    (void)snprintf(folder, sizeof folder, "%.*s", slash ? (int)(slash - path) : 1, slash ? path : ".");
    if (faccessat(dirfd, folder, W_OK | X_OK, AT_EACCESS) == 0 || errno == ENOENT)
        return 0;
    if (errno == EROFS) {
        sp_err_sys(SP_ECANNOT, "cannot write in '%s/%s'", shown, folder);
        return sp_err_hint(SP_ECANNOT,
                           "in a container image: a build step 'RUN sgl-pcie apply'; elsewhere: a writable copy "
                           "of the environment, named with --python, --site or --source");
    }
    sp_err_sys(SP_ECANNOT, "cannot write in '%s/%s'", shown, folder);
    return sp_err_hint(SP_ECANNOT, "run as the owner of this environment, or make a writable copy and name it with "
                                   "--python, --site or --source");
}
