#include "base/err.h"
#include "base/json.h"
#include "verify/machine/record.h"
#include "verify/machine/record_fields.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const int64_t INT_MOST = INT64_C(1) << 53; /* what every reader of JSON can hold */

/* ---- reading ---- */

static int read_text(char **out, const json_t *object, const char *key)
{
    const char *text;
    int rc = sp_json_string(&text, object, key);

    if (rc == SP_OK && strlen(text) > SP_REC_TEXT_MAX)
        rc = sp_err(SP_EFAIL, "field '%s' is longer than %d bytes", key, SP_REC_TEXT_MAX);
    if (rc < 0)
        return rc;
    *out = strdup(text);
    return *out ? SP_OK : sp_err(SP_ECANNOT, "out of memory");
}

static int read_int(int64_t *out, const json_t *object, const char *key, int least)
{
    json_int_t value;
    int rc = sp_json_integer(&value, object, key, least, INT_MOST);

    if (rc == SP_OK)
        *out = value;
    return rc;
}

static int read_bool(int64_t *out, const json_t *object, const char *key)
{
    bool value;
    int rc = sp_json_bool(&value, object, key);

    if (rc == SP_OK)
        *out = value;
    return rc;
}

static int read_real(double *out, const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);

    if (!json_is_number(value))
        return sp_err(SP_EFAIL, "field '%s' is not a number", key);
    if (!(json_number_value(value) >= 0 && json_number_value(value) <= 1e6))
        return sp_err(SP_EFAIL, "field '%s' is %g, not within 0 to 1000000", key, json_number_value(value));
    *out = json_number_value(value);
    return SP_OK;
}

static int read_hex(int64_t *out, const json_t *object, const char *key)
{
    const char *text;
    char *end = NULL;
    int rc = sp_json_string(&text, object, key);

    if (rc < 0)
        return rc;
    if (strncmp(text, "0x", 2) == 0 && strspn(text + 2, "0123456789abcdef") == strlen(text + 2))
        *out = (int64_t)strtoll(text + 2, &end, 16); /* what is too large is INT64_MAX */
    if (!end || end == text + 2 || *out > UINT32_MAX)
        return sp_err(SP_EFAIL, "field '%s' is '%s', not a number like \"0x1f\"", key, text);
    return SP_OK;
}

static int read_acs(int64_t *out, const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));

    if (!text || strcmp(text, "none") != 0)
        return read_hex(out, object, key);
    *out = SP_ACS_NONE;
    return SP_OK;
}

static int read_field(void *at, const json_t *object, const struct sp_field *field)
{
    const json_t *value = json_object_get(object, field->key);
    int rc = SP_OK;

    if (!value || json_is_null(value))
        return field->required ? sp_err(SP_EFAIL, "field '%s' is missing", field->key) : SP_OK;
    switch (field->kind) {
    case SP_KIND_TEXT:
        rc = read_text(at, object, field->key);
        break;
    case SP_KIND_INT:
    case SP_KIND_NODE:
        rc = read_int(at, object, field->key, field->kind == SP_KIND_NODE ? -1 : 0);
        break;
    case SP_KIND_BOOL:
        rc = read_bool(at, object, field->key);
        break;
    case SP_KIND_REAL:
        rc = read_real(at, object, field->key);
        break;
    case SP_KIND_HEX:
        rc = read_hex(at, object, field->key);
        break;
    case SP_KIND_ACS:
        rc = read_acs(at, object, field->key);
        break;
    }
    return rc;
}

static int read_object(void *out, const json_t *object, const struct sp_field *fields)
{
    const char *keys[32] = {NULL};
    size_t count = 0;
    int rc = json_is_object(object) ? SP_OK : sp_err(SP_EFAIL, "not an object");

    for (; fields->key && rc == SP_OK; fields++) {
        keys[count++] = fields->key;
        rc = read_field(sp_at(out, fields->offset), object, fields);
    }
    return rc < 0 ? rc : sp_json_only(object, keys);
}

