/*
 * What the program for GPUs says while it measures: an object a line, so that one that is killed loses only what it did
 * not measure.
 */
#include "base/err.h"
#include "base/json.h"
#include "verify/bench/bench_field.h"

#include <stdio.h>
#include <string.h>

enum { BYTES_MAX = 1 << 30 };

struct reading {
    struct sp_bench *bench;
    struct sp_bench_end *end;
    const char *const *uuid;
    const size_t *number;
    size_t world;
    struct sp_bench_rates links; /* of the group that rows follow, until its type is known */
    json_t *nccl;                /* borrowed from the group's line, which `group` holds */
    json_t *group;
};

/* ---- kinds ---- */

static int read_start(struct reading *reading, const json_t *line)
{
    const json_t *first = json_array_get(json_object_get(line, "gpus"), 0);

    return first ? sp_bench_opt_text(reading->bench->gpu, SP_BENCH_TEXT, first, "name") : SP_OK;
}

/* What is not in it stays 0: how fast the links themselves are comes from the topology. */
static int read_links(struct sp_bench_rates *out, const json_t *links)
{
    const char *key;
    double *at;
    int rc = SP_OK;

    for (size_t i = 0; rc == SP_OK && (at = sp_bench_rate(out, i, &key)) != NULL; i++)
        rc = sp_bench_opt_number(at, links, key);
    return rc;
}

static int read_group(struct reading *reading, json_t *line)
{
    json_t *nccl = json_object_get(line, "nccl"), *links = json_object_get(line, "links");

    memset(&reading->links, 0, sizeof reading->links);
    json_decref(reading->group);
    reading->group = json_incref(line);
    reading->nccl = json_is_object(nccl) ? nccl : NULL;
    return json_is_object(links) ? read_links(&reading->links, links) : SP_OK;
}

static int read_time(double *us, double *spread, const json_t *row, const char *key)
{
    const json_t *time = json_object_get(row, key);
    double slow = 0, fast = 0;
    int rc;

    *us = 0;
    if (!time)
        return sp_err(SP_EFAIL, "field '%s' is missing", key);
    if (json_is_null(time))
        return SP_OK;
    rc = sp_bench_number(us, time, "us");
    if (rc == SP_OK && spread)
        rc = sp_bench_number(&slow, time, "p90");
    if (rc == SP_OK && spread)
        rc = sp_bench_number(&fast, time, "p10");
    if (rc == SP_OK && spread)
        *spread = slow > fast ? (slow - fast) / 2 : 0;
    return rc == SP_OK ? SP_OK : sp_err_wrap(rc, "field '%s'", key);
}

static int read_times(struct sp_bench_time *out, const json_t *row)
{
    int rc = read_time(&out->out, NULL, row, "graph");

    if (rc == SP_OK)
        rc = read_time(&out->step, &out->spread, row, "step");
    if (rc == SP_OK)
        rc = read_time(&out->eager, NULL, row, "eager");
    return rc == SP_OK ? read_time(&out->in, NULL, row, "in_place") : rc;
}

static int read_ours(struct sp_bench_row *row, const json_t *line, const char *name)
{
    const json_t *cut = json_object_get(line, "cut");
    uint64_t lanes = 0, threads = 0;
    struct sp_bench_ours *ours;
    int rc = sp_bench_ours_of(&ours, row, name);

    if (rc == SP_OK)
        rc = read_times(&ours->us, line);
    if (rc == SP_OK)
        rc = sp_bench_opt_count(&ours->wrong, line, "wrong");
    if (rc == SP_OK)
        rc = sp_bench_opt_number(&ours->model, line, "model_us");
    if (rc == SP_OK && json_is_object(cut)) {
        rc = sp_bench_opt_count(&lanes, cut, "lanes");
        if (rc == SP_OK)
            rc = sp_bench_opt_count(&threads, cut, "threads");
        ours->lanes = (unsigned)lanes;
        ours->threads = (unsigned)threads;
    }
    return rc;
}

static int describe(struct sp_bench_rival *rival, const json_t *nccl)
{
    uint64_t channels = 0;
    int rc = sp_bench_opt_text(rival->version, sizeof rival->version, nccl, "version");

    if (rc == SP_OK)
        rc = sp_bench_opt_text(rival->settings, sizeof rival->settings, nccl, "environment");
    if (rc == SP_OK)
        rc = sp_bench_opt_text(rival->path, sizeof rival->path, nccl, "path");
    if (rc == SP_OK)
        rc = sp_bench_opt_text(rival->via, sizeof rival->via, nccl, "via");
    if (rc == SP_OK)
        rc = sp_bench_opt_count(&channels, nccl, "channels");
    rival->channels = (int)channels;
    return rc;
}

