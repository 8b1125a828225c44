#include "patcher/install.h"
#include "base/err.h"
#include "base/file.h"
#include "base/shell.h"
#include "patcher/interpreter.h"
#include "patcher/rest.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { METADATA_MAX = 4 << 20 };

/* Interpreters that nobody named: of the environment that is active, and of PATH. */
enum { FROM_VENV, FROM_CONDA, FROM_PATH, MAX_CANDIDATES };

static char *join(const char *dir, const char *name)
{
    char *path = NULL;

    return asprintf(&path, "%s/%s", dir, name) < 0 ? NULL : path;
}

const char *sp_layout_name(enum sp_layout layout)
{
    static const char *const names[] = {"wheel", "editable", "source"};

    return names[layout];
}

const char *sp_install_option(const struct sp_install *install)
{
    if (install->python != NULL)
        return "--python";
    return install->layout == SP_LAYOUT_SOURCE ? "--source" : "--site";
}

/* "Version: x" of a METADATA file; *out stays NULL when there is none. */
static void read_version(char **out, int site_fd, const char *dist_info)
{
    char path[NAME_MAX + 16];
    struct sp_buf bytes = SP_BUF_INIT;
    const char *line;

    (void)snprintf(path, sizeof path, "%s/METADATA", dist_info);
    if (sp_read_beneath(&bytes, NULL, site_fd, path, METADATA_MAX) == 0) {
        line = strncmp(bytes.data, "Version: ", 9) == 0 ? bytes.data : strstr(bytes.data, "\nVersion: ");
        if (line != NULL) {
            line = strchr(line, ' ') + 1;
            *out = strndup(line, strcspn(line, "\r\n"));
        }
    }
    sp_buf_free(&bytes);
    sp_err_clear();
}

static int is_dist_info_of(const char *entry, const char *name)
{
    size_t len = strlen(name), all = strlen(entry);

    return strncmp(entry, name, len) == 0 && entry[len] == '-' && all > 10 &&
           strcmp(entry + all - 10, ".dist-info") == 0;
}

/* Versions of SGLang and of its kernel package, from the metadata that pip left. True if SGLang has some here. */
static int read_metadata(struct sp_install *install, int dirfd)
{
    static const char *const kernels[][2] = {{"sgl_kernel", "sgl-kernel"}, {"sglang_kernel", "sglang-kernel"}};
    int copy = openat(dirfd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC), found = 0;
    DIR *dir = copy < 0 ? NULL : fdopendir(copy);
    char *version;

    for (struct dirent *entry; dir != NULL && (entry = readdir(dir)) != NULL;) {
        if (is_dist_info_of(entry->d_name, "sglang")) {
            found = 1;
            free(install->sglang);
            install->sglang = NULL;
            read_version(&install->sglang, dirfd, entry->d_name);
        }
        for (size_t i = 0; i < 2; i++) {
            if (!is_dist_info_of(entry->d_name, kernels[i][0]))
                continue;
            version = NULL;
            read_version(&version, dirfd, entry->d_name);
            free(install->kernel);
            install->kernel = NULL;
            if (asprintf(&install->kernel, "%s %s", kernels[i][1], version ? version : "(unknown version)") < 0)
                install->kernel = NULL;
            free(version);
        }
    }
    if (dir != NULL)
        closedir(dir);
    return found;
}

