/*
 * The pure functions of bench, on the command line, for the Python tests here:
 *
 *     tool rows UUID,UUID          what sgl-pcie-gpu printed (standard input) as bench.json, tuned
 *     tool profile < bench.json    its profile, bound to nothing
 *     tool merge BEFORE PROFILE    two profiles as one
 *     tool covers BACKEND UUID,… < verdict.json
 *     tool have PROFILE UUID,… < verdict.json     is everything measured that the verdict passed?
 */
#include "base/err.h"
#include "verify/bench/bench.h"
#include "verify/bench/bench_sets.h"
#include "verify/verdict/covers.h"
#include "verify/verdict/profile.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *uuid[SP_BENCH_WORLD];
static const size_t number[SP_BENCH_WORLD] = {0, 1, 2, 3, 4, 5, 6, 7};

static size_t split(char *list)
{
    size_t count = 0;

    for (char *name = strtok(list, ","); name && count < SP_BENCH_WORLD; name = strtok(NULL, ","))
        uuid[count++] = name;
    return count;
}

static int print(json_t *object)
{
    (void)json_dumpf(object, stdout, JSON_SORT_KEYS | JSON_INDENT(1));
    (void)putchar('\n');
    json_decref(object);
    return SP_OK;
}

/* Standard input, which may be a pipe. */
static int read_input(struct sp_buf *out)
{
    char block[4096];
    size_t got;
    int rc = sp_buf_set(out, "", 0);

    while (rc == SP_OK && (got = fread(block, 1, sizeof block, stdin)) > 0)
        rc = sp_buf_append(out, block, got);
    return rc;
}

static int rows(size_t world)
{
    struct sp_bench bench = {.group_count = 0};
    struct sp_bench_end end;
    struct sp_buf text = SP_BUF_INIT;
    int rc = read_input(&text);

    if (rc == SP_OK)
        rc = sp_bench_read_run(&bench, &end, text.data, uuid, number, world);
    if (rc == SP_OK)
        rc = sp_bench_tune(&bench);
    if (rc == SP_OK)
        rc = print(sp_bench_json(&bench));
    sp_bench_free(&bench);
    sp_buf_free(&text);
    return rc;
}

static int profile(void)
{
    struct sp_bench bench = {.group_count = 0};
    json_t *content = json_loadf(stdin, 0, NULL), *bound = json_object(), *out = NULL;
    int rc = sp_bench_read(&bench, content);

    if (rc == SP_OK)
        rc = sp_bench_tune(&bench);
    if (rc == SP_OK)
        rc = sp_bench_profile(&out, &bench, bound);
    if (rc == SP_OK)
        rc = print(out);
    sp_bench_free(&bench);
    json_decref(bound);
    json_decref(content);
    return rc;
}

static int merge(const char *before, const char *after)
{
    json_t *a = json_load_file(before, 0, NULL), *b = json_load_file(after, 0, NULL), *out = NULL;
    int rc = sp_profile_merge(&out, a, b);

    json_decref(a);
    json_decref(b);
    return rc == SP_OK ? print(out) : rc;
}

static int covers(const char *backend, size_t world)
{
    json_t *content = json_loadf(stdin, 0, NULL);

    (void)puts(sp_verdict_covers(content, backend, uuid, world) ? "yes" : "no");
    json_decref(content);
    return SP_OK;
}

static int have(const char *profile_file, size_t world)
{
    json_t *verdict = json_loadf(stdin, 0, NULL), *content = json_load_file(profile_file, 0, NULL);
    struct sp_subjects gpus = {.count = world};

    memcpy(gpus.uuid, uuid, world * sizeof *uuid);
    (void)puts(sp_bench_sets_have(content, &gpus, verdict) ? "yes" : "no");
    json_decref(content);
    json_decref(verdict);
    return SP_OK;
}

int main(int argc, char **argv)
{
    int rc = SP_EUSAGE;

    if (argc == 3 && strcmp(argv[1], "rows") == 0)
        rc = rows(split(argv[2]));
    else if (argc == 2 && strcmp(argv[1], "profile") == 0)
        rc = profile();
    else if (argc == 4 && strcmp(argv[1], "merge") == 0)
        rc = merge(argv[2], argv[3]);
    else if (argc == 4 && strcmp(argv[1], "covers") == 0)
        rc = covers(argv[2], split(argv[3]));
    else if (argc == 4 && strcmp(argv[1], "have") == 0)
        rc = have(argv[2], split(argv[3]));
    if (rc < 0)
        (void)fprintf(stderr, "%s\n", sp_err_message());
    return sp_exit_status(rc);
}
