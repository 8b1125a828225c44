#include "patcher/runtime.h"
#include "base/err.h"
#include "base/shell.h"
#include "patcher/datadir.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PACKAGE     "sgl_pcie"
#define DIST_PREFIX "sgl_pcie_runtime-"
#define DIST_SUFFIX ".dist-info"
#define DIST_INFO   DIST_PREFIX SP_VERSION DIST_SUFFIX

enum { FILE_MAX = 256 << 20, DEPTH_MAX = 4 };

static const char metadata[] = "Metadata-Version: 2.1\n"
                               "Name: sgl-pcie-runtime\n"
                               "Version: " SP_VERSION "\n"
                               "Summary: All-reduce for GPUs that talk over PCIe, added to this SGLang by sgl-pcie\n"
                               "License: Apache-2.0\n"
                               "Requires-Python: >=3.8\n";
static const char wheel[] = "Wheel-Version: 1.0\n"
                            "Generator: sgl-pcie " SP_VERSION "\n"
                            "Root-Is-Purelib: true\n"
                            "Tag: py3-none-any\n";
static const char installer[] = "sgl-pcie\n";

void sp_runtime_free(struct sp_runtime *runtime)
{
    for (size_t i = 0; i < runtime->count; i++) {
        free(runtime->file[i].path);
        sp_buf_free(&runtime->file[i].bytes);
    }
    free(runtime->file);
    *runtime = (struct sp_runtime)SP_RUNTIME_INIT;
}

const struct sp_runtime_file *sp_runtime_find(const struct sp_runtime *runtime, const char *path)
{
    const struct sp_runtime_file *found = NULL;

    for (size_t i = 0; i < runtime->count && found == NULL; i++)
        if (strcmp(runtime->file[i].path, path) == 0)
            found = &runtime->file[i];
    return found;
}

static int by_path(const void *a, const void *b)
{
    return strcmp(((const struct sp_runtime_file *)a)->path, ((const struct sp_runtime_file *)b)->path);
}

static void sort(struct sp_runtime *runtime)
{
    if (runtime->count > 1)
        qsort(runtime->file, runtime->count, sizeof *runtime->file, by_path);
}

/* Takes the bytes over, also on error. */
static int add(struct sp_runtime *runtime, const char *path, struct sp_buf *bytes)
{
    struct sp_runtime_file *grown = realloc(runtime->file, (runtime->count + 1) * sizeof *grown);
    char *copy = strdup(path);
    int rc = 0;

    if (grown != NULL)
        runtime->file = grown;
    if (grown == NULL || copy == NULL) {
        free(copy);
        sp_buf_free(bytes);
        rc = sp_err(SP_ECANNOT, "out of memory");
    } else {
        runtime->file[runtime->count++] = (struct sp_runtime_file){.path = copy, .bytes = *bytes};
        *bytes = (struct sp_buf)SP_BUF_INIT;
    }
    return rc;
}

static int add_text(struct sp_runtime *runtime, const char *path, const char *text)
{
    struct sp_buf bytes = SP_BUF_INIT;
    int rc = sp_buf_set(&bytes, text, strlen(text));

    return rc < 0 ? rc : add(runtime, path, &bytes);
}

static int ends_with(const char *text, const char *end)
{
    size_t len = strlen(text), end_len = strlen(end);

    return len >= end_len && strcmp(text + len - end_len, end) == 0;
}

static int starts_with(const char *text, const char *start)
{
    return strncmp(text, start, strlen(start)) == 0;
}

int sp_runtime_is_source(const char *path)
{
    return (starts_with(path, PACKAGE "/") && ends_with(path, ".py")) || starts_with(path, DIST_PREFIX) ||
           strcmp(path, SP_STATE_DIR "/install.json") == 0;
}

/* ---- what should be there ---- */

