#include "base/err.h"
#include "base/journal.h"
#include "tree.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define OID_A "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
#define OID_B "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"
#define TEXT(schema, id, changes, made)                                                                                \
    "{\"schema\": \"" schema "\", \"id\": \"" id "\", \"command\": \"apply\", \"changes\": [" changes                  \
    "], \"made\": [" made "], \"pruned\": []}"
#define GOOD(changes, made)     TEXT("sgl-pcie-journal/1", "0123456789abcdef", changes, made)
#define CHANGE(path, pre, post) "{\"path\": \"" path "\", \"pre\": " pre ", \"post\": " post "}"
#define A                       "\"" OID_A "\""
#define B                       "\"" OID_B "\""

static void assert_refuses(const char *text, const char *said)
{
    struct sp_journal journal;

    assert_int_equal(sp_journal_parse(&journal, text, strlen(text)), SP_EFAIL);
    assert_int_equal(journal.count, 0);
    assert_null(journal.command);
    assert_said(said);
}

static void a_journal_cannot_lead_out_of_the_tree(void **state)
{
    (void)state;
    assert_refuses(GOOD(CHANGE("../x", A, B), ""), "path '../x' is not allowed");
    assert_refuses(GOOD(CHANGE("/etc/passwd", A, B), ""), "not allowed");
    assert_refuses(GOOD(CHANGE("a/../../b", A, B), ""), "not allowed");
    assert_refuses(GOOD(CHANGE("", A, B), ""), "not allowed");
    assert_refuses(GOOD(CHANGE("a\\u0000b", A, B), ""), "not valid JSON");
    assert_refuses(GOOD("", "\"../x\""), "field 'made', item 0");
    assert_refuses(GOOD("", "7"), "field 'made', item 0");
}

static void a_journal_cannot_name_its_own_files(void **state)
{
    (void)state;
    assert_refuses(GOOD(CHANGE(".sgl-pcie/journal.done", A, B), ""), "not allowed");
    assert_refuses(GOOD(CHANGE("a/.sgl-pcie-0123456789abcdef-0.new", A, B), ""), "not allowed");
    assert_true(sp_journal_may_change(".sgl-pcie/manifest.json"));
}

static void a_malformed_journal_is_refused_by_field(void **state)
{
    (void)state;
    assert_refuses("", "not valid JSON");
    assert_refuses("{}", "field 'schema' is missing");
    assert_refuses(TEXT("else/1", "0123456789abcdef", "", ""), "field 'schema' is 'else/1'");
    assert_refuses(TEXT("sgl-pcie-journal/1", "0123456789ABCDEF", "", ""), "field 'id'");
    assert_refuses(TEXT("sgl-pcie-journal/1", "../../../../../x", "", ""), "field 'id'");
    assert_refuses(GOOD("7", ""), "change 0: not an object");
    assert_refuses(GOOD(CHANGE("a", "null", "null"), ""), "neither 'pre' nor 'post'");
    assert_refuses(GOOD(CHANGE("a", "\"abc\"", B), ""), "field 'pre' is not a blob id");
    assert_refuses(GOOD(CHANGE("a", "1", B), ""), "field 'pre' is not a string");
    assert_refuses(GOOD(CHANGE("a", A, B) "," CHANGE("b", A, B) "," CHANGE("a", B, A), ""), "path 'a' occurs twice");
    assert_refuses(GOOD("{\"path\": \"a\", \"pre\": " A ", \"mode\": 7}", ""), "field 'mode' is not known");
}

static void a_newer_journal_is_named_as_such(void **state)
{
    (void)state;
    assert_refuses(TEXT("sgl-pcie-journal/2", "0123456789abcdef", "", ""), "its format is 'sgl-pcie-journal/2'");
}

