#include "base/err.h"
#include "base/json.h"
#include "verify/bench/bench_field.h"
#include "verify/machine/record.h"

#include <string.h>

enum { WARP = 32 };

/* ---- writing ---- */

static json_t *text_or_null(const char *text)
{
    return text[0] ? json_string(text) : json_null();
}

static json_t *time_json(const struct sp_bench_time *us)
{
    return json_pack("{s:f, s:f, s:f, s:f, s:f}", "graph_us", us->out, "in_place_us", us->in, "step_us", us->step,
                     "eager_us", us->eager, "spread_us", us->spread);
}

static json_t *ours_json(const struct sp_bench_ours *ours)
{
    json_t *out = time_json(&ours->us);

    (void)json_object_update_new(out, json_pack("{s:s, s:I, s:I, s:f, s:I}", "algorithm", ours->algorithm, "lanes",
                                                (json_int_t)ours->lanes, "threads", (json_int_t)ours->threads,
                                                "model_us", ours->model, "wrong", (json_int_t)ours->wrong));
    return out;
}

static json_t *rival_time_json(const struct sp_bench_group *group, const struct sp_bench_row *row, size_t at)
{
    json_t *out = time_json(&row->rival[at]);

    (void)json_object_set_new(out, "name", json_string(group->rival[at].name));
    (void)json_object_set_new(out, "wrong", json_integer((json_int_t)row->rival_wrong[at]));
    return out;
}

static json_t *name_or_null(const struct sp_bench_row *row, int at)
{
    return at < 0 ? json_null() : json_string(row->ours[at].algorithm);
}

static json_t *row_json(const struct sp_bench_group *group, const struct sp_bench_row *row)
{
    json_t *ours = json_array(), *rivals = json_array();

    for (size_t i = 0; i < row->ours_count; i++)
        (void)json_array_append_new(ours, ours_json(&row->ours[i]));
    for (size_t i = 0; i < group->rival_count; i++)
        (void)json_array_append_new(rivals, rival_time_json(group, row, i));
    return json_pack("{s:I, s:o, s:o, s:o, s:o, s:o}", "bytes", (json_int_t)row->bytes, "ours", ours, "rivals", rivals,
                     "stock", row->stock < 0 ? json_null() : json_string(group->rival[row->stock].name), "fastest",
                     name_or_null(row, row->fastest), "chosen",
                     row->chosen < 0 ? json_string("stock") : name_or_null(row, row->chosen));
}

static json_t *rival_json(const struct sp_bench_rival *rival)
{
    return json_pack("{s:s, s:b, s:o, s:o, s:o, s:o, s:i, s:o}", "name", rival->name, "stock", rival->stock, "version",
                     text_or_null(rival->version), "path", text_or_null(rival->path), "settings",
                     text_or_null(rival->settings), "via", text_or_null(rival->via), "channels", rival->channels,
                     "error", text_or_null(rival->error));
}

static json_t *rates_json(const struct sp_bench_rates *rates)
{
    struct sp_bench_rates copy = *rates;
    json_t *object = json_object();
    const char *key;
    double *at;

    for (size_t i = 0; (at = sp_bench_rate(&copy, i, &key)) != NULL; i++)
        (void)json_object_set_new(object, key, json_real(*at));
    return object;
}

static json_t *gpus_json(const struct sp_bench_group *group)
{
    json_t *list = json_array();

    for (size_t i = 0; i < group->world; i++)
        (void)json_array_append_new(
            list, json_pack("{s:I, s:s}", "number", (json_int_t)group->number[i], "uuid", group->uuid[i]));
    return list;
}

static json_t *group_json(const struct sp_bench_group *group)
{
    json_t *rivals = json_array(), *rows = json_array();

    for (size_t i = 0; i < group->rival_count; i++)
        (void)json_array_append_new(rivals, rival_json(&group->rival[i]));
    for (size_t i = 0; i < group->row_count; i++)
        (void)json_array_append_new(rows, row_json(group, &group->row[i]));
    return json_pack("{s:I, s:s, s:b, s:o, s:o, s:o, s:o, s:O?}", "world", (json_int_t)group->world, "type",
                     group->type, "nvlink", group->nvlink, "gpus", gpus_json(group), "rates", rates_json(&group->rates),
                     "rivals", rivals, "rows", rows, "tables", group->tables);
}

json_t *sp_bench_json(const struct sp_bench *bench)
{
    json_t *groups = json_array();

    for (size_t i = 0; i < bench->group_count; i++)
        (void)json_array_append_new(groups, group_json(&bench->group[i]));
    return json_pack("{s:s, s:s, s:o, s:o, s:o, s:b, s:o, s:O?, s:O?}", "schema", SP_BENCH_SCHEMA, "tool", SP_VERSION,
                     "created", text_or_null(bench->created), "gpu", text_or_null(bench->gpu), "driver",
                     text_or_null(bench->driver), "quick", bench->quick, "groups", groups, "troubles", bench->troubles,
                     "steps", bench->steps);
}