static int read_list(struct sp_recording *out, const json_t *root, const struct sp_part *part)
{
    json_t *items;
    int rc = sp_json_array(&items, root, part->key, part->max);

    for (size_t i = 0; rc == SP_OK && i < json_array_size(items); i++) {
        void *object;

        rc = sp_recording_add(&object, out, part->key);
        if (rc == SP_OK)
            rc = read_object(object, json_array_get(items, i), part->fields);
        if (rc < 0)
            rc = sp_err_wrap(rc, "%s[%zu]", part->key, i);
    }
    return rc;
}

static int read_part(struct sp_recording *out, const json_t *root, const struct sp_part *part)
{
    const json_t *value = json_object_get(root, part->key);
    int rc;

    if (!value || json_is_null(value))
        return SP_OK;
    if (part->count_offset != SP_ONE)
        return read_list(out, root, part);
    rc = read_object(sp_at(out, part->offset), value, part->fields);
    return rc < 0 ? sp_err_wrap(rc, "%s", part->key) : rc;
}

/* ---- what the tables do not say ---- */

static int check_pci(const struct sp_recording *recording, size_t index)
{
    const struct sp_rec_pci *pci = &recording->pci[index];
    bool known = sp_is_host_bridge(pci->parent);

    if (!sp_is_bdf(pci->bdf))
        return sp_err(SP_EFAIL, "pci[%zu]: field 'bdf' is '%s', not like 0000:16:00.0", index, pci->bdf);
    for (size_t i = 0; i < index; i++) {
        if (strcmp(recording->pci[i].bdf, pci->bdf) == 0)
            return sp_err(SP_EFAIL, "pci[%zu]: '%s' is there twice", index, pci->bdf);
        known = known || strcmp(recording->pci[i].bdf, pci->parent) == 0;
    }
    if (!known) /* so there is no circle either */
        return sp_err(SP_EFAIL, "pci[%zu]: parent '%s' is no host bridge and not listed before", index, pci->parent);
    return SP_OK;
}

static bool is_one_of(const char *text, const char *const *list)
{
    for (; *list; list++)
        if (strcmp(*list, text) == 0)
            return true;
    return false;
}

static int check_word(const char *what, const char *text, const char *const *list)
{
    if (!text || is_one_of(text, list))
        return SP_OK;
    return sp_err(SP_EFAIL, "field '%s' is '%s'", what, text);
}

static int check_pair(const struct sp_recording *recording, size_t index)
{
    static const char *const codes[] = {"OK", "CNS", "GNS", "TNS", "DR", "NS", "U", NULL};
    static const char *const labels[] = {"SELF", "PIX", "PXB", "PHB", "NODE", "SYS", NULL};
    const struct sp_rec_pair *pair = &recording->pairs[index];
    const int64_t count = (int64_t)recording->gpu_count;
    int rc = SP_OK;

    if (pair->from < 0 || pair->from >= count || pair->to < 0 || pair->to >= count || pair->from == pair->to)
        return sp_err(SP_EFAIL, "pairs[%zu]: from %jd to %jd is no pair of %zu GPUs", index, (intmax_t)pair->from,
                      (intmax_t)pair->to, recording->gpu_count);
    rc = check_word("label", pair->label, labels);
    if (rc == SP_OK)
        rc = check_word("read", pair->read, codes);
    if (rc == SP_OK)
        rc = check_word("write", pair->write, codes);
    if (rc == SP_OK)
        rc = check_word("nvlink", pair->nvlink, codes);
    if (rc == SP_OK)
        rc = check_word("atomics", pair->atomics, codes);
    return rc < 0 ? sp_err_wrap(rc, "pairs[%zu]", index) : rc;
}