static int add_sources(struct sp_runtime *out)
{
    char *folder = NULL, *file = NULL, path[NAME_MAX + sizeof PACKAGE + 1];
    struct sp_buf bytes = SP_BUF_INIT;
    DIR *dir = NULL;
    int rc = sp_datadir(&folder, "python/" PACKAGE);

    if (rc == 0 && (dir = opendir(folder)) == NULL)
        rc = sp_err_sys(SP_EFAIL, "cannot read the runtime's sources in '%s'", folder);
    if (rc < 0)
        rc = sp_datadir_hint(rc);
    for (struct dirent *entry; rc == 0 && (entry = readdir(dir)) != NULL;) {
        if (!ends_with(entry->d_name, ".py"))
            continue;
        if (asprintf(&file, "%s/%s", folder, entry->d_name) < 0)
            rc = sp_err(SP_ECANNOT, "out of memory");
        else
            rc = sp_read_file(&bytes, file, FILE_MAX);
        (void)snprintf(path, sizeof path, PACKAGE "/%s", entry->d_name);
        if (rc == 0)
            rc = add(out, path, &bytes);
        free(file);
        file = NULL;
    }
    if (dir != NULL)
        closedir(dir);
    free(folder);
    return rc;
}

static int add_metadata(struct sp_runtime *out)
{
    int rc = add_text(out, DIST_INFO "/METADATA", metadata);

    if (rc == 0)
        rc = add_text(out, DIST_INFO "/WHEEL", wheel);
    return rc < 0 ? rc : add_text(out, DIST_INFO "/INSTALLER", installer);
}

/* What was done to this SGLang, for whoever looks at the install without this program. A source text beside it is no
 * part of the install: git says what was done to that. */
static json_t *describe(const struct sp_plan *plan)
{
    json_t *sets = json_object();

    for (size_t i = 0; i < plan->set_count; i++) {
        json_t *files;

        if (plan->set[i]->checkout)
            continue;
        files = json_array();
        for (size_t j = 0; j < plan->file_count; j++) {
            const struct sp_plan_file *file = &plan->files[j];

            if (file->set == plan->set[i] && file->text != NULL)
                json_array_append_new(files, json_pack("{s:s, s:s, s:s}", "path", file->path, "pre",
                                                       file->text->pre.hex, "post", file->text->patch.post.hex));
        }
        json_object_set_new(sets, plan->set[i]->name,
                            json_pack("{s:i, s:o}", "revision", (int)plan->set[i]->revision, "files", files));
    }
    return json_pack("{s:s, s:s, s:o}", "schema", "sgl-pcie-install/1", "tool", SP_VERSION, "sets", sets);
}

static int add_description(struct sp_runtime *out, const struct sp_plan *plan)
{
    json_t *root = describe(plan);
    char *text = root ? json_dumps(root, JSON_SORT_KEYS | JSON_INDENT(1)) : NULL;
    int rc = text ? add_text(out, SP_STATE_DIR "/install.json", text) : sp_err(SP_ECANNOT, "out of memory");

    free(text);
    json_decref(root);
    return rc;
}

