#include "verify/ladder/gpu.h"
#include "base/err.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

extern char **environ;

enum { OUTPUT_MAX = 8 << 20, EXTRA = 4 };

/* ---- environment ---- */

static int visible(char **out, const struct sp_subjects *gpus, const struct sp_set *set)
{
    struct sp_buf text = SP_BUF_INIT;
    int rc = sp_buf_printf(&text, "CUDA_VISIBLE_DEVICES=");

    for (size_t i = 0; i < set->count && rc == SP_OK; i++)
        rc = sp_buf_printf(&text, "%s%s", i ? "," : "", gpus->uuid[set->at[i]]);
    *out = text.data;
    return rc;
}

static bool ours(const char *variable)
{
    return strncmp(variable, "CUDA_VISIBLE_DEVICES=", 21) == 0 || strncmp(variable, "CUDA_DEVICE_ORDER=", 18) == 0;
}

/* Ours with the GPUs in it; the strings are borrowed. */
static const char **environment(const char *devices)
{
    size_t count = 0, used = 0;
    const char **list;

    while (environ[count])
        count++;
    list = calloc(count + EXTRA, sizeof *list);
    for (size_t i = 0; list && i < count; i++)
        if (!ours(environ[i]))
            list[used++] = environ[i];
    if (list) {
        list[used++] = devices;
        list[used++] = "CUDA_DEVICE_ORDER=PCI_BUS_ID";
        list[used++] = "PYTHONSAFEPATH=1"; /* `python -m` would look into the current folder first */
    }
    return list;
}

/* ---- running ---- */

static int find_program(char path[PATH_MAX], const char *site)
{
    if (!site)
        return sp_err_hint(sp_err(SP_ECANNOT, "no SGLang was named whose all-reduce is to be run"),
                           "sgl-pcie verify --help");
    (void)snprintf(path, PATH_MAX, "%s/sgl_pcie/sgl-pcie-gpu", site);
    if (access(path, X_OK) != 0)
        return sp_err_hint(sp_err_sys(SP_ECANNOT, "cannot run '%s'", path), "sgl-pcie build");
    return SP_OK;
}

int sp_gpu_check(const char *site)
{
    char path[PATH_MAX];

    return find_program(path, site);
}

int sp_gpu_run_program(struct sp_proc_result *result, const struct sp_ladder *ladder, const struct sp_subjects *gpus,
                       const struct sp_set *set, const char *const *argv, double seconds)
{
    struct sp_proc_options options = {
        .seconds = seconds, .output_max = OUTPUT_MAX, .seen = ladder->seen, .context = ladder->context};
    char *devices = NULL;
    int rc = visible(&devices, gpus, set);

    memset(result, 0, sizeof *result);
    if (rc == SP_OK) {
        options.env = environment(devices);
        rc = options.env ? sp_proc_run(result, argv, &options) : sp_err(SP_ECANNOT, "out of memory");
    }
    free((void *)(uintptr_t)options.env);
    free(devices);
    return rc;
}

int sp_gpu_run(struct sp_proc_result *result, const struct sp_ladder *ladder, const struct sp_subjects *gpus,
               const struct sp_set *set, const char *const *words, double seconds)
{
    const char *argv[SP_GPU_WORDS + EXTRA] = {NULL};
    char path[PATH_MAX];
    size_t count = 0;
    int rc = find_program(path, ladder->site);

    memset(result, 0, sizeof *result);
    argv[count++] = path;
    for (; words[count - 1] && count < SP_GPU_WORDS; count++)
        argv[count] = words[count - 1];
    argv[count] = "--json";
    return rc == SP_OK ? sp_gpu_run_program(result, ladder, gpus, set, argv, seconds) : rc;
}

/* ---- what it said ---- */

json_t *sp_gpu_summary(const struct sp_proc_result *result)
{
    const char *text = result->out.data ? result->out.data : "", *at = text;
    json_t *found = NULL;

    for (; *at && !found; at++) /* the summary is an object that starts a line and ends the output */
        if (*at == '{' && (at == text || at[-1] == '\n')) {
            found = json_loads(at, 0, NULL);
            if (!json_object_get(found, "exit_code")) {
                json_decref(found);
                found = NULL;
            }
        }
    return found;
}

/* What failed first, else what was said last, else the message. */
static const char *words_of(const json_t *summary)
{
    const char *words = json_string_value(json_object_get(summary, "message"));
    const json_t *check;
    size_t i;

    json_array_foreach(json_object_get(summary, "checks"), i, check)
    {
        const char *status = json_string_value(json_object_get(check, "status"));
        const char *actual = json_string_value(json_object_get(check, "actual"));

        words = actual ? actual : words;
        if (status && strcmp(status, "FAIL") == 0)
            break;
    }
    return words;
}

static void judge_end(struct sp_check *check, const struct sp_proc_result *result, double seconds)
{
    static const struct {
        int exit;
        enum sp_check_status status;
        int code;
    } ends[] = {
        {0, SP_CHECK_PASS, SP_EFAIL},         {1, SP_CHECK_FAIL, SP_EFAIL},
        {7, SP_CHECK_FAIL, SP_EDATA},         {8, SP_CHECK_FAIL, SP_EHANG},
        {5, SP_CHECK_INCONCLUSIVE, SP_EFAIL}, {9, SP_CHECK_INCONCLUSIVE, SP_EFAIL},
        {2, SP_CHECK_INCONCLUSIVE, SP_EFAIL}, /* one of another release, which does not know what it is asked */
    };

    check->status = SP_CHECK_FAIL;
    check->code = result->timed_out ? SP_EHANG : SP_EFAIL;
    if (result->timed_out)
        sp_check_actual(check, "did not end within %g s, and was killed", seconds);
    else if (result->signal)
        sp_check_actual(check, "ended by signal %d", result->signal);
    else
        sp_check_actual(check, "exit status %d", result->status);
    for (size_t i = 0; i < sizeof ends / sizeof *ends && !result->timed_out && !result->signal; i++)
        if (ends[i].exit == result->status) {
            check->status = ends[i].status;
            check->code = ends[i].code;
        }
}

static const char *last_line(const char *text)
{
    const char *line = text;

    for (const char *at = text; *at; at++)
        if (at[0] == '\n' && at[1])
            line = at + 1;
    return line;
}

void sp_gpu_judge(struct sp_check *check, const struct sp_proc_result *result, double seconds)
{
    json_t *summary = sp_gpu_summary(result);
    const char *words = words_of(summary);
    const char *line = last_line(result->err.data ? result->err.data : "");

    judge_end(check, result, seconds);
    if (!result->timed_out && !result->signal) {
        if (words && words[0])
            sp_check_actual(check, "%s", words);
        else if (line[0] && result->status != 0)
            sp_check_actual(check, "%.*s", (int)strcspn(line, "\n"), line);
    }
    json_decref(summary);
}