static int check_gpu(const struct sp_recording *recording, size_t index)
{
    static const char *const virtualizations[] = {"none", "passthrough", "vgpu", "host", NULL};
    const char *bdf = recording->gpus[index].bdf;
    int rc;

    if (!sp_is_bdf(bdf))
        return sp_err(SP_EFAIL, "gpus[%zu]: field 'bdf' is '%s', not like 0000:16:00.0", index, bdf);
    for (size_t i = 0; i < index; i++)
        if (strcmp(recording->gpus[i].bdf, bdf) == 0)
            return sp_err(SP_EFAIL, "gpus[%zu]: '%s' is there twice", index, bdf);
    rc = check_word("virtualization", recording->gpus[index].virtualization, virtualizations);
    return rc < 0 ? sp_err_wrap(rc, "gpus[%zu]", index) : rc;
}

static int check(const struct sp_recording *recording)
{
    static const char *const modules[] = {"open", "proprietary", NULL};
    int rc = check_word("module", recording->driver.module, modules);

    if (rc < 0)
        rc = sp_err_wrap(rc, "driver");
    for (size_t i = 0; i < recording->pci_count && rc == SP_OK; i++)
        rc = check_pci(recording, i);
    for (size_t i = 0; i < recording->gpu_count && rc == SP_OK; i++)
        rc = check_gpu(recording, i);
    for (size_t i = 0; i < recording->pair_count && rc == SP_OK; i++)
        rc = check_pair(recording, i);
    for (size_t i = 0; i < recording->process_count && rc == SP_OK; i++)
        if (recording->processes[i].gpu < 0 || recording->processes[i].gpu >= (int64_t)recording->gpu_count)
            rc = sp_err(SP_EFAIL, "processes[%zu]: there is no GPU %jd", i, (intmax_t)recording->processes[i].gpu);
    return rc;
}

/* ---- whole recordings ---- */

static int only_known(const json_t *root)
{
    const char *keys[16] = {"schema"};
    size_t count = 1;

    for (const struct sp_part *part = sp_parts; part->key; part++)
        keys[count++] = part->key;
    for (const struct sp_field *field = sp_top_fields; field->key; field++)
        keys[count++] = field->key;
    return sp_json_only(root, keys);
}

static int read_recording(struct sp_recording *out, const json_t *root)
{
    const char *schema;
    int rc = sp_json_string(&schema, root, "schema");

    if (rc == SP_OK && strcmp(schema, SP_RECORDING_SCHEMA) != 0)
        rc = sp_err(SP_EFAIL, "field 'schema' is '%s', not '%s'", schema, SP_RECORDING_SCHEMA);
    if (rc == SP_OK)
        rc = only_known(root);
    for (const struct sp_field *field = sp_top_fields; field->key && rc == SP_OK; field++)
        rc = read_field(sp_at(out, field->offset), root, field);
    for (const struct sp_part *part = sp_parts; part->key && rc == SP_OK; part++)
        rc = read_part(out, root, part);
    return rc < 0 ? rc : check(out);
}

/* A recording, a bundle that has one, or what report --json says, which has a bundle. */
static int read_any(struct sp_recording *out, const json_t *root)
{
    json_t *bundle = json_object_get(root, "bundle"), *recording = NULL;
    int rc;

    if (json_is_object(bundle))
        root = bundle;
    if (!json_object_get(root, "recording") && !sp_json_is(root, "schema", SP_BUNDLE_SCHEMA))
        return read_recording(out, root);
    rc = sp_json_object(&recording, root, "recording");
    if (rc == SP_OK) {
        rc = read_recording(out, recording);
        if (rc < 0)
            rc = sp_err_wrap(rc, "recording");
    }
    return rc;
}

int sp_recording_parse(struct sp_recording *out, const char *data, size_t len, const char *name)
{
    json_t *root;
    int rc = sp_json_load(&root, data, len, name);

    sp_recording_init(out);
    if (rc == SP_OK) {
        rc = read_any(out, root);
        if (rc < 0)
            rc = sp_err_wrap(rc, "'%s'", name);
    }
    json_decref(root);
    return rc == SP_EFAIL ? sp_err_hint(rc, SP_RECORDING_HINT) : rc;
}