/* Open both directories and refuse a package that is a link: writing would land somewhere else. */
static int open_directories(struct sp_install *install)
{
    char target[PATH_MAX];
    ssize_t len;

    install->root_fd = open(install->root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (install->root_fd < 0)
        return sp_err_sys(SP_ECANNOT, "cannot open '%s'", install->root);
    install->site_fd = open(install->site, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (install->site_fd < 0)
        return sp_err_sys(SP_ECANNOT, "cannot open '%s'", install->site);
    len = readlinkat(install->root_fd, "sglang", target, sizeof target - 1);
    if (len >= 0) {
        target[len] = '\0';
        sp_err(SP_ECANNOT, "'%s/sglang' is a symbolic link to '%s': patching it would write outside this install",
               install->root, target);
        return sp_err_hint(SP_ECANNOT, "name the folder that really holds sglang/ with --site or --source");
    }
    return 0;
}

static int allocate(struct sp_install **out)
{
    *out = calloc(1, sizeof **out);
    if (*out == NULL)
        return sp_err(SP_ECANNOT, "out of memory");
    (*out)->root_fd = (*out)->site_fd = (*out)->checkout_fd = -1;
    return 0;
}

static int is_missing(int error)
{
    return error == ENOENT || error == ENOTDIR;
}

/* The checkout that <checkout>/python lies in: it is git's, or has sgl-kernel's sources where some release has them. */
static int find_checkout(struct sp_install *install)
{
    static const char tail[] = "/python";
    static const char *const marks[] = {".git", "sgl-kernel", "python/sglang/kernels/aot"};
    const size_t len = strlen(install->root), tail_len = sizeof tail - 1;
    char *checkout;
    bool found = false;

    if (len <= tail_len || strcmp(install->root + len - tail_len, tail) != 0)
        return 0;
    checkout = strndup(install->root, len - tail_len);
    for (size_t i = 0; checkout != NULL && i < sizeof marks / sizeof *marks && !found; i++) {
        char *path = join(checkout, marks[i]);

        found = path != NULL && access(path, F_OK) == 0;
        free(path);
    }
    if (found)
        install->checkout_fd = open(checkout, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (install->checkout_fd >= 0)
        install->checkout = checkout;
    else
        free(checkout);
    return checkout != NULL ? 0 : sp_err(SP_ECANNOT, "out of memory");
}

/* Fill in an install whose root and site are known. */
static int complete(struct sp_install *install, const char *root, const char *site)
{
    const char *prefix = getenv("PYTHONPYCACHEPREFIX");
    int in_root, in_site = 0, rc;

    install->root = realpath(root, NULL);
    install->site = realpath(site, NULL);
    if (install->root == NULL || install->site == NULL)
        return sp_err_sys(is_missing(errno) ? SP_EUSAGE : SP_ECANNOT, "cannot resolve '%s'",
                          install->root ? site : root);
    rc = open_directories(install);
    if (rc < 0)
        return rc;
    if (prefix != NULL && *prefix != '\0')
        install->pycache_prefix = strdup(prefix);
    in_root = read_metadata(install, install->root_fd);
    if (strcmp(install->root, install->site) != 0)
        in_site = read_metadata(install, install->site_fd);
    if (in_root) {
        install->layout = SP_LAYOUT_WHEEL;
        free(install->site);
        install->site = strdup(install->root);
        close(install->site_fd);
        install->site_fd = dup(install->root_fd);
    } else {
        install->layout = in_site ? SP_LAYOUT_EDITABLE : SP_LAYOUT_SOURCE;
    }
    if (install->site == NULL || install->site_fd < 0)
        return sp_err(SP_ECANNOT, "out of memory");
    return in_root ? 0 : find_checkout(install);
}

static const char target_hint[] =
    "name a folder that holds sglang/ with --site, a checkout with --source, or an interpreter with --python";

/* A folder that was named where it cannot be meant: where it is that of an environment, say how to name that. */
static int hint_environment(int rc, const char *root)
{
    char *python = join(root, "bin/python3"), *config = join(root, "pyvenv.cfg"), quoted[SP_QUOTED_MAX];

    if (python != NULL && config != NULL && (access(python, X_OK) == 0 || access(config, F_OK) == 0))
        rc = sp_err_hint(rc, "name the interpreter of this environment: --python %s", sp_shell_quote(quoted, python));
    free(python);
    free(config);
    return rc;
}

static int no_package(const char *option, const char *root)
{
    int rc = sp_err(SP_EUSAGE, "no SGLang in %s '%s': there is no folder sglang/ in it", option, root);

    return sp_rest_hint(hint_environment(sp_err_hint(rc, "%s", target_hint), root), root);
}

/* from_folder: --site DIR and --source DIR; root is the folder that should hold sglang/. */
static int from_folder(struct sp_install *install, const char *option, const char *dir, const char *root)
{
    char *package = join(root, "sglang");
    struct stat st;
    int rc = 0;

    if (package == NULL)
        rc = sp_err(SP_ECANNOT, "out of memory");
    else if (stat(dir, &st) != 0 && !is_missing(errno))
        rc = sp_err_sys(SP_ECANNOT, "cannot look at %s '%s'", option, dir);
    else if (!sp_is_folder(dir))
        rc = sp_err_hint(sp_err(SP_EUSAGE, "%s '%s' is not a directory", option, dir), "%s", target_hint);
    else if (lstat(package, &st) != 0 && !is_missing(errno))
        rc = sp_err_sys(SP_ECANNOT, "cannot look into %s '%s'", option, root);
    else if (lstat(package, &st) != 0 || !(S_ISDIR(st.st_mode) || S_ISLNK(st.st_mode)))
        rc = no_package(option, root);
    free(package);
    return rc < 0 ? rc : complete(install, root, root);
}

/* Also when we may not see it: the error is then about this path. */
static int exists(const char *path)
{
    struct stat st;

    return stat(path, &st) == 0 || !is_missing(errno);
}

static int from_source(struct sp_install *install, const char *dir)
{
    char *python = join(dir, "python"), *package = join(dir, "python/sglang");
    int rc;

    if (python == NULL || package == NULL)
        rc = sp_err(SP_ECANNOT, "out of memory");
    else
        rc = from_folder(install, "--source", dir, exists(package) ? python : dir);
    if (rc == 0)
        install->layout = SP_LAYOUT_SOURCE;
    free(python);
    free(package);
    return rc;
}

/* 1: the interpreter has no SGLang (the message says so). */
static int from_python(struct sp_install *install, const char *python)
{
    char *root = NULL, *site = NULL;
    int rc = sp_interpreter_ask(&root, &site, python);

    if (rc == 0)
        rc = complete(install, root, site);
    if (rc == 0 && (install->python = strdup(python)) == NULL)
        rc = sp_err(SP_ECANNOT, "out of memory");
    if (rc == 0 && install->layout == SP_LAYOUT_SOURCE && strcmp(install->root, install->site) != 0)
        install->layout = SP_LAYOUT_EDITABLE; /* on the path of this interpreter, without metadata */
    free(root);
    free(site);
    return rc;
}

static char *find_on_path(const char *name)
{
    const char *path = getenv("PATH");
    char *found = NULL;

    while (path != NULL && *path != '\0' && found == NULL) {
        size_t len = strcspn(path, ":");

        if (asprintf(&found, "%.*s/%s", len > 0 ? (int)len : 1, len > 0 ? path : ".", name) < 0)
            found = NULL;
        if (found != NULL && (access(found, X_OK) != 0 || sp_is_folder(found))) {
            free(found);
            found = NULL;
        }
        path += len + (path[len] == ':');
    }
    return found;
}

static char *python_of_environment(const char *variable)
{
    const char *prefix = getenv(variable);
    char *python = prefix && *prefix ? join(prefix, "bin/python3") : NULL;

    if (python != NULL && access(python, X_OK) != 0) {
        free(python);
        python = NULL;
    }
    return python;
}

static int same_install(const struct sp_install *a, const struct sp_install *b)
{
    return strcmp(a->root, b->root) == 0 && strcmp(a->site, b->site) == 0;
}

static int several(const struct sp_install *const *found, size_t count)
{
    struct sp_buf list = SP_BUF_INIT;
    char quoted[SP_QUOTED_MAX];
    int rc = 0;

    for (size_t i = 0; i < count && rc == 0; i++)
        rc = sp_buf_printf(&list, "\n  --python %s   sglang %s in %s", sp_shell_quote(quoted, found[i]->python),
                           found[i]->sglang ? found[i]->sglang : "(unknown version)", found[i]->root);
    if (rc == 0) {
        sp_err(SP_EUSAGE, "several installs of SGLang, and none was named:%s", list.data);
        rc = sp_err_hint(SP_EUSAGE, "name one of them with --python");
    }
    sp_buf_free(&list);
    return rc;
}

/* What this interpreter has, unless it is found already. 1: nothing new; to be told apart from an error. */
static int add_found(struct sp_install *found[MAX_CANDIDATES], size_t *count, const char *python)
{
    struct sp_install *install = NULL;
    int rc = allocate(&install);

    if (rc == 0)
        rc = from_python(install, python);
    for (size_t i = 0; rc == 0 && i < *count; i++)
        rc = same_install(found[i], install);
    if (rc == 0)
        found[(*count)++] = install;
    else
        sp_install_free(install);
    return rc;
}

/* Take the interpreters of this environment in turn; one install may be found more than once. */
static int from_environment(struct sp_install **out)
{
    char *pythons[MAX_CANDIDATES] = {python_of_environment("VIRTUAL_ENV"), python_of_environment("CONDA_PREFIX"),
                                     find_on_path("python3")};
    struct sp_install *found[MAX_CANDIDATES] = {NULL};
    size_t count = 0;
    int rc = 0;

    for (size_t i = 0; i < MAX_CANDIDATES && rc >= 0; i++) {
        bool seen = pythons[i] == NULL;

        for (size_t j = 0; j < i && !seen; j++)
            seen = pythons[j] != NULL && strcmp(pythons[i], pythons[j]) == 0;
        if (!seen)
            rc = add_found(found, &count, pythons[i]);
        if (rc < 0 && i == FROM_PATH && count > 0) { /* an environment that has one is what is meant */
            sp_err_clear();
            rc = 0;
        }
    }
    if (rc >= 0 && count == 0) {
        sp_err(SP_EUSAGE, "no SGLang found by $VIRTUAL_ENV, $CONDA_PREFIX or python3 on PATH");
        rc = sp_err_hint(SP_EUSAGE, "name the interpreter with --python, or the folder with --site or --source");
    } else if (rc >= 0 && count > 1) {
        rc = several((const struct sp_install *const *)found, count);
    } else if (rc >= 0) {
        *out = found[0];
        rc = 0;
    }
    for (size_t i = 0; i < count && *out != found[i]; i++)
        sp_install_free(found[i]);
    for (size_t i = 0; i < MAX_CANDIDATES; i++)
        free(pythons[i]);
    return rc;
}

static int from_option(struct sp_install **out, const struct sp_target *target)
{
    int rc = allocate(out);

    if (rc < 0)
        return rc;
    if (target->site != NULL)
        rc = from_folder(*out, "--site", target->site, target->site);
    else if (target->source != NULL)
        rc = from_source(*out, target->source);
    else if ((rc = from_python(*out, target->python)) < 0)
        rc = hint_environment(rc, target->python);
    if (rc != 0) {
        sp_install_free(*out);
        *out = NULL;
    }
    return rc > 0 ? SP_EUSAGE : rc;
}

int sp_install_locate(struct sp_install **out, const struct sp_target *target)
{
    int named = (target->python != NULL) + (target->site != NULL) + (target->source != NULL);

    *out = NULL;
    if (named > 1)
        return sp_err(SP_EUSAGE, "--python, --site and --source exclude each other");
    return named == 1 ? from_option(out, target) : from_environment(out);
}

void sp_install_free(struct sp_install *install)
{
    if (install == NULL)
        return;
    if (install->root_fd >= 0)
        close(install->root_fd);
    if (install->site_fd >= 0)
        close(install->site_fd);
    if (install->checkout_fd >= 0)
        close(install->checkout_fd);
    free(install->checkout);
    free(install->root);
    free(install->site);
    free(install->python);
    free(install->pycache_prefix);
    free(install->sglang);
    free(install->kernel);
    free(install);
}
