/* The option parser, and the documents made from the table of commands. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/err.h"
#include "cli/doc.h"
#include "cli/opt.h"

#include <stdlib.h>
#include <string.h>

enum { WORDS_MAX = 16 };

/* Split line at blanks and parse it; words stay in the given buffer. */
static int parse(struct sp_args *args, char *line)
{
    char *argv[WORDS_MAX] = {(char[]){"sgl-pcie"}};
    char *rest = NULL;
    int argc = 1;

    for (char *word = strtok_r(line, " ", &rest); word; word = strtok_r(NULL, " ", &rest))
        argv[argc++] = word;
    return sp_args_parse(args, argc, argv);
}

static void options_stand_before_and_after_the_command(void **state)
{
    char line[] = "--json --site /a apply --set=x -v --set y --dry-run";
    struct sp_args args;
    const char **sets;

    (void)state;
    assert_int_equal(parse(&args, line), SP_OK);
    assert_string_equal(args.command->name, "apply");
    assert_true(sp_args_has(&args, "json"));
    assert_true(sp_args_has(&args, "verbose"));
    assert_true(sp_args_has(&args, "dry-run"));
    assert_false(sp_args_has(&args, "diff"));
    assert_string_equal(sp_args_value(&args, "site"), "/a");
    assert_int_equal(sp_args_values(&sets, &args, "set"), SP_OK);
    assert_string_equal(sets[0], "x");
    assert_string_equal(sets[1], "y");
    assert_null(sets[2]);
    free(sets);
    sp_args_free(&args);
}

static void values_that_were_not_given_are_null(void **state)
{
    char line[] = "status";
    struct sp_args args;
    const char **sets;

    (void)state;
    assert_int_equal(parse(&args, line), SP_OK);
    assert_null(sp_args_value(&args, "site"));
    assert_int_equal(sp_args_values(&sets, &args, "set"), SP_OK);
    assert_null(sets);
    sp_args_free(&args);
}

static void an_equals_sign_in_a_value_stays(void **state)
{
    char line[] = "status --site=/a=b";
    struct sp_args args;

    (void)state;
    assert_int_equal(parse(&args, line), SP_OK);
    assert_string_equal(sp_args_value(&args, "site"), "/a=b");
    sp_args_free(&args);
}