/* ---- reading ---- */

static int read_time(struct sp_bench_time *out, const json_t *from)
{
    const struct {
        const char *key;
        double *to;
    } fields[] = {
        {"graph_us", &out->out},   {"in_place_us", &out->in},   {"step_us", &out->step},
        {"eager_us", &out->eager}, {"spread_us", &out->spread},
    };
    int rc = SP_OK;

    for (size_t i = 0; i < sizeof fields / sizeof *fields && rc == SP_OK; i++)
        rc = sp_bench_number(fields[i].to, from, fields[i].key);
    return rc;
}

static int read_ours(struct sp_bench_row *row, const json_t *from)
{
    const char *algorithm = NULL;
    struct sp_bench_ours *ours;
    json_int_t lanes = 0, threads = 0, wrong = 0;
    int rc = sp_json_string(&algorithm, from, "algorithm");

    if (rc == SP_OK)
        rc = sp_bench_ours_of(&ours, row, algorithm);
    if (rc < 0)
        return rc;
    rc = read_time(&ours->us, from);
    if (rc == SP_OK)
        rc = sp_bench_number(&ours->model, from, "model_us");
    if (rc == SP_OK)
        rc = sp_json_integer(&lanes, from, "lanes", 0, 1024);
    if (rc == SP_OK)
        rc = sp_json_integer(&threads, from, "threads", 0, 1024);
    if (rc == SP_OK && threads % WARP != 0)
        rc = sp_err(SP_EFAIL, "field 'threads' is %lld, no multiple of %d", (long long)threads, (int)WARP);
    if (rc == SP_OK)
        rc = sp_json_integer(&wrong, from, "wrong", 0, INT64_MAX);
    ours->lanes = (unsigned)lanes;
    ours->threads = (unsigned)threads;
    ours->wrong = (uint64_t)wrong;
    return rc;
}

static int read_rival_time(struct sp_bench_group *group, struct sp_bench_row *row, const json_t *from)
{
    const char *name = NULL;
    json_int_t wrong = 0;
    size_t at = 0;
    int rc = sp_json_string(&name, from, "name");

    if (rc == SP_OK)
        rc = sp_bench_rival_of(&at, group, name);
    if (rc == SP_OK)
        rc = read_time(&row->rival[at], from);
    if (rc == SP_OK)
        rc = sp_json_integer(&wrong, from, "wrong", 0, INT64_MAX);
    row->rival_wrong[at] = (uint64_t)wrong;
    return rc;
}

/* Call read for every item of a list; an error names the place. */
#define EACH(rc, list, key, call)                                                                                      \
    for (size_t i_ = 0; (rc) == SP_OK && i_ < json_array_size(list); i_++) {                                           \
        const json_t *item = json_array_get(list, i_);                                                                 \
        (rc) = (call);                                                                                                 \
        if ((rc) < 0)                                                                                                  \
            (void)sp_err_wrap((rc), "%s %zu", key, i_);                                                                \
    }

static int read_row(struct sp_bench_group *group, const json_t *from)
{
    json_t *ours = NULL, *rivals = NULL;
    struct sp_bench_row *row = NULL;
    json_int_t bytes = 0;
    int rc = sp_json_integer(&bytes, from, "bytes", 1, INT64_MAX);

    if (rc == SP_OK)
        rc = sp_json_array(&ours, from, "ours", SP_BENCH_OURS);
    if (rc == SP_OK)
        rc = sp_json_array(&rivals, from, "rivals", SP_BENCH_RIVALS);
    if (rc == SP_OK)
        rc = sp_bench_row_of(&row, group, (uint64_t)bytes);
    EACH(rc, ours, "ours", read_ours(row, item))
    EACH(rc, rivals, "rivals", read_rival_time(group, row, item))
    return rc;
}

static int read_rival(struct sp_bench_group *group, const json_t *from)
{
    const char *name = NULL;
    struct sp_bench_rival *rival;
    json_int_t channels = 0;
    size_t at = 0;
    int rc = sp_json_string(&name, from, "name");

    if (rc == SP_OK)
        rc = sp_bench_rival_of(&at, group, name);
    rival = &group->rival[at];
    if (rc == SP_OK)
        rc = sp_json_bool(&rival->stock, from, "stock");
    if (rc == SP_OK)
        rc = sp_bench_opt_text(rival->version, sizeof rival->version, from, "version");
    if (rc == SP_OK)
        rc = sp_bench_opt_text(rival->path, sizeof rival->path, from, "path");
    if (rc == SP_OK)
        rc = sp_bench_opt_text(rival->settings, sizeof rival->settings, from, "settings");
    if (rc == SP_OK)
        rc = sp_bench_opt_text(rival->via, sizeof rival->via, from, "via");
    if (rc == SP_OK)
        rc = sp_bench_opt_text(rival->error, sizeof rival->error, from, "error");
    if (rc == SP_OK)
        rc = sp_json_integer(&channels, from, "channels", 0, 4096);
    rival->channels = (int)channels;
    return rc;
}

