#include "base/json.h"

#include "base/err.h"

#include <stdint.h>
#include <string.h>

enum { JSON_DEPTH = 32 };

/* Depth before parsing: jansson recurses, and refuses only at 2048 levels. Brackets in strings do not count. */
static bool too_deep(const char *data, size_t len)
{
    bool in_string = false;
    int depth = 0;

    for (size_t i = 0; i < len; i++) {
        char c = data[i];

        if (in_string) {
            if (c == '\\')
                i++;
            else if (c == '"')
                in_string = false;
        } else if (c == '"') {
            in_string = true;
        } else if (c == '{' || c == '[') {
            if (++depth > JSON_DEPTH)
                return true;
        } else if (c == '}' || c == ']') {
            depth--;
        }
    }
    return false;
}

int sp_json_load(json_t **out, const char *data, size_t len, const char *name)
{
    json_error_t why;
    json_t *root;

    *out = NULL;
    if (too_deep(data, len))
        return sp_err(SP_EFAIL, "'%s' is not valid: nested more than %d levels", name, JSON_DEPTH);
    root = json_loadb(data, len, JSON_REJECT_DUPLICATES, &why);
    if (!root)
        return sp_err(SP_EFAIL, "'%s' is not valid JSON: line %d, column %d: %s", name, why.line, why.column, why.text);
    if (!json_is_object(root)) {
        json_decref(root);
        return sp_err(SP_EFAIL, "'%s' is not a JSON object", name);
    }
    *out = root;
    return SP_OK;
}

static int find(json_t **out, const json_t *object, const char *key)
{
    *out = json_object_get(object, key);
    return *out ? SP_OK : sp_err(SP_EFAIL, "field '%s' is missing", key);
}

int sp_json_string(const char **out, const json_t *object, const char *key)
{
    json_t *value;
    int rc = find(&value, object, key);

    *out = NULL;
    if (rc < 0)
        return rc;
    if (!json_is_string(value))
        return sp_err(SP_EFAIL, "field '%s' is not a string", key);
    *out = json_string_value(value); /* without JSON_ALLOW_NUL the parser refuses \u0000 */
    return SP_OK;
}

int sp_json_opt_string(const char **out, const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);

    *out = NULL;
    if (!value || json_is_null(value))
        return SP_OK;
    return sp_json_string(out, object, key);
}

int sp_json_integer(json_int_t *out, const json_t *object, const char *key, json_int_t min, json_int_t max)
{
    json_t *value;
    int rc = find(&value, object, key);

    *out = 0;
    if (rc < 0)
        return rc;
    if (!json_is_integer(value))
        return sp_err(SP_EFAIL, "field '%s' is not an integer", key);
    *out = json_integer_value(value);
    if (*out < min || *out > max)
        return sp_err(SP_EFAIL,
                      "field '%s' is %" JSON_INTEGER_FORMAT ", not within %" JSON_INTEGER_FORMAT
                      " to %" JSON_INTEGER_FORMAT,
                      key, *out, min, max);
    return SP_OK;
}

int sp_json_bool(bool *out, const json_t *object, const char *key)
{
    json_t *value;
    int rc = find(&value, object, key);

    *out = false;
    if (rc < 0)
        return rc;
    if (!json_is_boolean(value))
        return sp_err(SP_EFAIL, "field '%s' is not true or false", key);
    *out = json_is_true(value);
    return SP_OK;
}

int sp_json_array(json_t **out, const json_t *object, const char *key, size_t max_items)
{
    int rc = find(out, object, key);

    if (rc < 0)
        return rc;
    if (!json_is_array(*out))
        return sp_err(SP_EFAIL, "field '%s' is not a list", key);
    if (json_array_size(*out) > max_items)
        return sp_err(SP_EFAIL, "field '%s' has more than %zu items", key, max_items);
    return SP_OK;
}

int sp_json_object(json_t **out, const json_t *object, const char *key)
{
    int rc = find(out, object, key);

    if (rc < 0)
        return rc;
    return json_is_object(*out) ? SP_OK : sp_err(SP_EFAIL, "field '%s' is not an object", key);
}

bool sp_json_is(const json_t *object, const char *key, const char *text)
{
    const char *is = json_string_value(json_object_get(object, key));

    return is && strcmp(is, text) == 0;
}

int sp_json_only(const json_t *object, const char *const *keys)
{
    const char *key;
    json_t *value;

    json_object_foreach((json_t *)(uintptr_t)object, key, value)
    {
        size_t i = 0;

        while (keys[i] && strcmp(keys[i], key) != 0)
            i++;
        if (!keys[i])
            return sp_err(SP_EFAIL, "field '%s' is not known", key);
    }
    return SP_OK;
}