/* Hex digits to the base64 of RECORD: URL-safe alphabet, no padding. */
static void base64_of_hex(char out[44], const char *hex)
{
    static const char alphabet[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    unsigned bits = 0, have = 0;
    size_t used = 0;

    for (; *hex != '\0'; hex++) {
        bits = bits << 4 | (unsigned)(*hex <= '9' ? *hex - '0' : *hex - 'a' + 10);
        have += 4;
        if (have >= 6) {
            have -= 6;
            out[used++] = alphabet[bits >> have & 63];
        }
    }
    if (have > 0)
        out[used++] = alphabet[bits << (6 - have) & 63];
    out[used] = '\0';
}

static int record_line(struct sp_buf *record, const struct sp_runtime_file *file)
{
    char hex[SP_SHA256_HEX + 1], sum[44];
    int rc = sp_sha256(hex, file->bytes.data, file->bytes.len);

    base64_of_hex(sum, hex);
    return rc < 0 ? rc : sp_buf_printf(record, "%s,sha256=%s,%zu\n", file->path, sum, file->bytes.len);
}

#define RECORD DIST_INFO "/RECORD"

/* Lines for the sources, or for what `build` put beside them. */
static int record_lines(struct sp_buf *record, const struct sp_runtime *files, int sources)
{
    int rc = 0;

    for (size_t i = 0; i < files->count && rc == 0; i++) {
        const char *path = files->file[i].path;

        if (sp_runtime_is_source(path) == sources && strcmp(path, RECORD) != 0 &&
            (sources || starts_with(path, PACKAGE "/")))
            rc = record_line(record, &files->file[i]);
    }
    return rc;
}

/* flag.json comes and goes with enable and disable, and setup's mark, too: listed always, without a hash. */
static int record_text(struct sp_buf *record, const struct sp_runtime *sources, const struct sp_runtime *built)
{
    int rc = record_lines(record, sources, 1);

    if (rc == 0)
        rc = record_lines(record, built, 0);
    return rc < 0 ? rc : sp_buf_printf(record, "%s,,\n%s,,\n%s,,\n", SP_STATE_DIR "/flag.json", SP_SETUP_MARK, RECORD);
}

static int add_record(struct sp_runtime *out, const struct sp_runtime *present)
{
    struct sp_buf record = SP_BUF_INIT;
    int rc = record_text(&record, out, present);

    if (rc < 0)
        sp_buf_free(&record);
    return rc < 0 ? rc : add(out, RECORD, &record);
}

int sp_runtime_wanted(struct sp_runtime *out, const struct sp_install *install, const struct sp_plan *plan)
{
    struct sp_runtime present = SP_RUNTIME_INIT;
    int rc = sp_runtime_present(&present, install);

    if (rc == 0)
        rc = add_sources(out);
    if (rc == 0)
        rc = add_description(out, plan);
    if (rc == 0)
        rc = add_metadata(out);
    sort(out);
    if (rc == 0)
        rc = add_record(out, &present);
    sort(out);
    sp_runtime_free(&present);
    return rc;
}

/* ---- what is there ---- */

/* Names first: a file of somebody else's may be anything, and is not even opened. */
static int list_folder(struct sp_runtime *out, int site_fd, const char *folder, int depth);

static int list_entry(struct sp_runtime *out, int site_fd, const char *path, int depth)
{
    struct sp_buf nothing = SP_BUF_INIT;
    struct stat st;

    if (fstatat(site_fd, path, &st, AT_SYMLINK_NOFOLLOW) != 0) /* one that has gone meanwhile is none */
        return errno == ENOENT ? 0 : sp_err_sys(SP_ECANNOT, "cannot look at '%s'", path);
    if (!S_ISDIR(st.st_mode))
        return add(out, path, &nothing);
    return depth == DEPTH_MAX || ends_with(path, "/__pycache__") ? 0 : list_folder(out, site_fd, path, depth + 1);
}

static int list_folder(struct sp_runtime *out, int site_fd, const char *folder, int depth)
{
    char path[PATH_MAX];
    DIR *dir;
    int fd, rc = sp_open_beneath(&fd, site_fd, folder, O_RDONLY | O_DIRECTORY, 0);

    if (rc < 0 && errno == ENOENT) {
        sp_err_clear();
        return 0;
    }
    if (rc < 0)
        return rc;
    dir = fdopendir(fd);
    if (dir == NULL) {
        rc = sp_err_sys(SP_ECANNOT, "cannot read '%s'", folder);
        close(fd);
        return rc;
    }
    for (struct dirent *entry; rc == 0 && (entry = readdir(dir)) != NULL;) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        if (snprintf(path, sizeof path, "%s/%s", folder, entry->d_name) >= (int)sizeof path)
            rc = sp_err(SP_ECANNOT, "the path '%s/%s' is too long", folder, entry->d_name);
        else
            rc = list_entry(out, site_fd, path, depth);
    }
    closedir(dir);
    return rc;
}

