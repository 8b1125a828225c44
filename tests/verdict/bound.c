/* Prints what a verdict would be bound to: bound SITE ROOT. With "write NAME FILE SITE": writes a state file and prints
 * its path; with "show SITE": what status says of the verdict; with "add SITE RESULT LIBRARY UUID UUID": what a probe
 * of SGLang's own kernel puts into it ("-": of the wheel's); with "sound" alone: of each line that it reads whether it
 * is a sound verdict or profile ("ok"), or why not; with "serve": of each line, a profile, a verdict and GPUs, what
 * serves that group (the table's place, or -1), and what all of it says. For the Python tests here. */
#include "verify/verdict/bound.h"
#include "base/err.h"
#include "verify/verdict/merge.h"
#include "verify/verdict/serve.h"
#include "verify/verdict/sound.h"
#include "verify/verdict/state.h"
#include "verify/verdict/verdict.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int bound(const char *site, const char *root)
{
    json_t *table = NULL;
    int rc = sp_bound_read(&table, site, root);

    if (rc == SP_OK)
        (void)json_dumpf(table, stdout, JSON_SORT_KEYS);
    json_decref(table);
    return rc;
}

static int write_file(const char *name, const char *file, const char *site)
{
    json_t *content = json_load_file(file, 0, NULL);
    char *path = NULL;
    int rc = sp_state_write(&path, name, content, site);

    if (rc == SP_OK)
        (void)puts(path);
    free(path);
    json_decref(content);
    return rc;
}

static int show(const char *site)
{
    struct sp_verdict_now now;
    int rc = sp_verdict_read(&now, site);
    char *summary = rc == SP_OK ? sp_verdict_summary(&now) : NULL;
    json_t *all = json_pack("{s:b, s:b, s:O, s:s}", "present", now.present, "fresh", now.fresh, "reasons", now.reasons,
                            "summary", summary ? summary : "");

    (void)json_dumpf(all, stdout, JSON_SORT_KEYS);
    json_decref(all);
    free(summary);
    sp_verdict_free(&now);
    return rc;
}

static int add(const char *site, const char *result, const char *library, const char *const *uuid)
{
    const struct sp_outcome item = {
        .backend = SP_UPSTREAM,
        .count = 2,
        .uuid = uuid,
        .result = result,
        .reason = strcmp(result, "PASS") == 0 ? NULL : "it is told to",
        .library = strcmp(library, "-") == 0 ? NULL : library,
    };
    char *path = NULL;
    int rc = sp_verdict_add(&path, site, &item, 1);

    if (rc == SP_OK)
        (void)puts(path);
    free(path);
    return rc;
}

static int sound(void)
{
    char *line = NULL;
    size_t room = 0;

    while (getline(&line, &room, stdin) > 0) {
        json_t *content = json_loads(line, 0, NULL);

        (void)puts(!content ? "not JSON" : sp_sound_check(content) == SP_OK ? "ok" : sp_err_message());
        json_decref(content);
    }
    free(line);
    return SP_OK;
}

static int serve(void)
{
    char *line = NULL;
    size_t room = 0;

    while (getline(&line, &room, stdin) > 0) {
        json_t *given = json_loads(line, 0, NULL);
        const json_t *profile = json_array_get(given, 0), *verdict = json_array_get(given, 1), *table;
        const json_t *tables = json_object_get(profile, "tables");
        const enum sp_served group = sp_serve_group(&table, profile, verdict, json_array_get(given, 2));
        size_t at = 0;

        while (at < json_array_size(tables) && json_array_get(tables, at) != table)
            at++;
        (void)printf("%d %d %d\n", (int)group, table ? (int)at : -1, (int)sp_serve_best(profile, verdict));
        json_decref(given);
    }
    free(line);
    return SP_OK;
}

int main(int argc, char **argv)
{
    int rc = SP_EUSAGE;

    if (argc == 3 && strcmp(argv[1], "show") == 0)
        rc = show(argv[2]);
    else if (argc == 5 && strcmp(argv[1], "write") == 0)
        rc = write_file(argv[2], argv[3], argv[4]);
    else if (argc == 7 && strcmp(argv[1], "add") == 0)
        rc = add(argv[2], argv[3], argv[4], (const char *const *)argv + 5);
    else if (argc == 2 && strcmp(argv[1], "sound") == 0)
        rc = sound();
    else if (argc == 2 && strcmp(argv[1], "serve") == 0)
        rc = serve();
    else if (argc == 3)
        rc = bound(argv[1], argv[2]);
    if (rc < 0)
        (void)fprintf(stderr, "%s\n", sp_err_message());
    return sp_exit_status(rc);
}