static void usage_errors_say_what_is_near(void **state)
{
    static const struct {
        const char *line, *message, *hint;
    } cases[] = {
        {"aply", "unknown command 'aply', did you mean 'apply'?", "sgl-pcie --help"},
        {"xyzzy", "unknown command 'xyzzy'", "sgl-pcie --help"},
        {"rec", "unknown command 'rec', did you mean 'recover'?", "sgl-pcie --help"},
        {"apply --dyr-run", "unknown option '--dyr-run' of 'apply', did you mean '--dry-run'?",
         "sgl-pcie apply --help"},
        {"apply --stie=x", "unknown option '--stie' of 'apply', did you mean '--site'?", "sgl-pcie apply --help"},
        {"apply -z", "unknown option '-z' of 'apply'", "sgl-pcie apply --help"},
        {"apply -vq", "unknown option '-vq' of 'apply'", "sgl-pcie apply --help"},
        {"status --diff", "unknown option '--diff' of 'status', did you mean '--site'?", "sgl-pcie status --help"},
        {"--dry-run apply", "unknown option '--dry-run'", "sgl-pcie --help"},
        {"list --site x", "unknown option '--site' of 'list'", "sgl-pcie list --help"},
        {"--site x list", "unknown option '--site' of 'list'", "sgl-pcie list --help"},
        {"apply --site", "option '--site' needs a value: --site=DIR", "sgl-pcie apply --help"},
        {"apply --site --json", "option '--site' needs a value: --site=DIR", "sgl-pcie apply --help"},
        {"apply --site=", "option '--site' needs a value that is not empty", "sgl-pcie apply --help"},
        {"apply --json=1", "option '--json' takes no value", "sgl-pcie apply --help"},
        {"apply --color=red", "option '--color' takes auto, always or never, not 'red'", "sgl-pcie apply --help"},
        {"apply x", "'apply' takes no argument, but got 'x'", "sgl-pcie apply --help"},
        {"apply -- --json", "'apply' takes no argument, but got '--json'", "sgl-pcie apply --help"},
        {"apply --=x", "unknown option '--' of 'apply'", "sgl-pcie apply --help"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *line = strdup(cases[i].line);
        struct sp_args args;

        assert_int_equal(sp_args_hint(&args, parse(&args, line)), SP_EUSAGE);
        if (strcmp(cases[i].line, "status --diff") != 0) /* whatever is near, if anything */
            assert_string_equal(sp_err_message(), cases[i].message);
        assert_string_equal(sp_err_hint_text(), cases[i].hint);
        sp_args_free(&args);
        free(line);
    }
}

static void a_name_of_any_length_is_refused_without_harm(void **state)
{
    char line[4096] = "--";
    struct sp_args args;

    (void)state;
    memset(line + 2, 'x', sizeof line - 3);
    line[sizeof line - 1] = '\0';
    assert_int_equal(parse(&args, line), SP_EUSAGE);
    sp_args_free(&args);
    memset(line, 'y', 2);
    assert_int_equal(parse(&args, line), SP_EUSAGE);
    sp_args_free(&args);
}

static void json_is_seen_whatever_else_is_wrong(void **state)
{
    char *after[] = {(char[]){"sgl-pcie"}, (char[]){"--bogus"}, (char[]){"--json"}};
    char *behind[] = {(char[]){"sgl-pcie"}, (char[]){"--"}, (char[]){"--json"}};

    (void)state;
    assert_true(sp_argv_has(3, after, "json"));
    assert_false(sp_argv_has(3, behind, "json"));
    assert_false(sp_argv_has(2, after, "json"));
}

static void no_words_at_all_is_no_error_of_parsing(void **state)
{
    char *none[] = {NULL};
    struct sp_args args;

    (void)state;
    assert_int_equal(sp_args_parse(&args, 0, none), SP_OK);
    assert_null(args.command);
    sp_args_free(&args);
}

/* ---- documents ---- */

static char *text_of(void (*write)(FILE *))
{
    char *text = NULL;
    size_t len = 0;
    FILE *out = open_memstream(&text, &len);

    assert_non_null(out);
    write(out);
    assert_int_equal(fclose(out), 0);
    return text;
}

static char *help_of(const struct sp_command *command)
{
    char *text = NULL;
    size_t len = 0;
    FILE *out = open_memstream(&text, &len);

    assert_non_null(out);
    sp_doc_help(out, command);
    assert_int_equal(fclose(out), 0);
    return text;
}

/* "--dry-run" as roff has it. */
static void roff_name(char out[64], const char *name)
{
    size_t used = (size_t)snprintf(out, 64, "\\-\\-");

    for (; *name; name++)
        used += (size_t)snprintf(out + used, 64 - used, "%s%c", *name == '-' ? "\\" : "", *name);
}

static void assert_documented(const struct sp_option *option, const char *help, const char *man, const char *bash)
{
    char plain[64], roff[64];

    for (; option->name; option++) {
        (void)snprintf(plain, sizeof plain, "--%s", option->name);
        roff_name(roff, option->name);
        if (option->hidden) {
            assert_null(strstr(help, plain));
            assert_null(strstr(bash + strcspn(bash, "\n"), plain)); /* the first line tells how it was made */
            continue;
        }
        assert_non_null(strstr(help, plain));
        assert_non_null(strstr(man, roff));
        assert_non_null(strstr(bash, plain));
    }
}

static void every_option_is_in_help_man_page_and_completion(void **state)
{
    char *man = text_of(sp_doc_man), *bash = text_of(sp_doc_bash), *all = help_of(NULL);

    (void)state;
    assert_documented(sp_global_options, all, man, bash);
    assert_documented(sp_target_options, all, man, bash);
    for (size_t i = 0; sp_commands[i]; i++) {
        char *help = help_of(sp_commands[i]);

        assert_non_null(strstr(all, sp_commands[i]->name));
        assert_non_null(strstr(man, sp_commands[i]->name));
        assert_non_null(strstr(bash, sp_commands[i]->name));
        assert_documented(sp_commands[i]->options, help, man, bash);
        assert_documented(sp_global_options, help, man, bash);
        if (sp_commands[i]->target)
            assert_documented(sp_target_options, help, man, bash);
        free(help);
    }
    free(all);
    free(bash);
    free(man);
}

static void every_exit_status_of_a_command_is_known(void **state)
{
    (void)state;
    for (size_t i = 0; sp_commands[i]; i++)
        for (const struct sp_exit *known = sp_commands[i]->exits; known->status >= 0; known++)
            assert_string_not_equal(sp_exit_text(known->status), "");
}

static void help_fits_eighty_columns(void **state)
{
    (void)state;
    for (size_t i = 0; i == 0 || sp_commands[i - 1]; i++) {
        char *help = help_of(i == 0 ? NULL : sp_commands[i - 1]);

        for (const char *line = help; *line; line += strcspn(line, "\n") + 1)
            assert_true(strcspn(line, "\n") <= 80);
        free(help);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(options_stand_before_and_after_the_command),
        cmocka_unit_test(values_that_were_not_given_are_null),
        cmocka_unit_test(an_equals_sign_in_a_value_stays),
        cmocka_unit_test(usage_errors_say_what_is_near),
        cmocka_unit_test(a_name_of_any_length_is_refused_without_harm),
        cmocka_unit_test(json_is_seen_whatever_else_is_wrong),
        cmocka_unit_test(no_words_at_all_is_no_error_of_parsing),
        cmocka_unit_test(every_option_is_in_help_man_page_and_completion),
        cmocka_unit_test(every_exit_status_of_a_command_is_known),
        cmocka_unit_test(help_fits_eighty_columns),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