/* Metadata of any version of ours: an older program may have put it there. */
static int list_metadata(struct sp_runtime *out, int site_fd)
{
    int fd = openat(site_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC), rc = 0;
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);

    if (dir == NULL)
        return sp_err_sys(SP_ECANNOT, "cannot read the site's directory");
    for (struct dirent *entry; rc == 0 && (entry = readdir(dir)) != NULL;)
        if (starts_with(entry->d_name, DIST_PREFIX) && ends_with(entry->d_name, DIST_SUFFIX))
            rc = list_folder(out, site_fd, entry->d_name, 1);
    closedir(dir);
    return rc;
}

static int same_bytes(const struct sp_buf *a, const struct sp_buf *b)
{
    return a->len == b->len && memcmp(a->data, b->data, a->len) == 0;
}

/* Does a RECORD of ours have a line for this path? */
static bool is_listed(const struct sp_runtime *all, const char *path)
{
    const size_t len = strlen(path);
    bool found = false;

    for (size_t i = 0; i < all->count && !found; i++) {
        const char *line = all->file[i].bytes.data;

        if (!starts_with(all->file[i].path, DIST_PREFIX) || !ends_with(all->file[i].path, "/RECORD"))
            continue;
        for (; line != NULL && !found; line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL)
            found = strncmp(line, path, len) == 0 && line[len] == ',';
    }
    return found;
}

static bool is_one_of(const char *path, const char *const *names)
{
    while (*names && strcmp(path, *names) != 0)
        names++;
    return *names != NULL;
}

static bool is_state(const char *path)
{
    static const char *const names[] = {SP_STATE_DIR "/install.json", SP_STATE_DIR "/flag.json", SP_SETUP_MARK, NULL};

    return is_one_of(path, names);
}

static bool is_built(const char *path)
{
    static const char *const names[] = {PACKAGE "/libpar.so",
                                        PACKAGE "/sgl-pcie-gpu",
                                        PACKAGE "/_sgl_pcie.abi3.so",
                                        PACKAGE "/build.json",
                                        PACKAGE "/libupstream.so",
                                        PACKAGE "/upstream.json",
                                        NULL};

    return is_one_of(path, names);
}

/* An install of ours whose RECORD somebody removed. What build wrote is known by its name then, and only then. */
static bool lost_record(const struct sp_runtime *described, const struct sp_runtime *names)
{
    bool found = false;

    for (size_t i = 0; i < described->count && !found; i++)
        found = ends_with(described->file[i].path, "/RECORD");
    return !found && sp_runtime_find(names, SP_STATE_DIR "/install.json") != NULL;
}

/* wanted: only with these bytes; NULL: with any. One that has gone meanwhile is none. */
static int take(struct sp_runtime *out, int site_fd, const char *path, const struct sp_buf *wanted)
{
    struct sp_buf bytes = SP_BUF_INIT;
    char quoted[SP_QUOTED_MAX];
    int rc = sp_read_beneath(&bytes, NULL, site_fd, path, FILE_MAX);

    if (rc < 0 && errno == EACCES)
        rc = sp_err_hint(rc, "sudo chmod a+r %s", sp_shell_quote_at(quoted, site_fd, path));
    if (rc == 0 && (wanted == NULL || same_bytes(wanted, &bytes)))
        rc = add(out, path, &bytes);
    sp_buf_free(&bytes);
    return rc < 0 ? rc : 0;
}

/* Other files may lie in these folders; they are nobody's to remove but their owner's. RECORD is read by now. */
static int take_ours(struct sp_runtime *out, int site_fd, const struct sp_runtime *names)
{
    const bool lost = lost_record(out, names);
    struct sp_runtime sources = SP_RUNTIME_INIT;
    int rc = names->count > 0 ? add_sources(&sources) : 0;

    for (size_t i = 0; i < names->count && rc == 0; i++) {
        const char *path = names->file[i].path;
        const struct sp_runtime_file *source = sp_runtime_find(&sources, path);

        if (is_state(path) || (lost && is_built(path)) || is_listed(out, path))
            rc = take(out, site_fd, path, NULL);
        else if (source != NULL)
            rc = take(out, site_fd, path, &source->bytes);
    }
    sp_runtime_free(&sources);
    return rc;
}

