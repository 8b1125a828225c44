#include "base/shape.h"
#include "base/err.h"

#include <ctype.h>
#include <math.h>
#include <regex.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { EXPECTED = 256 };

/* Where in the tree, as in JavaScript: status.install.files[0].oid. What is too long to be said is cut. */
struct place {
    char text[160];
    size_t len;
};

static void enter(struct place *place, const char *key, size_t index)
{
    const size_t room = sizeof place->text - place->len;
    const int len = key ? snprintf(place->text + place->len, room, "%s%s", place->len ? "." : "", key)
                        : snprintf(place->text + place->len, room, "[%zu]", index);

    place->len += (size_t)len < room ? (size_t)len : room - 1;
}

static void leave(struct place *place, size_t len)
{
    place->len = len;
    place->text[len] = '\0';
}

/* ---- one value ---- */

static const struct {
    unsigned is;
    const char *name;
} kinds[] = {
    {SP_IS_OBJECT, "an object"},   {SP_IS_LIST, "a list"},     {SP_IS_TEXT, "a string"}, {SP_IS_INTEGER, "an integer"},
    {SP_IS_BOOL, "true or false"}, {SP_IS_NUMBER, "a number"}, {SP_IS_NULL, "null"},
};

static const char *kind_name(unsigned is)
{
    size_t i = 0;

    while (!(kinds[i].is & is))
        i++;
    return kinds[i].name;
}

static unsigned kind_of(const json_t *value)
{
    static const unsigned is[] = {
        [JSON_OBJECT] = SP_IS_OBJECT,   [JSON_ARRAY] = SP_IS_LIST,  [JSON_STRING] = SP_IS_TEXT,
        [JSON_INTEGER] = SP_IS_INTEGER, [JSON_REAL] = SP_IS_NUMBER, [JSON_TRUE] = SP_IS_BOOL,
        [JSON_FALSE] = SP_IS_BOOL,      [JSON_NULL] = SP_IS_NULL,
    };

    return is[json_typeof(value)];
}

static bool is_range(const char *words)
{
    return words && strstr(words, "..") && (isdigit((unsigned char)words[0]) || words[0] == '-');
}

/* ", at least 0", ", 2 to 8", ", 0 to 64 by 32" */
static void add_range(char out[EXPECTED], const char *words)
{
    const size_t len = strlen(out);
    const char *most = strstr(words, "..") + 2, *by = strchr(most, '/');
    const int least = (int)(most - 2 - words);

    if (*most)
        (void)snprintf(out + len, EXPECTED - len, ", %.*s to %.*s%s%s", least, words, (int)strcspn(most, "/"), most,
                       by ? " by " : "", by ? by + 1 : "");
    else
        (void)snprintf(out + len, EXPECTED - len, ", at least %.*s", least, words);
}

/* Of a text: what it may be. */
static void add_text(char out[EXPECTED], const char *words)
{
    const bool any = !words || is_range(words), some = words && strcmp(words, SP_NOT_EMPTY) == 0;
    const size_t len = strlen(out);

    (void)snprintf(out + len, EXPECTED - len, "%s%s",
                   any               ? "a string"
                   : some            ? "a string that is not empty"
                   : words[0] == '^' ? "a string like "
                                     : "one of ",
                   any || some ? "" : words);
}

/* "a string or null", "one of info warn fail", "an integer, at least 0". */
static const char *expected(char out[EXPECTED], const struct sp_shape *shape)
{
    out[0] = '\0';
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        const size_t len = strlen(out);

        if (!(shape->is & kinds[i].is))
            continue;
        (void)snprintf(out + len, EXPECTED - len, "%s%s", len ? " or " : "",
                       kinds[i].is == SP_IS_TEXT ? "" : kinds[i].name);
        if (kinds[i].is == SP_IS_TEXT)
            add_text(out, shape->words);
        if (kinds[i].is & (SP_IS_INTEGER | SP_IS_NUMBER) && is_range(shape->words))
            add_range(out, shape->words);
    }
    return out;
}

static bool is_word(const char *text, const char *words)
{
    const size_t len = strlen(text);
    bool found = false;

    for (const char *at = words; *at && !found; at += strcspn(at, " "), at += *at == ' ')
        found = strcspn(at, " ") == len && memcmp(at, text, len) == 0;
    return found;
}

