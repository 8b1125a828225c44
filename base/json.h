/*
 * Reading JSON that others may have written: bounded, strict, with errors that name the field.
 *
 * Strict: one object, UTF-8, no duplicate keys, nothing after it, at most JSON_DEPTH levels (jansson's own
 * limit is deeper than a small stack likes). The getters borrow: what they return lives as long as the object.
 *
 *     rc = sp_json_load(&root, bytes.data, bytes.len, "manifest.json");
 *     rc = sp_json_string(&path, root, "path");      // "field 'path' is missing" or "is not a string"
 *
 * The caller puts the file and the position in front with sp_err_wrap(). All errors are SP_EFAIL: what a
 * malformed file means is for the caller to say.
 */
#ifndef SP_BASE_JSON_H
#define SP_BASE_JSON_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

/* name: for the message. *out: a new reference, for json_decref(). */
int sp_json_load(json_t **out, const char *data, size_t len, const char *name);

/* Required fields. A string never holds a NUL byte. */
int sp_json_string(const char **out, const json_t *object, const char *key);
int sp_json_integer(json_int_t *out, const json_t *object, const char *key, json_int_t min, json_int_t max);
int sp_json_bool(bool *out, const json_t *object, const char *key);
int sp_json_array(json_t **out, const json_t *object, const char *key, size_t max_items);
int sp_json_object(json_t **out, const json_t *object, const char *key);

/* *out = NULL when the field is missing or null. */
int sp_json_opt_string(const char **out, const json_t *object, const char *key);

/* Is this member the text? False where it is missing, or no text. */
bool sp_json_is(const json_t *object, const char *key, const char *text);

/* SP_EFAIL naming the first field that is not in the NULL-terminated list. */
int sp_json_only(const json_t *object, const char *const *keys);

#endif
