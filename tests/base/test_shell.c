/* Quoting for the shell, as sh itself reads it. */
#include "base/shell.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

/* What the shell makes of one word. */
static void assert_word(const char *text)
{
    char word[SP_QUOTED_MAX], line[SP_QUOTED_MAX + 16], back[PATH_MAX + 1];
    FILE *shell;
    size_t len;

    snprintf(line, sizeof line, "printf %%s %s", sp_shell_quote(word, text));
    shell = popen(line, "r");
    assert_non_null(shell);
    len = fread(back, 1, sizeof back - 1, shell);
    back[len] = '\0';
    assert_int_equal(pclose(shell), 0);
    assert_string_equal(back, text);
}

static void a_quote_in_a_path_does_not_break_the_line(void **state)
{
    (void)state;
    assert_word("/home/o'neill/venv");
    assert_word("'");
    assert_word("''$(false)`false`\"\\ ;&|*?~#\n'");
    assert_word("");
}

static void a_path_without_one_reads_as_before(void **state)
{
    char word[SP_QUOTED_MAX];

    (void)state;
    assert_string_equal(sp_shell_quote(word, "/opt/a b"), "'/opt/a b'");
}

static void a_text_that_is_too_long_is_cut_within_the_quotes(void **state)
{
    static char text[2 * SP_QUOTED_MAX], word[SP_QUOTED_MAX];
    size_t len;

    (void)state;
    memset(text, '\'', PATH_MAX - 1); /* the longest path fits */
    assert_word(text);
    memset(text, '\'', sizeof text - 1);
    len = strlen(sp_shell_quote(word, text));
    assert_true(len < sizeof word);
    assert_int_equal(len % 4, 2);
    memset(text, 'x', sizeof text - 1);
    len = strlen(sp_shell_quote(word, text));
    assert_true(len < sizeof word);
    assert_int_equal(word[len - 1], '\'');
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_quote_in_a_path_does_not_break_the_line),
        cmocka_unit_test(a_path_without_one_reads_as_before),
        cmocka_unit_test(a_text_that_is_too_long_is_cut_within_the_quotes),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
