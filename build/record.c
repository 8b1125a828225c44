#include "build/record.h"
#include "base/err.h"
#include "base/json.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SCHEMA "sgl-pcie-build/1"

enum { OUTPUTS_MAX = 64 };

static json_t *archs_json(const struct sp_archs *archs)
{
    json_t *array = json_array();

    for (size_t i = 0; i < archs->count; i++)
        (void)json_array_append_new(array, json_sprintf("sm_%u", archs->number[i]));
    return array;
}

static json_t *compilers_json(const struct sp_toolchain *tools, const struct sp_python *python)
{
    return json_pack("{s:s, s:s, s:s, s:s?}", "nvcc", tools->nvcc_version, "cc", tools->cc_version, "ld",
                     tools->ld_version, "python", python->version);
}

/* The runtime that is linked in is an input like the sources. */
static int add_runtime(json_t *array, const struct sp_toolchain *tools)
{
    struct sp_buf bytes = SP_BUF_INIT;
    char sha256[SP_SHA256_HEX + 1];
    int rc = sp_read_file(&bytes, tools->cudart, (size_t)256 << 20);

    if (rc == 0)
        rc = sp_sha256(sha256, bytes.data, bytes.len);
    if (rc == 0)
        (void)json_array_append_new(array, json_pack("{s:s, s:s}", "path", "libcudart_static.a", "sha256", sha256));
    sp_buf_free(&bytes);
    return rc;
}

static int inputs_json(json_t **out, const struct sp_files *inputs, const struct sp_toolchain *tools)
{
    *out = json_array();
    for (size_t i = 0; i < inputs->count; i++)
        (void)json_array_append_new(
            *out, json_pack("{s:s, s:s}", "path", inputs->file[i].path, "sha256", inputs->file[i].sha256));
    return add_runtime(*out, tools);
}

static json_t *commands_json(const struct sp_steps *steps)
{
    json_t *array = json_array();

    for (size_t i = 0; i < steps->count; i++) {
        json_t *argv = json_array();

        for (size_t j = 0; j < steps->step[i].argv.count; j++)
            (void)json_array_append_new(argv, json_string(steps->step[i].argv.word[j]));
        (void)json_array_append_new(array, argv);
    }
    return array;
}

int sp_record_plan(json_t **out, const struct sp_steps *steps, const struct sp_files *inputs,
                   const struct sp_toolchain *tools, const struct sp_archs *archs, const struct sp_python *python)
{
    json_t *list = NULL;
    int rc = inputs_json(&list, inputs, tools);

    *out = NULL;
    if (rc == 0)
        *out = json_pack("{s:s, s:s, s:o, s:o, s:O, s:o}", "schema", SCHEMA, "tool", SP_VERSION, "architectures",
                         archs_json(archs), "compilers", compilers_json(tools, python), "inputs", list, "commands",
                         commands_json(steps));
    json_decref(list);
    return rc == 0 && *out == NULL ? sp_err(SP_ECANNOT, "out of memory") : rc;
}

int sp_record_format(struct sp_buf *out, json_t *record, const struct sp_files *outputs)
{
    json_t *array = json_array();
    char *text;
    int rc;

    for (size_t i = 0; i < outputs->count; i++)
        (void)json_array_append_new(array, json_pack("{s:s, s:s, s:I}", "path", outputs->file[i].path, "sha256",
                                                     outputs->file[i].sha256, "bytes",
                                                     (json_int_t)outputs->file[i].bytes.len));
    (void)json_object_set_new(record, "outputs", array);
    text = json_dumps(record, JSON_SORT_KEYS | JSON_INDENT(1));
    rc = text ? sp_buf_printf(out, "%s\n", text) : sp_err(SP_ECANNOT, "out of memory");
    free(text);
    return rc;
}

static int read_output(struct sp_files *out, const json_t *object)
{
    struct sp_buf nothing = SP_BUF_INIT;
    const char *path, *sha256;
    int rc = sp_json_string(&path, object, "path");

    if (rc == 0)
        rc = sp_json_string(&sha256, object, "sha256");
    if (rc == 0 && (strchr(path, '/') != NULL || !sp_path_is_safe(path)))
        rc = sp_err(SP_EFAIL, "'%s' is not the name of a file", path);
    if (rc == 0)
        rc = sp_buf_set(&nothing, "", 0);
    if (rc == 0)
        rc = sp_files_add(out, path, &nothing);
    if (rc == 0)
        (void)snprintf(out->file[out->count - 1].sha256, sizeof out->file->sha256, "%s", sha256);
    return rc;
}

static int read_outputs(struct sp_files *out, const json_t *record)
{
    json_t *array;
    int rc = sp_json_array(&array, record, "outputs", OUTPUTS_MAX);

    for (size_t i = 0; rc == 0 && i < json_array_size(array); i++)
        rc = read_output(out, json_array_get(array, i));
    return rc;
}

int sp_record_matches(bool *out, struct sp_files *outputs, const struct sp_buf *text, const json_t *plan)
{
    struct sp_files found = {NULL, 0};
    json_t *record = NULL;
    int rc = sp_json_load(&record, text->data, text->len, SP_RECORD_NAME);

    *out = false;
    if (rc == 0)
        rc = read_outputs(&found, record);
    if (rc == 0) {
        (void)json_object_del(record, "outputs");
        *out = json_equal(record, plan);
    }
    if (rc == SP_EFAIL) {
        sp_err_clear();
        rc = 0;
    }
    if (outputs != NULL)
        *outputs = found;
    else
        sp_files_free(&found);
    json_decref(record);
    return rc;
}
