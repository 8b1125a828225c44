#include "build/toolchain.h"
#include "base/err.h"
#include "base/file.h"
#include "build/scratch.h"
#include "patcher/mend.h"

#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { QUERY_SECONDS = 60, OUTPUT_MAX = 1 << 20, LINES_MAX = 512 };

/* ---- small helpers ---- */

static int copy(char **out, const char *text)
{
    free(*out);
    *out = strdup(text);
    return *out ? 0 : sp_err(SP_ECANNOT, "out of memory");
}

static bool is_program(const char *path)
{
    struct stat st;

    return stat(path, &st) == 0 && S_ISREG(st.st_mode) && access(path, X_OK) == 0;
}

/* A path that holds after chdir(). *out NULL when there is no such program. */
static int try_program(char **out, const char *folder, const char *name)
{
    char path[PATH_MAX], here[PATH_MAX] = "";
    const char *base = folder ? folder : "";

    if (base[0] != '/' && getcwd(here, sizeof here) == NULL)
        return sp_err_sys(SP_ECANNOT, "cannot tell the current folder");
    if (snprintf(path, sizeof path, "%s%s%s/%s", here, here[0] && base[0] ? "/" : "", base, name) < (int)sizeof path &&
        is_program(path))
        return copy(out, path);
    return 0;
}

static int find_on_path(char **out, const char *name)
{
    const char *path = getenv("PATH");
    char folder[PATH_MAX];
    int rc = 0;

    while (path != NULL && *out == NULL && rc == 0) {
        size_t len = strcspn(path, ":");

        if (snprintf(folder, sizeof folder, "%.*s", (int)len, path) < (int)sizeof folder)
            rc = try_program(out, folder, name);
        path = path[len] ? path + len + 1 : NULL;
    }
    return rc;
}

/* As a shell would: with a slash a path, without one looked up in PATH. */
static int find_named(char **out, const char *name)
{
    char folder[PATH_MAX];
    const char *slash = strrchr(name, '/');

    if (slash == NULL)
        return find_on_path(out, name);
    (void)snprintf(folder, sizeof folder, "%.*s", (int)(slash > name ? slash - name : 1), name);
    return try_program(out, folder, slash + 1);
}

void sp_first_lines(char *out, size_t size, const char *text, size_t count)
{
    size_t used = 0;

    out[0] = '\0';
    while (*text && count > 0 && used + 1 < size) {
        size_t len = strcspn(text, "\n");

        if (len > 0) {
            int put = snprintf(out + used, size - used, "%s  %.*s", used ? "\n" : "", (int)len, text);

            used += put > 0 ? (size_t)put : 0;
            count--;
        }
        text += len + (text[len] == '\n');
    }
}

/* ---- running the tools ---- */

static int keep_variable(struct sp_words *out, const char *name)
{
    const char *value = getenv(name);

    return value ? sp_words_addf(out, "%s=%s", name, value) : 0;
}

int sp_clean_environment(struct sp_words *out, const char *tmp)
{
    static const char *const kept[] = {"PATH", "LD_LIBRARY_PATH", NULL};
    static const char *const set[] = {"LC_ALL=C", "SOURCE_DATE_EPOCH=0", "CCACHE_DISABLE=1", NULL};
    int rc = 0;

    for (size_t i = 0; kept[i] && rc == 0; i++)
        rc = keep_variable(out, kept[i]);
    for (size_t i = 0; set[i] && rc == 0; i++)
        rc = sp_words_add(out, set[i]);
    if (rc == 0)
        rc = tmp ? sp_words_addf(out, "TMPDIR=%s", tmp) : keep_variable(out, "TMPDIR");
    return rc;
}

bool sp_says_full(const struct sp_proc_result *result)
{
    static const char *const words[] = {"No space left on device", "Disk quota exceeded", NULL};
    bool full = false;

    for (size_t i = 0; words[i] && result->status != 0 && !full; i++)
        full = strstr(result->err.data, words[i]) != NULL || strstr(result->out.data, words[i]) != NULL;
    return full;
}