static int read_rival(const struct reading *reading, struct sp_bench_group *group, struct sp_bench_row *row,
                      const json_t *line, const char *name)
{
    const char *of = json_string_value(json_object_get(reading->nccl, "name"));
    size_t at = 0;
    int rc = sp_bench_rival_of(&at, group, name);

    if (rc == SP_OK)
        rc = read_times(&row->rival[at], line);
    if (rc == SP_OK)
        rc = sp_bench_opt_count(&row->rival_wrong[at], line, "wrong");
    if (rc == SP_OK && of && strcmp(of, name) == 0)
        rc = describe(&group->rival[at], reading->nccl);
    return rc;
}

/* Links are measured in the processes that run ours. */
static void keep_links(const struct reading *reading, struct sp_bench_group *group)
{
    if (reading->links.node_us > 0 && group->rates.node_us <= 0)
        group->rates = reading->links;
}

static int read_row(struct reading *reading, const json_t *line)
{
    const char *by = NULL, *name = NULL, *type = NULL;
    struct sp_bench_group *group = NULL;
    struct sp_bench_row *row = NULL;
    json_int_t bytes = 0, world = 0;
    int rc = sp_json_string(&by, line, "by");

    if (rc == SP_OK)
        rc = sp_json_string(&name, line, "name");
    if (rc == SP_OK)
        rc = sp_json_string(&type, line, "dtype");
    if (rc == SP_OK)
        rc = sp_json_integer(&bytes, line, "bytes", 1, BYTES_MAX);
    if (rc == SP_OK)
        rc = sp_json_integer(&world, line, "world", (json_int_t)reading->world, (json_int_t)reading->world);
    if (rc == SP_OK)
        rc = sp_bench_group_of(&group, reading->bench, reading->uuid, reading->number, reading->world, type);
    if (rc == SP_OK)
        rc = sp_bench_row_of(&row, group, (uint64_t)bytes);
    if (rc < 0)
        return rc;
    keep_links(reading, group);
    return strcmp(by, "ours") == 0 ? read_ours(row, line, name) : read_rival(reading, group, row, line, name);
}

static int read_end(struct reading *reading, const json_t *line)
{
    uint64_t unmeasured = 0;
    int rc = sp_bench_opt_count(&unmeasured, line, "unmeasured");

    reading->end->seen = true;
    reading->end->unmeasured += unmeasured;
    return rc;
}

/* ---- lines ---- */

/* Kinds that a later program may add say nothing to this one. */
static int read_line(struct reading *reading, const char *text, size_t len, size_t number)
{
    const char *kind = NULL;
    char name[32];
    json_t *line = NULL;
    int rc;

    (void)snprintf(name, sizeof name, "line %zu", number);
    rc = sp_json_load(&line, text, len, name);
    if (rc < 0)
        return rc;
    rc = sp_json_string(&kind, line, "kind");
    if (rc == SP_OK && strcmp(kind, "start") == 0)
        rc = read_start(reading, line);
    else if (rc == SP_OK && strcmp(kind, "group") == 0)
        rc = read_group(reading, line);
    else if (rc == SP_OK && strcmp(kind, "row") == 0)
        rc = read_row(reading, line);
    else if (rc == SP_OK && strcmp(kind, "end") == 0)
        rc = read_end(reading, line);
    json_decref(line);
    return rc < 0 ? sp_err_wrap(rc, "line %zu", number) : SP_OK;
}

int sp_bench_read_run(struct sp_bench *bench, struct sp_bench_end *end, const char *text, const char *const *uuid,
                      const size_t *number, size_t world)
{
    struct reading reading = {.bench = bench, .end = end, .uuid = uuid, .number = number, .world = world};
    int rc = SP_OK;

    memset(end, 0, sizeof *end);
    for (size_t at = 1; *text && rc == SP_OK; at++) {
        const size_t len = strcspn(text, "\n");

        if (len > 0)
            rc = read_line(&reading, text, len, at);
        text += len + (text[len] == '\n');
    }
    for (size_t i = 0; i < bench->group_count; i++)
        sp_bench_find_stock(&bench->group[i]);
    json_decref(reading.group);
    return rc;
}