int sp_recording_load(struct sp_recording *out, const char *path)
{
    static const char *const names[] = {"/recording.json", "/report.json"};
    struct sp_buf bytes = SP_BUF_INIT;
    char file[PATH_MAX];
    bool folder = sp_is_folder(path);
    bool found = false;
    int rc = SP_OK;

    sp_recording_init(out);
    for (size_t i = 0; !found && rc == SP_OK && i < (folder ? 2 : 1); i++) {
        if (snprintf(file, sizeof file, "%s%s", path, folder ? names[i] : "") >= (int)sizeof file)
            rc = sp_err(SP_ECANNOT, "the path of the recording is too long");
        else
            found = access(file, F_OK) == 0 || !folder;
    }
    if (rc == SP_OK && !found)
        rc = sp_err(SP_ECANNOT, "there is no recording.json and no report.json in '%s'", path);
    if (rc == SP_OK)
        rc = sp_read_file(&bytes, file, SP_REC_BYTES_MAX);
    if (rc < 0)
        rc = sp_err_hint(rc, SP_RECORDING_HINT);
    if (rc == SP_OK)
        rc = sp_recording_parse(out, bytes.data, bytes.len, file);
    sp_buf_free(&bytes);
    return rc;
}

/* ---- writing ---- */

static json_t *hex(int64_t value, int digits)
{
    return json_sprintf("0x%0*jx", digits, (uintmax_t)value);
}

static json_t *field_json(const void *at, const struct sp_field *field)
{
    int64_t number = field->kind == SP_KIND_TEXT || field->kind == SP_KIND_REAL ? 0 : *(const int64_t *)at;
    json_t *value = NULL;

    if (number == SP_ABSENT)
        return NULL;
    switch (field->kind) {
    case SP_KIND_TEXT:
        value = *(char *const *)at ? json_string(*(char *const *)at) : NULL;
        break;
    case SP_KIND_INT:
    case SP_KIND_NODE:
        value = json_integer(number);
        break;
    case SP_KIND_BOOL:
        value = json_boolean(number);
        break;
    case SP_KIND_REAL:
        value = *(const double *)at >= 0 ? json_real(*(const double *)at) : NULL;
        break;
    case SP_KIND_HEX:
        value = hex(number, 4);
        break;
    case SP_KIND_ACS:
        value = number == SP_ACS_NONE ? json_string("none") : hex(number, 4);
        break;
    }
    return value;
}

static void set_fields(json_t *object, const void *from, const struct sp_field *fields)
{
    for (; fields->key; fields++) {
        json_t *value = field_json(sp_at(from, fields->offset), fields);

        if (value)
            (void)json_object_set_new(object, fields->key, value);
    }
}

static json_t *part_json(const struct sp_recording *recording, const struct sp_part *part)
{
    json_t *list, *object;

    if (part->count_offset == SP_ONE) {
        object = json_object();
        set_fields(object, sp_at(recording, part->offset), part->fields);
        return object;
    }
    list = json_array();
    for (size_t i = 0; i < *(const size_t *)sp_at(recording, part->count_offset); i++) {
        object = json_object();
        set_fields(object, *(char *const *)sp_at(recording, part->offset) + i * part->size, part->fields);
        (void)json_array_append_new(list, object);
    }
    return list;
}

json_t *sp_recording_json(const struct sp_recording *recording)
{
    json_t *root = json_object();

    if (!root)
        return NULL;
    (void)json_object_set_new(root, "schema", json_string(SP_RECORDING_SCHEMA));
    set_fields(root, recording, sp_top_fields);
    for (const struct sp_part *part = sp_parts; part->key; part++)
        (void)json_object_set_new(root, part->key, part_json(recording, part));
    return root;
}
