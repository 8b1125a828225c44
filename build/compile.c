#include "build/compile.h"
#include "base/err.h"
#include "base/proc.h"
#include "build/parallel.h"
#include "build/scratch.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

enum {
    STEP_SECONDS = 3600,
    OUTPUT_MAX = 4 << 20,
    PRODUCT_MAX = 256 << 20,
    SHOWN_LINES = 8,
    COMPILERS_MAX = 8,
    SHOWN_MAX = 1200,
    LEAST_SPACE = 1 << 20
};

/* ---- the folder ---- */

/* It may want of space, or of permission: another folder would have both. */
static int cannot_write(const char *what, const char *path)
{
    sp_err_sys(SP_ECANNOT, "cannot %s '%s'", what, path);
    return sp_scratch_hint(SP_ECANNOT);
}

/* "<folder>/<name>" */
static int make_path(char **out, const char *folder, const char *name)
{
    if (asprintf(out, "%s/%s", folder, name) >= 0)
        return 0;
    *out = NULL;
    return sp_err(SP_ECANNOT, "out of memory");
}

/* With its parents beneath folder. */
static int make_folder(const char *folder, const char *name)
{
    char *path;
    int rc = make_path(&path, folder, name);

    for (char *at = rc == 0 ? path + strlen(folder) : NULL; at != NULL && rc == 0;) {
        char *slash = strchr(at + 1, '/');

        if (slash != NULL)
            *slash = '\0';
        if (mkdir(path, 0755) != 0 && errno != EEXIST)
            rc = cannot_write("make", path);
        if (slash != NULL)
            *slash = '/';
        at = slash;
    }
    free(path);
    return rc;
}

static int make_link(const char *folder, const char *name, const char *target)
{
    char *path;
    int rc = make_path(&path, folder, name);

    if (rc == 0 && symlink(target, path) != 0)
        rc = cannot_write("make the link", path);
    free(path);
    return rc;
}

static int write_file(const char *folder, const char *name, const void *data, size_t len)
{
    char *path;
    int fd = -1, rc = make_path(&path, folder, name);

    if (rc == 0 && (fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644)) < 0)
        rc = cannot_write("make", path);
    if (rc == 0 && (rc = sp_write_all(fd, data, len, path)) < 0 && *sp_err_hint_text() == '\0')
        rc = sp_scratch_hint(rc);
    if (fd >= 0)
        close(fd);
    free(path);
    return rc;
}

static int write_input(const char *folder, const struct sp_file *file)
{
    char name[PATH_MAX];
    const char *slash;
    int rc;

    (void)snprintf(name, sizeof name, "kernels/%s", file->path);
    slash = strrchr(name, '/');
    name[slash - name] = '\0';
    rc = make_folder(folder, name);
    (void)snprintf(name, sizeof name, "kernels/%s", file->path);
    return rc < 0 ? rc : write_file(folder, name, file->bytes.data, file->bytes.len);
}

static int make_tree(const char *folder, const struct sp_toolchain *tools, const struct sp_python *python)
{
    static const char *const names[] = {"kernels", "cuda/lib64", "python", "out", "obj", "tmp", NULL};
    int rc = mkdir(folder, 0755) == 0 || errno == EEXIST ? 0 : cannot_write("make", folder);

    for (size_t i = 0; names[i] && rc == 0; i++)
        rc = make_folder(folder, names[i]);
    if (rc == 0)
        rc = make_link(folder, "cuda/include", tools->include);
    if (rc == 0)
        rc = make_link(folder, "cuda/lib64/libcudart_static.a", tools->cudart);
    return rc == 0 && python != NULL && python->include ? make_link(folder, "python/include", python->include) : rc;
}

static int prepare(const char *folder, const struct sp_files *inputs, const struct sp_recipe *recipe,
                   const struct sp_toolchain *tools, const struct sp_python *python)
{
    char name[PATH_MAX];
    int rc = make_tree(folder, tools, python);

    for (size_t i = 0; i < inputs->count && rc == 0; i++)
        rc = write_input(folder, &inputs->file[i]);
    for (size_t i = 0; i < recipe->count && rc == 0; i++) {
        (void)snprintf(name, sizeof name, "obj/%s", recipe->product[i].name);
        rc = make_folder(folder, name);
    }
    return rc;
}