static int read_rates(struct sp_bench_rates *out, const json_t *from)
{
    const char *key;
    double *at;
    int rc = SP_OK;

    for (size_t i = 0; rc == SP_OK && (at = sp_bench_rate(out, i, &key)) != NULL; i++)
        rc = sp_bench_number(at, from, key);
    return rc < 0 ? sp_err_wrap(rc, "rates") : SP_OK;
}

static int read_gpus(const char **uuid, size_t *number, const json_t *list, size_t world)
{
    json_int_t is = 0;
    int rc = SP_OK;

    if (json_array_size(list) != world)
        return sp_err(SP_EFAIL, "world %zu of %zu GPUs", world, json_array_size(list));
    for (size_t i = 0; i < world && rc == SP_OK; i++) {
        const json_t *gpu = json_array_get(list, i);

        rc = sp_json_string(&uuid[i], gpu, "uuid");
        if (rc == SP_OK)
            rc = sp_json_integer(&is, gpu, "number", 0, INT32_MAX);
        number[i] = (size_t)is;
        for (size_t k = 0; k < i && rc == SP_OK; k++)
            if (strcmp(uuid[k], uuid[i]) == 0)
                rc = sp_err(SP_EFAIL, "'%s' is there twice", uuid[i]);
    }
    return rc < 0 ? sp_err_wrap(rc, "gpus") : SP_OK;
}

static int read_group(struct sp_bench *bench, const json_t *from)
{
    const char *uuid[SP_BENCH_WORLD] = {NULL}, *type = NULL;
    size_t number[SP_BENCH_WORLD];
    json_t *gpus = NULL, *rivals = NULL, *rows = NULL, *rates = NULL;
    struct sp_bench_group *group = NULL;
    json_int_t world = 0;
    int rc = sp_json_integer(&world, from, "world", 2, SP_BENCH_WORLD);

    if (rc == SP_OK)
        rc = sp_json_string(&type, from, "type");
    if (rc == SP_OK)
        rc = sp_json_array(&gpus, from, "gpus", SP_BENCH_WORLD);
    if (rc == SP_OK)
        rc = read_gpus(uuid, number, gpus, (size_t)world);
    if (rc == SP_OK)
        rc = sp_json_object(&rates, from, "rates");
    if (rc == SP_OK)
        rc = sp_json_array(&rivals, from, "rivals", SP_BENCH_RIVALS);
    if (rc == SP_OK)
        rc = sp_json_array(&rows, from, "rows", SP_BENCH_SIZES);
    if (rc == SP_OK)
        rc = sp_bench_group_of(&group, bench, uuid, number, (size_t)world, type);
    if (rc == SP_OK)
        rc = read_rates(&group->rates, rates);
    EACH(rc, rivals, "rivals", read_rival(group, item))
    EACH(rc, rows, "rows", read_row(group, item))
    if (rc == SP_OK) {
        sp_bench_find_stock(group);
        group->nvlink = json_is_true(json_object_get(from, "nvlink"));
        json_decref(group->before); /* of the same GPUs and type, which a file may have twice */
        group->before = json_incref(json_object_get(from, "tables"));
    }
    return rc;
}

static int check_schema(const json_t *content)
{
    const char *schema = NULL;
    int rc = sp_json_string(&schema, content, "schema");

    if (rc == SP_OK && strcmp(schema, SP_BUNDLE_SCHEMA) == 0)
        rc = sp_err(SP_EFAIL, "the report was made before anything was measured: it has no bench");
    else if (rc == SP_OK && strcmp(schema, SP_BENCH_SCHEMA) != 0)
        rc = sp_err(SP_EFAIL, "schema '%s' is not " SP_BENCH_SCHEMA, schema);
    return rc;
}

int sp_bench_read(struct sp_bench *out, const json_t *content)
{
    const json_t *inner = json_object_get(content, "bench");
    const json_t *from = json_is_object(inner) ? inner : content;
    json_t *groups = NULL;
    int rc = check_schema(from);

    memset(out, 0, sizeof *out);
    if (rc == SP_OK)
        rc = sp_json_bool(&out->quick, from, "quick");
    if (rc == SP_OK)
        rc = sp_bench_opt_text(out->created, sizeof out->created, from, "created");
    if (rc == SP_OK)
        rc = sp_bench_opt_text(out->gpu, sizeof out->gpu, from, "gpu");
    if (rc == SP_OK)
        rc = sp_bench_opt_text(out->driver, sizeof out->driver, from, "driver");
    if (rc == SP_OK)
        rc = sp_json_array(&groups, from, "groups", SP_BENCH_GROUPS);
    EACH(rc, groups, "groups", read_group(out, item))
    return rc;
}
