/*
 * Tables for people: aligned columns on a terminal, plain lines ("a  b  c" with two spaces) elsewhere.
 * Cells are copied. Column widths count UTF-8 characters. Colour never changes widths.
 */
#ifndef SP_BASE_TABLE_H
#define SP_BASE_TABLE_H

#include <stdbool.h>
#include <stdio.h>

struct sp_table;

/* columns: number of columns; headers may be NULL. */
int sp_table_new(struct sp_table **out, size_t columns, const char *const *headers);
int sp_table_row(struct sp_table *table, const char *const *cells);

/* colour of a whole cell by its text: returns an SGR sequence such as "32" or NULL. */
typedef const char *sp_table_paint(size_t column, const char *cell);
void sp_table_print(const struct sp_table *table, FILE *out, bool aligned, sp_table_paint *paint);
void sp_table_free(struct sp_table *table);

#endif
