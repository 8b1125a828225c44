#include "base/err.h"
#include "base/json.h"
#include "tree.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static void assert_refuses(const char *text, const char *said)
{
    json_t *root;

    assert_int_equal(sp_json_load(&root, text, strlen(text), "x.json"), SP_EFAIL);
    assert_null(root);
    assert_said("x.json");
    assert_said(said);
}

static void sloppy_json_is_refused(void **state)
{
    json_t *root;

    (void)state;
    assert_refuses("", "line 1");
    assert_refuses("{", "line 1");
    assert_refuses("{\"a\": 1, \"a\": 2}", "duplicate");
    assert_refuses("{} {}", "end of file");
    assert_refuses("[1]", "not a JSON object");
    assert_refuses("{\"a\": \"\xff\"}", "decode byte");
    assert_refuses("{\"a\": \"\\u0000\"}", "not allowed");
    assert_int_equal(sp_json_load(&root, "{}\0", 3, "x.json"), SP_EFAIL);
}

static void deep_nesting_does_not_use_up_the_stack(void **state)
{
    static char text[100000];
    json_t *root;

    (void)state;
    memset(text, '[', sizeof text - 1);
    assert_refuses(text, "nested");
    assert_int_equal(sp_json_load(&root, "{\"a\": \"[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[\\\"[[[\"}", 52, "x"), 0);
    json_decref(root);
}

static void a_wrong_field_is_named(void **state)
{
    static const char text[] = "{\"n\": 5, \"s\": \"x\", \"b\": true, \"l\": [1, 2], \"z\": null, \"o\": {}}";
    static const char *const some[] = {"n", "s", "b", NULL};
    const char *string;
    json_int_t number;
    json_t *root, *value;
    bool truth;

    (void)state;
    assert_int_equal(sp_json_load(&root, text, strlen(text), "x"), 0);
    assert_int_equal(sp_json_string(&string, root, "s"), 0);
    assert_string_equal(string, "x");
    assert_int_equal(sp_json_string(&string, root, "gone"), SP_EFAIL);
    assert_said("field 'gone' is missing");
    assert_int_equal(sp_json_string(&string, root, "n"), SP_EFAIL);
    assert_said("field 'n' is not a string");
    assert_int_equal(sp_json_opt_string(&string, root, "gone"), 0);
    assert_null(string);
    assert_int_equal(sp_json_opt_string(&string, root, "z"), 0);
    assert_int_equal(sp_json_opt_string(&string, root, "b"), SP_EFAIL);
    assert_int_equal(sp_json_integer(&number, root, "n", 0, 5), 0);
    assert_int_equal(number, 5);
    assert_int_equal(sp_json_integer(&number, root, "n", 0, 4), SP_EFAIL);
    assert_said("field 'n' is 5, not within 0 to 4");
    assert_int_equal(sp_json_integer(&number, root, "s", 0, 4), SP_EFAIL);
    assert_int_equal(sp_json_bool(&truth, root, "b"), 0);
    assert_true(truth);
    assert_int_equal(sp_json_bool(&truth, root, "n"), SP_EFAIL);
    assert_int_equal(sp_json_array(&value, root, "l", 2), 0);
    assert_int_equal(sp_json_array(&value, root, "l", 1), SP_EFAIL);
    assert_said("more than 1 items");
    assert_int_equal(sp_json_array(&value, root, "o", 1), SP_EFAIL);
    assert_int_equal(sp_json_object(&value, root, "o"), 0);
    assert_int_equal(sp_json_object(&value, root, "l"), SP_EFAIL);
    assert_int_equal(sp_json_only(root, some), SP_EFAIL);
    assert_said("is not known");
    json_decref(root);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sloppy_json_is_refused),
        cmocka_unit_test(deep_nesting_does_not_use_up_the_stack),
        cmocka_unit_test(a_wrong_field_is_named),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
