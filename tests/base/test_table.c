#include "base/err.h"
#include "base/table.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const char *const headers[] = {"file", "state", "note"};

static struct sp_table *sample(void)
{
    static const char *const rows[][3] = {
        {"a.py", "pristine", ""}, {"l\xc3\xa4nger.py", "drifted", "x"}, {"b", NULL, NULL}};
    struct sp_table *table;

    assert_int_equal(sp_table_new(&table, 3, headers), 0);
    for (int i = 0; i < 3; i++)
        assert_int_equal(sp_table_row(table, rows[i]), 0);
    return table;
}

static void assert_prints(struct sp_table *table, bool aligned, sp_table_paint *paint, const char *expected)
{
    char *text = NULL;
    size_t len;
    FILE *out = open_memstream(&text, &len);

    assert_non_null(out);
    sp_table_print(table, out, aligned, paint);
    fclose(out);
    assert_string_equal(text, expected);
    free(text);
    sp_table_free(table);
}

/* A name may hold an order to the terminal: ESC, a carriage return, a C1 character of UTF-8. */
static void names_give_no_orders(void **state)
{
    static const char *const row[] = {"a\033[2Jb\r", "\302\233c\302\240", "d\ne\177"};
    struct sp_table *table;

    (void)state;
    assert_int_equal(sp_table_new(&table, 3, NULL), 0);
    assert_int_equal(sp_table_row(table, row), 0);
    assert_prints(table, false, NULL, "a?[2Jb?  ??c\xc2\xa0  d?e?\n");
    (void)sp_err(SP_EFAIL, "cannot read '%s'\nat all", row[0]);
    assert_string_equal(sp_err_message(), "cannot read 'a?[2Jb?'\nat all");
    (void)sp_err_hint(SP_EFAIL, "rm '%s'", row[2]);
    assert_string_equal(sp_err_hint_text(), "rm 'd\ne?'");
}

static void columns_line_up_by_characters_not_bytes(void **state)
{
    (void)state;
    assert_prints(sample(), true, NULL,
                  "file       state     note\n"
                  "a.py       pristine\n"
                  "l\xc3\xa4nger.py  drifted   x\n"
                  "b\n");
}

static void plain_lines_have_no_padding_nor_trailing_blanks(void **state)
{
    (void)state;
    assert_prints(sample(), false, NULL, "file  state  note\na.py  pristine\nl\xc3\xa4nger.py  drifted  x\nb\n");
}

static const char *red_if_drifted(size_t column, const char *cell)
{
    return column == 1 && strcmp(cell, "drifted") == 0 ? "31" : NULL;
}

static void colour_does_not_shift_columns(void **state)
{
    (void)state;
    assert_prints(sample(), true, red_if_drifted,
                  "file       state     note\n"
                  "a.py       pristine\n"
                  "l\xc3\xa4nger.py  \033[31mdrifted\033[0m   x\n"
                  "b\n");
}

static void an_empty_table_prints_nothing(void **state)
{
    struct sp_table *table;

    (void)state;
    assert_int_equal(sp_table_new(&table, 2, NULL), 0);
    assert_prints(table, true, NULL, "");
    sp_table_free(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_give_no_orders),
        cmocka_unit_test(columns_line_up_by_characters_not_bytes),
        cmocka_unit_test(plain_lines_have_no_padding_nor_trailing_blanks),
        cmocka_unit_test(colour_does_not_shift_columns),
        cmocka_unit_test(an_empty_table_prints_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
