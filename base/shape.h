/*
 * What a JSON object is to look like, said as a table: for files that others may have written and that are passed on.
 *
 *     static const struct sp_shape file[] = {
 *         {.key = "path", .is = SP_IS_TEXT},
 *         {.key = "oid", .is = SP_IS_TEXT | SP_IS_NULL},
 *         {.key = "tags", .is = SP_IS_LIST, .of = SP_EACH(SP_IS_TEXT)},
 *         {.key = NULL},
 *     };
 *     static const struct sp_shape shape = {.is = SP_IS_OBJECT, .of = file};
 *     rc = sp_shape_check(object, &shape);      // "field 'tags[3]' is a number, not a string"
 *
 * Fields are checked in the order of the table, so the same file always gives the same error. Only what can be said of
 * one value is said here, as in a JSON Schema; what they mean together is for the reader of the file.
 */
#ifndef SP_BASE_SHAPE_H
#define SP_BASE_SHAPE_H

#include <jansson.h>

enum {
    SP_IS_NULL = 1 << 0,
    SP_IS_BOOL = 1 << 1,
    SP_IS_INTEGER = 1 << 2,
    SP_IS_NUMBER = 1 << 3, /* or an integer */
    SP_IS_TEXT = 1 << 4,
    SP_IS_OBJECT = 1 << 5,
    SP_IS_LIST = 1 << 6,
    SP_MAY_MISS = 1 << 7, /* the field need not be there */
    SP_MAY_GROW = 1 << 8, /* the object may have fields that its table does not know */
};

struct sp_shape {
    const char *key;           /* the field's name; NULL ends the table, or stands for each item of a list */
    unsigned is;               /* any of these */
    const char *words;         /* which of them (below); NULL: any */
    const struct sp_shape *of; /* the fields of an object, or what each item of a list is; NULL: anything */
};

/* words of a text: those that it may be, a blank between them ("info warn fail"), or, with ^ in front, an extended
 * regular expression that it is to match. Of a number: "2..8", "0.." without a greatest, "0..64/32" for multiples. Of a
 * list: so many items. */
#define SP_NOT_EMPTY "^."
#define SP_NOT_LESS  "0.."

#define SP_EACH(...) (&(const struct sp_shape){.is = __VA_ARGS__})

/* SP_EFAIL names the first field that is not as the table has it: what it is, and what it should be. The shape's own
 * key is the name of the value, in front of its fields'; NULL: they stand alone. */
int sp_shape_check(const json_t *value, const struct sp_shape *shape);

#endif