/* ---- running a command ---- */

/* From what is recorded to what is run. */
static int real_command(struct sp_words *out, const struct sp_words *argv, const struct sp_toolchain *tools)
{
    int rc = 0;

    for (size_t i = 0; i < argv->count && rc == 0; i++) {
        if (i == 0 && strcmp(argv->word[i], "nvcc") == 0)
            rc = sp_words_add(out, tools->nvcc);
        else if (i == 0 && strcmp(argv->word[i], "cc") == 0)
            rc = sp_words_add(out, tools->cc);
        else if (strcmp(argv->word[i], "-ccbin=cc") == 0)
            rc = sp_words_addf(out, "-ccbin=%s", tools->cc);
        else
            rc = sp_words_add(out, argv->word[i]);
    }
    return rc;
}

/* All that was said, for whoever wants to read it; it outlasts the scratch folder. */
static int write_log(char **out, const char *command, const struct sp_proc_result *result)
{
    char *path;
    int fd = -1, rc = make_path(&path, sp_scratch_parent(), "sgl-pcie-build-XXXXXX.log");

    if (rc == 0 && (fd = mkostemps(path, 4, O_CLOEXEC)) < 0)
        rc = sp_err_sys(SP_ECANNOT, "cannot make '%s'", path);
    if (rc == 0 && dprintf(fd, "$ %s\n%s%s", command, result->out.data, result->err.data) < 0) {
        rc = sp_err_sys(SP_ECANNOT, "cannot write '%s'", path);
        (void)unlink(path);
    }
    if (fd >= 0)
        close(fd);
    if (rc == 0)
        *out = path;
    else
        free(path);
    return rc;
}

/* One that was ended by a signal said nothing: with so little left it was a page that could not be had. */
static bool is_full(const struct sp_proc_result *result, const char *folder)
{
    struct statvfs disk;

    return sp_says_full(result) ||
           (result->signal == SIGBUS && statvfs(folder, &disk) == 0 && disk.f_bavail * disk.f_frsize < LEAST_SPACE);
}

/* What can be told without the log is told. */
static int hint_log(char **log, const char *command, const struct sp_proc_result *result)
{
    int rc = write_log(log, command, result);

    sp_err_clear();
    return rc;
}

/* how: "failed with exit status 2" */
static int failed(char **log, const struct sp_words *argv, const struct sp_proc_result *result, const char *what,
                  const char *how)
{
    const char *said = result->err.len > 0 ? result->err.data : result->out.data;
    char lines[SHOWN_MAX], *command = sp_words_join(argv);
    bool logged;

    if (command == NULL)
        return sp_err(SP_ECANNOT, "out of memory");
    logged = hint_log(log, command, result) == 0;
    sp_first_lines(lines, sizeof lines, said, SHOWN_LINES);
    sp_err(SP_EBUILD, "cannot build '%s': '%.*s' %s%s%s", what, SHOWN_MAX, command, how, lines[0] ? ":\n" : "", lines);
    if (logged)
        (void)sp_err_hint(SP_EBUILD, "all that was said is in '%s'", *log);
    else
        (void)sp_err_hint(SP_EBUILD, "for all that was said name a folder with some free space with TMPDIR");
    free(command);
    return SP_EBUILD;
}

/* A log would find no space either. */
static int no_space(const struct sp_proc_result *result, const char *what)
{
    char lines[SHOWN_MAX];

    sp_first_lines(lines, sizeof lines, result->err.data, SHOWN_LINES);
    sp_err(SP_ECANNOT, "cannot build '%s': no space is left in '%s'%s%s", what, sp_scratch_parent(),
           lines[0] ? ":\n" : "", lines);
    return sp_scratch_hint(SP_ECANNOT);
}

/* With LC_ALL=C the compilers that start others name the signal that ended one. */
static bool hit_limit(const struct sp_proc_result *result)
{
    return result->signal == SIGXFSZ || strstr(result->err.data, "File size limit exceeded") != NULL ||
           strstr(result->err.data, "File too large") != NULL;
}