int sp_runtime_present(struct sp_runtime *out, const struct sp_install *install)
{
    struct sp_runtime listed = SP_RUNTIME_INIT, names = SP_RUNTIME_INIT;
    int rc = list_metadata(&listed, install->site_fd);

    for (size_t i = 0; i < listed.count && rc == 0; i++)
        rc = take(out, install->site_fd, listed.file[i].path, NULL);
    if (rc == 0)
        rc = list_folder(&names, install->site_fd, PACKAGE, 0);
    if (rc == 0)
        rc = list_folder(&names, install->site_fd, SP_STATE_DIR, 0);
    if (rc == 0)
        rc = take_ours(out, install->site_fd, &names);
    sort(out);
    sp_runtime_free(&listed);
    sp_runtime_free(&names);
    return rc;
}

/* Put a file into the list, or take it out when it has no bytes. */
static int overlay(struct sp_runtime *files, const struct sp_runtime_file *file)
{
    struct sp_buf bytes = SP_BUF_INIT;
    size_t at = 0;
    int rc = 0;

    while (at < files->count && strcmp(files->file[at].path, file->path) != 0)
        at++;
    if (at < files->count) {
        free(files->file[at].path);
        sp_buf_free(&files->file[at].bytes);
        files->file[at] = files->file[--files->count];
    }
    if (file->bytes.data != NULL) {
        rc = sp_buf_set(&bytes, file->bytes.data, file->bytes.len);
        if (rc == 0)
            rc = add(files, file->path, &bytes);
    }
    return rc;
}

int sp_runtime_record(struct sp_runtime *out, const struct sp_install *install, const struct sp_runtime *built)
{
    struct sp_runtime files = SP_RUNTIME_INIT;
    struct sp_buf record = SP_BUF_INIT;
    int rc = sp_runtime_present(&files, install);

    for (size_t i = 0; i < built->count && rc == 0; i++)
        rc = overlay(&files, &built->file[i]);
    sort(&files);
    if (rc == 0)
        rc = record_text(&record, &files, &files);
    if (rc == 0)
        rc = add(out, RECORD, &record);
    sp_buf_free(&record);
    sp_runtime_free(&files);
    return rc;
}

int sp_runtime_state(enum sp_runtime_state *out, const struct sp_install *install)
{
    struct sp_runtime present = SP_RUNTIME_INIT, wanted = SP_RUNTIME_INIT;
    size_t equal = 0, found = 0;
    int rc = sp_runtime_present(&present, install);

    if (rc == 0)
        rc = add_sources(&wanted);
    if (rc == 0)
        rc = add_metadata(&wanted);
    for (size_t i = 0; i < wanted.count; i++) {
        const struct sp_runtime_file *file = sp_runtime_find(&present, wanted.file[i].path);

        equal += file != NULL && same_bytes(&file->bytes, &wanted.file[i].bytes);
    }
    for (size_t i = 0; i < present.count; i++)
        found += !starts_with(present.file[i].path, SP_STATE_DIR "/");
    *out = found == 0 ? SP_RUNTIME_ABSENT : equal == wanted.count ? SP_RUNTIME_PRESENT : SP_RUNTIME_DIFFERS;
    sp_runtime_free(&present);
    sp_runtime_free(&wanted);
    return rc;
}

int sp_runtime_drop_bytecode(const struct sp_install *install)
{
    int fd, rc = sp_open_beneath(&fd, install->site_fd, PACKAGE "/__pycache__", O_RDONLY | O_DIRECTORY, 0);
    DIR *dir = rc < 0 ? NULL : fdopendir(fd);

    sp_err_clear();
    rc = 0;
    for (struct dirent *entry; dir != NULL && rc == 0 && (entry = readdir(dir)) != NULL;)
        if (ends_with(entry->d_name, ".pyc") && unlinkat(fd, entry->d_name, 0) != 0 && errno != ENOENT)
            rc = sp_err_sys(SP_ECANNOT, "cannot remove '%s/" PACKAGE "/__pycache__/%s'", install->site, entry->d_name);
    if (dir != NULL)
        closedir(dir);
    return rc;
}