static void what_is_written_is_what_is_read(void **state)
{
    static const char text[] =
        GOOD(CHANGE("a/\\u00e9 b.py", A, B) "," CHANGE("c", "null", B) "," CHANGE("d", A, "null"), "\"x\",\"x/y\"");
    struct sp_journal journal, again;
    struct sp_buf written = SP_BUF_INIT;

    (void)state;
    assert_int_equal(sp_journal_parse(&journal, text, strlen(text)), 0);
    assert_int_equal(sp_journal_format(&written, &journal), 0);
    assert_int_equal(sp_journal_parse(&again, written.data, written.len), 0);
    assert_int_equal(again.count, 3);
    assert_string_equal(again.id, "0123456789abcdef");
    assert_string_equal(again.command, "apply");
    assert_string_equal(again.changes[0].path, "a/\xc3\xa9 b.py");
    assert_string_equal(again.changes[1].pre.hex, "");
    assert_string_equal(again.changes[1].post.hex, OID_B);
    assert_string_equal(again.changes[2].post.hex, "");
    assert_int_equal(again.made.count, 2);
    assert_string_equal(again.made.item[1], "x/y");
    sp_buf_free(&written);
    sp_journal_free(&journal);
    sp_journal_free(&again);
}

static void ids_do_not_repeat(void **state)
{
    struct sp_journal a = {0}, b = {0};

    (void)state;
    assert_int_equal(sp_journal_new_id(&a), 0);
    assert_int_equal(sp_journal_new_id(&b), 0);
    assert_int_equal(strlen(a.id), SP_JOURNAL_ID_HEX);
    assert_string_not_equal(a.id, b.id);
}

static void assert_state(const struct tree *tree, enum sp_journal_state expected)
{
    enum sp_journal_state found;

    assert_int_equal(sp_journal_find(&found, tree->fd), 0);
    assert_int_equal(found, expected);
}

static void the_file_name_is_the_state(void **state)
{
    const struct tree *tree = *state;
    struct sp_journal journal = {.command = (char[]){"apply"}};

    assert_state(tree, SP_JOURNAL_NONE);
    assert_int_equal(sp_journal_new_id(&journal), 0);
    assert_int_equal(sp_journal_create(&journal, tree->fd), 0);
    assert_state(tree, SP_JOURNAL_STAGE);
    assert_int_equal(sp_journal_advance(tree->fd, SP_JOURNAL_STAGE, SP_JOURNAL_COMMIT), 0);
    assert_state(tree, SP_JOURNAL_COMMIT);
    assert_int_equal(sp_journal_remove(tree->fd, SP_JOURNAL_COMMIT), 0);
    assert_state(tree, SP_JOURNAL_NONE);
    assert_int_equal(tree_count(tree), 0);
}

static void an_existing_journal_is_not_overwritten(void **state)
{
    const struct tree *tree = *state;
    struct sp_journal journal = {.command = (char[]){"apply"}};

    assert_int_equal(sp_journal_new_id(&journal), 0);
    tree_put(tree, ".sgl-pcie/journal.stage", "of another host");
    assert_int_equal(sp_journal_create(&journal, tree->fd), SP_ECANNOT);
    assert_text(tree, ".sgl-pcie/journal.stage", "of another host");
    assert_false(tree_has(tree, ".sgl-pcie/journal.new"));
    tree_put(tree, ".sgl-pcie/journal.new", "being written");
    assert_int_equal(sp_journal_create(&journal, tree->fd), SP_ECANNOT);
    assert_text(tree, ".sgl-pcie/journal.new", "being written");
}

static void what_a_kill_left_is_seen(void **state)
{
    const struct tree *tree = *state;

    tree_mkdir(tree, ".sgl-pcie");
    assert_state(tree, SP_JOURNAL_NONE); /* a user may have deleted the manifest */
    tree_put(tree, ".sgl-pcie/manifest.json", "{}");
    assert_state(tree, SP_JOURNAL_NONE);
    tree_put(tree, ".sgl-pcie/journal.new", "{");
    assert_state(tree, SP_JOURNAL_LEFTOVER);
    tree_put(tree, ".sgl-pcie/journal.stage", "{");
    assert_state(tree, SP_JOURNAL_STAGE);
}

static void two_journals_are_not_guessed_between(void **state)
{
    const struct tree *tree = *state;
    enum sp_journal_state found;

    tree_put(tree, ".sgl-pcie/journal.commit", "{}");
    tree_put(tree, ".sgl-pcie/journal.abort", "{}");
    assert_int_equal(sp_journal_find(&found, tree->fd), SP_EINTERRUPTED);
    assert_said("are both there");
    assert_non_null(strstr(sp_err_hint_text(), "sgl-pcie recover --site '"));
    assert_non_null(strstr(sp_err_hint_text(), tree->path));
}