static int too_large(const char *what)
{
    errno = EFBIG;
    return sp_err_wrap(sp_write_failed(sp_scratch_parent()), "cannot build '%s'", what);
}

/* What stands behind -o, relative to the folder that the command runs in. */
static bool has_written(const struct sp_words *argv, const char *dir)
{
    const char *name = NULL;
    char path[PATH_MAX];
    struct stat st;

    for (size_t i = 0; i + 1 < argv->count && name == NULL; i++)
        if (strcmp(argv->word[i], "-o") == 0)
            name = argv->word[i + 1];
    if (name == NULL)
        return true;
    (void)snprintf(path, sizeof path, "%s/%s", dir, name);
    return stat(path, &st) == 0 && S_ISREG(st.st_mode) && st.st_size > 0;
}

static int judge(char **log, const struct sp_words *command, const struct sp_proc_result *result, const char *what,
                 const char *dir)
{
    char how[SP_HOW_ENDED];
    int rc = 0;

    sp_how_ended(how, sizeof how, result);
    if (result->timed_out)
        rc = sp_err_hint(sp_err(SP_EHANG, "'%s' was not built within %d seconds", what, STEP_SECONDS),
                         "look for what it waits for (memory, a network folder), or name another nvcc with "
                         "SGL_PCIE_NVCC or another host compiler with NVCC_CCBIN");
    else if (result->status != 0 && is_full(result, dir))
        rc = no_space(result, what);
    else if (result->status != 0 && hit_limit(result))
        rc = too_large(what);
    else if (result->status != 0)
        rc = failed(log, command, result, what, how);
    else if (!has_written(command, dir))
        rc = failed(log, command, result, what, "ended well but wrote nothing");
    return rc;
}

static int run_command(char **log, const struct sp_words *argv, const char *what, const struct sp_toolchain *tools,
                       const char *folder)
{
    struct sp_proc_options options = {.seconds = STEP_SECONDS, .output_max = OUTPUT_MAX};
    struct sp_words command = {NULL, 0}, env = {NULL, 0};
    struct sp_proc_result result = {.status = 0};
    char *dir = NULL, *tmp = NULL;
    int rc = real_command(&command, argv, tools);

    if (rc == 0)
        rc = make_path(&dir, folder, "kernels");
    if (rc == 0)
        rc = make_path(&tmp, folder, "tmp");
    if (rc == 0)
        rc = sp_clean_environment(&env, tmp);
    options.env = (const char *const *)env.word;
    options.dir = dir;
    if (rc == 0)
        rc = sp_proc_run(&result, (const char *const *)command.word, &options);
    if (rc == 0)
        rc = judge(log, &command, &result, what, dir);
    sp_proc_free(&result);
    sp_words_free(&command);
    sp_words_free(&env);
    free(dir);
    free(tmp);
    return rc;
}

/* ---- the probe ---- */

/* The flags that everything depends on, on one line of device code. */
static int plan_probe(struct sp_words *compile, struct sp_words *link, const struct sp_archs *archs)
{
    static const char *const compile_words[] = {
        "nvcc", "-ccbin=cc", "-c", "--objdir-as-tempdir", "probe.cu", "-o", "../obj/probe.o", "-Xcompiler=-fPIC", NULL};
    static const char *const link_words[] = {
        "cc",   "-shared",   "-o", "../out/probe.so", "../obj/probe.o", "../cuda/lib64/libcudart_static.a", "-ldl",
        "-lrt", "-lpthread", NULL};
    int rc = 0;

    for (size_t i = 0; compile_words[i] && rc == 0; i++)
        rc = sp_words_add(compile, compile_words[i]);
    if (rc == 0)
        rc = sp_words_addf(compile, "-gencode=arch=compute_%u,code=sm_%u", archs->number[0], archs->number[0]);
    for (size_t i = 0; link_words[i] && rc == 0; i++)
        rc = sp_words_add(link, link_words[i]);
    return rc;
}