/* Ask a tool something that takes no time. The result is valid for any exit status. */
static int query(struct sp_proc_result *result, const char *const *argv)
{
    struct sp_words env = {NULL, 0};
    struct sp_proc_options options = {.seconds = QUERY_SECONDS, .output_max = OUTPUT_MAX};
    int rc = sp_clean_environment(&env, NULL);

    memset(result, 0, sizeof *result);
    options.env = (const char *const *)env.word;
    if (rc == 0)
        rc = sp_proc_run(result, argv, &options);
    if (rc == 0 && result->timed_out)
        rc = sp_err_hint(sp_err(SP_EHANG, "'%s %s' did not end within %d seconds", argv[0], argv[1], QUERY_SECONDS),
                         "name another nvcc with SGL_PCIE_NVCC, or another host compiler with NVCC_CCBIN");
    else if (rc == 0 && sp_says_full(result))
        rc = sp_scratch_hint(
            sp_err(SP_ECANNOT, "cannot ask '%s %s': no space is left in '%s'", argv[0], argv[1], sp_scratch_parent()));
    if (rc < 0)
        sp_proc_free(result);
    sp_words_free(&env);
    return rc;
}

void sp_how_ended(char *out, size_t size, const struct sp_proc_result *result)
{
    if (result->signal)
        (void)snprintf(out, size, "was ended by signal %d", result->signal);
    else if (result->status == 0)
        (void)snprintf(out, size, "ended well");
    else
        (void)snprintf(out, size, "failed with exit status %d", result->status);
}

/* ---- nvcc ---- */

static int found(struct sp_toolchain *tools, const char *from)
{
    return tools->nvcc && !tools->nvcc_from ? copy(&tools->nvcc_from, from) : 0;
}

/* The one that the user names has to be there. */
static int nvcc_named(struct sp_toolchain *tools)
{
    const char *name = getenv("SGL_PCIE_NVCC");
    int rc;

    if (name == NULL || *name == '\0')
        return 0;
    rc = find_named(&tools->nvcc, name);
    if (rc == 0 && tools->nvcc == NULL) {
        sp_err(SP_ECANNOT, "$SGL_PCIE_NVCC is '%s', and that is not a program", name);
        rc = sp_err_hint(SP_ECANNOT, "name an nvcc with it, or unset it");
    }
    return rc < 0 ? rc : found(tools, "$SGL_PCIE_NVCC");
}

static int nvcc_of_variable(struct sp_toolchain *tools, const char *variable)
{
    const char *root = getenv(variable);
    char folder[PATH_MAX], from[64];
    int rc = 0;

    if (tools->nvcc == NULL && root != NULL && *root != '\0') {
        (void)snprintf(folder, sizeof folder, "%s/bin", root);
        (void)snprintf(from, sizeof from, "$%s", variable);
        rc = try_program(&tools->nvcc, folder, "nvcc");
        if (rc == 0)
            rc = found(tools, from);
    }
    return rc;
}

/* pip's packages nvidia-cuda-nvcc and what it needs make a whole toolkit; the newest one is taken. */
static int nvcc_of_pip(struct sp_toolchain *tools, const char *site)
{
    glob_t hits;
    int rc = 0;

    if (tools->nvcc != NULL || site == NULL)
        return 0;
    sp_glob_beneath(&hits, site, "nvidia/cu*/bin");
    for (size_t i = hits.gl_pathc; i > 0 && rc == 0 && tools->nvcc == NULL; i--)
        rc = try_program(&tools->nvcc, hits.gl_pathv[i - 1], "nvcc");
    globfree(&hits);
    return rc < 0 ? rc : found(tools, "pip");
}

static int no_nvcc(const struct sp_install *install)
{
    sp_err(SP_ECANNOT,
           "no nvcc: none by $SGL_PCIE_NVCC, $CUDA_HOME or $CUDA_PATH, on PATH, in /usr/local/cuda/bin%s%s%s; it comes "
           "with pip's nvidia-cuda-nvcc (CUDA 13, 320 MB) in the environment of this SGLang, or with a CUDA toolkit "
           "from https://developer.nvidia.com/cuda-downloads",
           install ? ", or by pip in '" : "", install ? install->site : "", install ? "'" : "");
    return sp_mend_package_hint(SP_ECANNOT, install, "nvidia-cuda-nvcc");
}

static int find_nvcc(struct sp_toolchain *tools, const struct sp_install *install)
{
    int rc = nvcc_named(tools);

    if (rc == 0)
        rc = nvcc_of_variable(tools, "CUDA_HOME");
    if (rc == 0)
        rc = nvcc_of_variable(tools, "CUDA_PATH");
    if (rc == 0 && tools->nvcc == NULL)
        rc = find_on_path(&tools->nvcc, "nvcc");
    if (rc == 0)
        rc = found(tools, "PATH");
    if (rc == 0 && tools->nvcc == NULL)
        rc = try_program(&tools->nvcc, "/usr/local/cuda/bin", "nvcc");
    if (rc == 0)
        rc = found(tools, "/usr/local/cuda");
    if (rc == 0)
        rc = nvcc_of_pip(tools, install ? install->site : NULL);
    return rc == 0 && tools->nvcc == NULL ? no_nvcc(install) : rc;
}

