#include "base/table.h"

#include "base/clean.h"
#include "base/err.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

struct sp_table {
    size_t columns;
    size_t rows; /* the header row included */
    bool has_header;
    char **cells; /* rows * columns */
};

/* Characters of a UTF-8 text: bytes that do not continue one. */
static size_t width_of(const char *text)
{
    size_t width = 0;

    for (; *text; text++)
        width += ((unsigned char)*text & 0xC0) != 0x80;
    return width;
}

int sp_table_new(struct sp_table **out, size_t columns, const char *const *headers)
{
    struct sp_table *table = calloc(1, sizeof *table);
    int rc = SP_OK;

    *out = NULL;
    if (!table)
        return sp_err(SP_ECANNOT, "out of memory");
    table->columns = columns;
    table->has_header = headers != NULL;
    if (headers)
        rc = sp_table_row(table, headers);
    if (rc < 0)
        sp_table_free(table);
    else
        *out = table;
    return rc;
}

int sp_table_row(struct sp_table *table, const char *const *cells)
{
    size_t used = table->rows * table->columns;
    char **grown = realloc(table->cells, (used + table->columns) * sizeof *grown);

    if (!grown)
        return sp_err(SP_ECANNOT, "out of memory");
    table->cells = grown;
    for (size_t i = 0; i < table->columns; i++) {
        grown[used + i] = strdup(cells[i] ? cells[i] : "");
        if (!grown[used + i]) {
            while (i--)
                free(grown[used + i]);
            return sp_err(SP_ECANNOT, "out of memory");
        }
        (void)sp_clean(grown[used + i], false);
    }
    table->rows++;
    return SP_OK;
}

static size_t column_width(const struct sp_table *table, size_t column)
{
    size_t widest = 0;

    for (size_t row = 0; row < table->rows; row++) {
        size_t width = width_of(table->cells[row * table->columns + column]);

        if (width > widest)
            widest = width;
    }
    return widest;
}

/* The last non-empty cell of a row ends it: no trailing blanks. */
static size_t cells_to_print(const struct sp_table *table, char *const *cells)
{
    size_t count = table->columns;

    while (count && !cells[count - 1][0])
        count--;
    return count;
}

static void print_cell(FILE *out, const char *cell, const char *colour)
{
    if (colour)
        fprintf(out, "\033[%sm%s\033[0m", colour, cell);
    else
        fputs(cell, out);
}

void sp_table_print(const struct sp_table *table, FILE *out, bool aligned, sp_table_paint *paint)
{
    size_t *widths = aligned && table->columns ? calloc(table->columns, sizeof *widths) : NULL;

    for (size_t i = 0; widths && i < table->columns; i++)
        widths[i] = column_width(table, i);
    for (size_t row = 0; row < table->rows; row++) {
        char **cells = table->cells + row * table->columns;
        size_t count = cells_to_print(table, cells);
        bool header = row == 0 && table->has_header;

        for (size_t i = 0; i < count; i++) {
            size_t pad = widths && i + 1 < count ? widths[i] - width_of(cells[i]) : 0;

            print_cell(out, cells[i], paint && !header ? paint(i, cells[i]) : NULL);
            if (i + 1 < count)
                fprintf(out, "%*s", (int)(pad + 2), "");
        }
        fputc('\n', out);
    }
    free(widths); /* without memory for the widths the lines come out plain */
}

void sp_table_free(struct sp_table *table)
{
    if (!table)
        return;
    for (size_t i = 0; i < table->rows * table->columns; i++)
        free(table->cells[i]);
    free(table->cells);
    free(table);
}