int sp_compile_probe(char **log, const struct sp_toolchain *tools, const struct sp_archs *archs, const char *folder)
{
    static const char text[] = "extern \"C\" __global__ void probe(int *p)\n{\n    *p = 1;\n}\n";
    struct sp_words compile = {NULL, 0}, link = {NULL, 0};
    int rc = make_tree(folder, tools, NULL);

    if (rc == 0)
        rc = write_file(folder, "kernels/probe.cu", text, sizeof text - 1);
    if (rc == 0)
        rc = plan_probe(&compile, &link, archs);
    if (rc == 0)
        rc = run_command(log, &compile, "a kernel of one line", tools, folder);
    if (rc == 0)
        rc = run_command(log, &link, "a kernel of one line", tools, folder);
    sp_words_free(&compile);
    sp_words_free(&link);
    return rc;
}

/* ---- all steps ---- */

static int read_outputs(struct sp_files *out, const struct sp_steps *steps, const char *folder)
{
    int rc = 0;

    for (size_t i = 0; i < steps->count && rc == 0; i++) {
        struct sp_buf bytes = SP_BUF_INIT;
        char name[PATH_MAX], *path = NULL;

        if (!steps->step[i].links)
            continue;
        (void)snprintf(name, sizeof name, "out/%s", steps->step[i].what);
        rc = make_path(&path, folder, name);
        if (rc == 0)
            rc = sp_read_file(&bytes, path, PRODUCT_MAX);
        if (rc == 0)
            rc = sp_files_add(out, steps->step[i].what, &bytes);
        free(path);
    }
    return rc;
}

/* What the threads share. */
struct batch {
    const struct sp_steps *steps;
    const struct sp_toolchain *tools;
    const char *folder;
    sp_progress *progress;
    void *context;
    size_t done;
    bool links;  /* the steps of this turn */
    char **logs; /* of each step that failed */
    pthread_mutex_t lock;
};

static void tell(struct batch *batch, const char *what)
{
    pthread_mutex_lock(&batch->lock);
    if (batch->progress != NULL)
        batch->progress(batch->context, batch->done, batch->steps->count, what);
    batch->done++;
    pthread_mutex_unlock(&batch->lock);
}

static int run_step(void *context, size_t index)
{
    struct batch *batch = context;
    const struct sp_step *step = &batch->steps->step[index];
    int rc = 0;

    if (step->links == batch->links) {
        tell(batch, step->what);
        rc = run_command(&batch->logs[index], &step->argv, step->what, batch->tools, batch->folder);
    }
    return rc;
}

/* The log of the first step that failed, whose error is the one that is returned; those of others go. */
static void take_log(char **out, struct batch *batch)
{
    for (size_t i = 0; i < batch->steps->count; i++) {
        if (*out == NULL) {
            *out = batch->logs[i];
        } else if (batch->logs[i] != NULL) {
            (void)unlink(batch->logs[i]);
            free(batch->logs[i]);
        }
    }
    free(batch->logs);
}

int sp_steps_run(struct sp_files *out, char **log, const struct sp_steps *steps, const struct sp_files *inputs,
                 const struct sp_recipe *recipe, const struct sp_toolchain *tools, const struct sp_python *python,
                 const char *folder, sp_progress *progress, void *context)
{
    struct batch batch = {.steps = steps,
                          .tools = tools,
                          .folder = folder,
                          .progress = progress,
                          .context = context,
                          .logs = calloc(steps->count + 1, sizeof *batch.logs),
                          .lock = PTHREAD_MUTEX_INITIALIZER};
    int rc = batch.logs ? prepare(folder, inputs, recipe, tools, python) : sp_err(SP_ECANNOT, "out of memory");

    *out = (struct sp_files){NULL, 0};
    if (rc == 0)
        rc = sp_parallel(run_step, &batch, steps->count, COMPILERS_MAX);
    batch.links = true;
    if (rc == 0)
        rc = sp_parallel(run_step, &batch, steps->count, 1); /* what is linked later may need what is linked first */
    if (batch.logs != NULL)
        take_log(log, &batch);
    return rc < 0 ? rc : read_outputs(out, steps, folder);
}