/* With its own words, which say more than an exit status. compiler: it had to run one, whose fault it may be. */
static int unusable(const struct sp_toolchain *tools, const char *option, bool compiler,
                    const struct sp_proc_result *result)
{
    char said[LINES_MAX], how[SP_HOW_ENDED];

    sp_how_ended(how, sizeof how, result);
    sp_first_lines(said, sizeof said, result->err.len > 0 ? result->err.data : result->out.data, 4);
    sp_err(SP_ECANNOT, "'%s %s' does not answer as nvcc does: it %s%s%s", tools->nvcc, option, how,
           said[0] ? ":\n" : "", said);
    return sp_err_hint(SP_ECANNOT, "name another nvcc with SGL_PCIE_NVCC%s",
                       compiler ? ", or another host compiler with NVCC_CCBIN" : "");
}

/* What stands behind "release 13.0, V": a number and what is fit for the record, as "13.0.88"; else NULL. The text is
 * cut behind it. */
static const char *find_version(char *text)
{
    char *mark = strstr(text, ", V"), *version = mark ? mark + 3 : text;
    bool good = mark != NULL && *version >= '1' && *version <= '9';

    version[strcspn(version, " \n")] = '\0';
    for (const char *at = version; good && *at; at++)
        good = *at > ' ' && *at <= '~';
    return good ? version : NULL;
}

static int read_version(struct sp_toolchain *tools)
{
    const char *const argv[] = {tools->nvcc, "--version", NULL};
    struct sp_proc_result result;
    const char *version;
    int rc = query(&result, argv);

    if (rc < 0)
        return rc;
    version = result.status == 0 ? find_version(result.out.data) : NULL;
    rc = version ? copy(&tools->nvcc_version, version) : unusable(tools, "--version", false, &result);
    sp_proc_free(&result);
    return rc;
}

/* Reproducible objects need --objdir-as-tempdir; old toolkits lack --frandom-seed, which can be done without. */
static int read_abilities(struct sp_toolchain *tools)
{
    const char *const argv[] = {tools->nvcc, "--help", NULL};
    struct sp_proc_result result;
    int rc = query(&result, argv);

    if (rc < 0)
        return rc;
    tools->random_seed = strstr(result.out.data, "--frandom-seed") != NULL;
    if (result.status != 0) {
        rc = unusable(tools, "--help", false, &result);
    } else if (strstr(result.out.data, "--objdir-as-tempdir") == NULL) {
        sp_err(SP_ECANNOT, "nvcc %s ('%s') is too old: it has no --objdir-as-tempdir", tools->nvcc_version,
               tools->nvcc);
        rc = sp_err_hint(SP_ECANNOT, "name a newer one with SGL_PCIE_NVCC");
    }
    sp_proc_free(&result);
    return rc;
}

unsigned sp_toolchain_major(const struct sp_toolchain *tools)
{
    return (unsigned)strtoul(tools->nvcc_version, NULL, 10);
}

/* ---- the host compilers that are here ---- */

/* nvcc's own variable: a program, or the folder of gcc. */
static int cc_named(struct sp_words *out, const char *name)
{
    char *cc = NULL;
    int rc = try_program(&cc, name, "gcc");

    if (rc == 0 && cc == NULL)
        rc = find_named(&cc, name);
    if (rc == 0 && cc == NULL) {
        sp_err(SP_ECANNOT, "$NVCC_CCBIN is '%s', and that is neither a program nor a folder with gcc", name);
        rc = sp_err_hint(SP_ECANNOT, "name a gcc with it, or unset it");
    }
    if (rc == 0)
        rc = sp_words_add(out, cc);
    free(cc);
    return rc;
}

/* gcc, then its older versions under their own names. */
static int cc_usual(struct sp_words *out)
{
    static const char *const names[] = {"gcc",    "gcc-15", "gcc-14", "gcc-13", "gcc-12",
                                        "gcc-11", "gcc-10", "gcc-9",  "clang",  NULL};
    int rc = 0;

    for (size_t i = 0; names[i] && rc == 0; i++) {
        char *cc = NULL;

        rc = find_on_path(&cc, names[i]);
        if (rc == 0 && cc != NULL)
            rc = sp_words_add(out, cc);
        free(cc);
    }
    return rc;
}