static bool matches(const char *text, const char *pattern)
{
    regex_t regex;
    bool is;

    if (regcomp(&regex, pattern, REG_EXTENDED | REG_NOSUB) != 0)
        return false;
    is = regexec(&regex, text, 0, NULL, 0) == 0;
    regfree(&regex);
    return is;
}

static bool in_range(double number, const char *words)
{
    const char *most = strstr(words, "..") + 2, *by = strchr(most, '/');

    return number >= strtod(words, NULL) && (!*most || number <= strtod(most, NULL)) &&
           (!by || fmod(number, strtod(by + 1, NULL)) == 0);
}

static int check_text(const char *text, const struct sp_shape *shape, const struct place *place)
{
    char wanted[EXPECTED];
    const bool fits = shape->words[0] == '^' ? matches(text, shape->words) : is_word(text, shape->words);

    if (fits || is_range(shape->words))
        return SP_OK;
    return sp_err(SP_EFAIL, "field '%s' is '%.64s', not %s", place->text, text, expected(wanted, shape));
}

static int check_range(const json_t *value, const struct sp_shape *shape, const struct place *place)
{
    char wanted[EXPECTED];

    if (json_is_array(value) && !in_range((double)json_array_size(value), shape->words))
        return sp_err(SP_EFAIL, "field '%s' has %zu items, not %s", place->text, json_array_size(value), shape->words);
    if (json_is_number(value) && !in_range(json_number_value(value), shape->words))
        return sp_err(SP_EFAIL, "field '%s' is %.17g, not %s", place->text, json_number_value(value),
                      expected(wanted, shape));
    return SP_OK;
}

static int check_kind(const json_t *value, const struct sp_shape *shape, const struct place *place)
{
    const unsigned is = kind_of(value), may = shape->is & SP_IS_NUMBER ? shape->is | SP_IS_INTEGER : shape->is;
    char wanted[EXPECTED];

    if (!(is & may))
        return sp_err(SP_EFAIL, "field '%s' is %s, not %s", place->text, kind_name(is), expected(wanted, shape));
    if (shape->words && json_is_string(value))
        return check_text(json_string_value(value), shape, place);
    return is_range(shape->words) ? check_range(value, shape, place) : SP_OK;
}

/* ---- a tree of them ---- */

static int check_fields(const json_t *object, const struct sp_shape *fields, bool grows, struct place *place);

static int check_value(const json_t *value, const struct sp_shape *shape, struct place *place)
{
    const size_t len = place->len;
    int rc = check_kind(value, shape, place);

    if (rc == SP_OK && shape->of && json_is_object(value))
        rc = check_fields(value, shape->of, shape->is & SP_MAY_GROW, place);
    for (size_t i = 0; rc == SP_OK && shape->of && json_is_array(value) && i < json_array_size(value); i++) {
        enter(place, NULL, i);
        rc = check_value(json_array_get(value, i), shape->of, place);
        leave(place, len);
    }
    return rc;
}

static int check_field(const json_t *object, const struct sp_shape *field, struct place *place)
{
    const json_t *value = json_object_get(object, field->key);
    const size_t len = place->len;
    char wanted[EXPECTED];
    int rc = SP_OK;

    enter(place, field->key, 0);
    if (value)
        rc = check_value(value, field, place);
    else if (!(field->is & SP_MAY_MISS))
        rc = sp_err(SP_EFAIL, "field '%s' is missing, expected %s", place->text, expected(wanted, field));
    leave(place, len);
    return rc;
}

static bool is_known(const struct sp_shape *fields, const char *key)
{
    while (fields->key && strcmp(fields->key, key) != 0)
        fields++;
    return fields->key != NULL;
}

static int check_fields(const json_t *object, const struct sp_shape *fields, bool grows, struct place *place)
{
    const size_t len = place->len;
    const char *key;
    json_t *value;
    int rc = SP_OK;

    for (const struct sp_shape *field = fields; field->key && rc == SP_OK; field++)
        rc = check_field(object, field, place);
    json_object_foreach((json_t *)(uintptr_t)object, key, value)
    {
        if (rc < 0 || grows || is_known(fields, key))
            continue;
        enter(place, key, 0);
        rc = sp_err(SP_EFAIL, "field '%s' is not known", place->text);
        leave(place, len);
    }
    return rc;
}

int sp_shape_check(const json_t *value, const struct sp_shape *shape)
{
    struct place place = {.len = 0};

    if (shape->key)
        enter(&place, shape->key, 0);
    return check_value(value, shape, &place);
}