static void a_foreign_journal_says_what_to_do(void **state)
{
    const struct tree *tree = *state;
    struct sp_journal journal;

    tree_put(tree, ".sgl-pcie/journal.commit", "{\"schema\": \"other\"}");
    assert_int_equal(sp_journal_read(&journal, tree->fd, SP_JOURNAL_COMMIT), SP_EINTERRUPTED);
    assert_said("'.sgl-pcie/journal.commit' was not written by this tool");
    assert_said("field 'schema' is 'other'");
    assert_said("move it away");
}

/* A pipe would be waited for if it were opened to be read. */
static void what_is_no_file_says_what_to_do(void **state)
{
    const struct tree *tree = *state;
    struct sp_journal journal;
    enum sp_journal_state found;

    tree_mkdir(tree, ".sgl-pcie");
    assert_int_equal(mkfifoat(tree->fd, ".sgl-pcie/journal.commit", 0644), 0);
    tree_mkdir(tree, ".sgl-pcie/journal.done");
    tree_link(tree, "nowhere", ".sgl-pcie/journal.abort");
    alarm(10);
    for (int kind = SP_JOURNAL_COMMIT; kind <= SP_JOURNAL_DONE; kind++) {
        int rc = sp_journal_read(&journal, tree->fd, (enum sp_journal_state)kind);

        assert_int_equal(rc, SP_EINTERRUPTED);
        assert_said("is not a regular file");
        assert_said("move it out of .sgl-pcie");
    }
    alarm(0);
    tree_mkdir(tree, ".sgl-pcie/journal.new");
    assert_int_equal(sp_journal_remove(tree->fd, SP_JOURNAL_LEFTOVER), SP_EINTERRUPTED);
    assert_said("move it out of .sgl-pcie");
    assert_int_equal(renameat(tree->fd, ".sgl-pcie", tree->fd, "aside"), 0);
    tree_put(tree, ".sgl-pcie", "a file");
    assert_int_equal(sp_journal_find(&found, tree->fd), SP_ECANNOT);
    assert_said("move that file away");
}

static void a_linked_state_directory_is_not_followed(void **state)
{
    const struct tree *tree = *state;
    enum sp_journal_state found;
    struct sp_journal journal = {.command = (char[]){"apply"}};

    tree_mkdir(tree, "elsewhere");
    tree_link(tree, "elsewhere", ".sgl-pcie");
    assert_int_equal(sp_journal_find(&found, tree->fd), SP_ECANNOT);
    assert_said("'.sgl-pcie' is a symbolic link");
    assert_int_equal(sp_journal_new_id(&journal), 0);
    assert_int_equal(sp_journal_create(&journal, tree->fd), SP_ECANNOT);
    assert_int_equal(tree_count(tree), 2);
}

static void a_journal_too_large_is_not_read(void **state)
{
    const struct tree *tree = *state;
    struct sp_journal journal;
    struct sp_buf text = SP_BUF_INIT;

    assert_int_equal(sp_buf_printf(&text, "%s%*s", GOOD("", ""), SP_JOURNAL_MAX_BYTES, ""), 0);
    tree_put(tree, ".sgl-pcie/journal.stage", text.data);
    assert_int_equal(sp_journal_read(&journal, tree->fd, SP_JOURNAL_STAGE), SP_ECANNOT);
    assert_said("larger than");
    sp_buf_free(&text);
}

#define IN_TREE(test) cmocka_unit_test_setup_teardown(test, tree_setup, tree_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_journal_cannot_lead_out_of_the_tree),
        cmocka_unit_test(a_journal_cannot_name_its_own_files),
        cmocka_unit_test(a_malformed_journal_is_refused_by_field),
        cmocka_unit_test(a_newer_journal_is_named_as_such),
        cmocka_unit_test(what_is_written_is_what_is_read),
        cmocka_unit_test(ids_do_not_repeat),
        IN_TREE(the_file_name_is_the_state),
        IN_TREE(an_existing_journal_is_not_overwritten),
        IN_TREE(what_a_kill_left_is_seen),
        IN_TREE(two_journals_are_not_guessed_between),
        IN_TREE(a_foreign_journal_says_what_to_do),
        IN_TREE(what_is_no_file_says_what_to_do),
        IN_TREE(a_linked_state_directory_is_not_followed),
        IN_TREE(a_journal_too_large_is_not_read),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