/* In the order in which they are tried; there is one at least. */
static int find_compilers(struct sp_words *out)
{
    const char *name = getenv("NVCC_CCBIN");
    int rc = name && *name ? cc_named(out, name) : cc_usual(out);

    if (rc == 0 && out->count == 0) {
        sp_err(SP_ECANNOT, "no host compiler: neither gcc nor clang is on PATH");
        rc = sp_err_hint(SP_ECANNOT, "sudo apt-get install gcc g++");
    }
    return rc;
}

/* ---- where nvcc has its headers and its runtime ---- */

/* The next "-I<folder>" or "-L<folder>" of a line of --dryrun, quoted or not. NULL at its end. */
static const char *next_folder(char out[PATH_MAX], const char *line, const char *flag)
{
    const char *at = strstr(line, flag), *end = strchr(line, '\n');
    size_t len;

    if (at == NULL || (end != NULL && at > end))
        return NULL;
    at += 2;
    len = strcspn(at, "\" \n");
    if (at > line + 2 && at[-3] == '"')
        len = strcspn(at, "\"\n"); /* a quoted one may have blanks */
    (void)snprintf(out, PATH_MAX, "%.*s", (int)len, at);
    return at + len;
}

static int look_for(char **out, const char *dryrun, const char *variable, const char *flag, const char *const *more,
                    const char *file)
{
    const char *line = strstr(dryrun, variable);
    char folder[PATH_MAX], path[2 * PATH_MAX];
    int rc = 0;

    while (rc == 0 && *out == NULL && line != NULL && (line = next_folder(folder, line, flag)) != NULL) {
        (void)snprintf(path, sizeof path, "%s/%s", folder, file);
        if (access(path, R_OK) == 0)
            rc = copy(out, path);
    }
    for (size_t i = 0; rc == 0 && *out == NULL && more[i] != NULL; i++) {
        (void)snprintf(path, sizeof path, "%s/%s", more[i], file);
        if (access(path, R_OK) == 0)
            rc = copy(out, path);
    }
    return rc;
}

/* Not where nvcc looks; or nvcc could not say where it looks. */
static int missing_file(const struct sp_toolchain *tools, const char *file, const struct sp_proc_result *dryrun)
{
    if (dryrun->status != 0 && strstr(dryrun->err.data, "#$ INCLUDES=") == NULL)
        return unusable(tools, "--dryrun", true, dryrun);
    sp_err(SP_ECANNOT, "'%s' comes without '%s'", tools->nvcc, file);
    return sp_err_hint(SP_ECANNOT,
                       "install the rest of that toolkit (pip: nvidia-cuda-runtime, nvidia-cuda-crt; NVIDIA: "
                       "cuda-cudart-dev), or name another nvcc with SGL_PCIE_NVCC");
}

/* nvcc runs a compiler even to say what it would do. The first one with which it says it will do: whether it accepts
 * that compiler shows only when it has its headers. */
static int ask_where(struct sp_proc_result *result, const struct sp_toolchain *tools, const struct sp_words *compilers)
{
    int rc = 0;

    memset(result, 0, sizeof *result);
    for (size_t i = 0; i < compilers->count && rc == 0 && (i == 0 || result->status != 0); i++) {
        const char *const argv[] = {tools->nvcc, "--dryrun",  "-ccbin", compilers->word[i], "-c", "-x",
                                    "cu",        "/dev/null", NULL};

        sp_proc_free(result);
        rc = query(result, argv);
    }
    return rc;
}

static int find_parts(struct sp_toolchain *tools, const struct sp_words *compilers)
{
    static const char *const includes[] = {"/usr/include", NULL};
    static const char *const libraries[] = {"/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64",
                                            NULL};
    struct sp_proc_result result;
    int rc = ask_where(&result, tools, compilers);

    if (rc < 0)
        return rc;
    rc = look_for(&tools->include, result.err.data, "#$ INCLUDES=", "-I", includes, "cuda_runtime_api.h");
    if (rc == 0)
        rc = look_for(&tools->cudart, result.err.data, "#$ LIBRARIES=", "-L", libraries, "libcudart_static.a");
    if (rc == 0 && tools->include == NULL)
        rc = missing_file(tools, "cuda_runtime_api.h", &result);
    if (rc == 0 && tools->cudart == NULL)
        rc = missing_file(tools, "libcudart_static.a", &result);
    if (rc == 0)
        *strrchr(tools->include, '/') = '\0';
    sp_proc_free(&result);
    return rc;
}

/* ---- the one that nvcc accepts ---- */

/* nvcc reads its own headers for this, which know the versions it can do with. *why: its output, "" when it accepts. */
static int ask_nvcc(char why[LINES_MAX], const struct sp_toolchain *tools, const char *cc)
{
    const char *const argv[] = {tools->nvcc, "-ccbin", cc, "-E", "-x", "cu", "/dev/null", NULL};
    struct sp_proc_result result;
    char how[SP_HOW_ENDED];
    int rc = query(&result, argv);

    why[0] = '\0';
    if (rc == 0 && result.status != 0) {
        sp_first_lines(why, LINES_MAX, result.err.data, 4);
        if (why[0] == '\0') {
            sp_how_ended(how, sizeof how, &result);
            (void)snprintf(why, LINES_MAX, "  nvcc %s without a word", how);
        }
    }
    sp_proc_free(&result);
    return rc;
}

static int refused(const struct sp_toolchain *tools, const char *cc, const char *why)
{
    sp_err(SP_EBUILD, "nvcc %s does not accept the host compiler '%s':\n%s", tools->nvcc_version, cc, why);
    return sp_err_hint(SP_EBUILD, "name a gcc (with g++) that it accepts with NVCC_CCBIN, or a newer nvcc with "
                                  "SGL_PCIE_NVCC");
}

/* The first refusal is the one that is told. */
static int choose_cc(struct sp_toolchain *tools, const struct sp_words *compilers)
{
    char first[LINES_MAX] = "", why[LINES_MAX];
    int rc = 0;

    for (size_t i = 0; i < compilers->count && tools->cc == NULL && rc == 0; i++) {
        rc = ask_nvcc(why, tools, compilers->word[i]);
        if (rc == 0 && why[0] == '\0')
            rc = copy(&tools->cc, compilers->word[i]);
        else if (rc == 0 && i == 0)
            memcpy(first, why, sizeof first);
    }
    return rc == 0 && tools->cc == NULL ? refused(tools, compilers->word[0], first) : rc;
}

/* The record is JSON. */
static bool is_utf8(const char *text)
{
    json_t *string = json_string(text);
    const bool is = string != NULL;

    json_decref(string);
    return is;
}

static int first_line(char **out, const char *const *argv)
{
    struct sp_proc_result result;
    char how[SP_HOW_ENDED];
    int rc = query(&result, argv);

    if (rc < 0)
        return rc;
    sp_how_ended(how, sizeof how, &result);
    result.out.data[strcspn(result.out.data, "\n")] = '\0';
    if (result.status != 0)
        rc = sp_err(SP_ECANNOT, "'%s %s' %s", argv[0], argv[1], how);
    else if (!is_utf8(result.out.data))
        rc = sp_err(SP_ECANNOT, "'%s %s' answers with a version that is not UTF-8", argv[0], argv[1]);
    if (rc < 0)
        (void)sp_err_hint(rc, "name another compiler with NVCC_CCBIN");
    if (rc == 0)
        rc = copy(out, result.out.data);
    sp_proc_free(&result);
    return rc;
}

static int find_cc(struct sp_toolchain *tools, const struct sp_words *compilers)
{
    int rc = choose_cc(tools, compilers);

    if (rc == 0)
        rc = first_line(&tools->cc_version, (const char *const[]){tools->cc, "--version", NULL});
    if (rc == 0)
        rc = first_line(&tools->ld_version, (const char *const[]){tools->cc, "-Wl,--version", NULL});
    return rc;
}

/* ---- all of it ---- */

int sp_toolchain_find(struct sp_toolchain *out, const struct sp_install *install)
{
    struct sp_words compilers = {NULL, 0};
    int rc;

    memset(out, 0, sizeof *out);
    rc = sp_scratch_check();
    if (rc == 0)
        rc = find_nvcc(out, install);
    if (rc == 0)
        rc = read_version(out);
    if (rc == 0)
        rc = read_abilities(out);
    if (rc == 0)
        rc = find_compilers(&compilers);
    if (rc == 0)
        rc = find_parts(out, &compilers);
    if (rc == 0)
        rc = find_cc(out, &compilers);
    sp_words_free(&compilers);
    return rc;
}

void sp_toolchain_free(struct sp_toolchain *tools)
{
    free(tools->nvcc);
    free(tools->nvcc_from);
    free(tools->nvcc_version);
    free(tools->include);
    free(tools->cudart);
    free(tools->cc);
    free(tools->cc_version);
    free(tools->ld_version);
    memset(tools, 0, sizeof *tools);
}
