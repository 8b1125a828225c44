/* The manifest and the flag file are read as if a stranger had written them. */
#include "base/err.h"
#include "patcher/flag.h"
#include "patcher/patchset.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define OID_A "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
#define OID_B "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"
#define SUM   "cccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccc"
#define TEXT                                                                                                           \
    "{\"path\":\"a/b.py\",\"pre\":\"" OID_A "\",\"post\":\"" OID_B "\",\"patch\":\"s/1.patch\",\"sha256\":\"" SUM "\"" \
    "}"
#define RELEASE "{\"version\":\"1.0\",\"files\":{\"a/b.py\":\"" OID_A "\"}}"
#define MANIFEST_OF(base, text, release)                                                                               \
    "{\"schema\":\"sgl-pcie-patches/1\",\"sets\":{\"s\":{\"revision\":1,\"summary\":\"x\"," base "\"texts\":[" text    \
    "],\"releases\":[" release "]}}}"
#define MANIFEST(text, release) MANIFEST_OF("", text, release)

static int parse(const char *json)
{
    struct sp_patchsets *sets = NULL;
    int rc = sp_patchsets_parse(&sets, json, strlen(json), "test");

    assert_true((rc == 0) == (sets != NULL));
    sp_patchsets_free(sets);
    return rc;
}

static void a_good_manifest_is_read(void **state)
{
    static const char json[] = MANIFEST(TEXT, RELEASE);
    struct sp_patchsets *sets = NULL;

    (void)state;
    assert_int_equal(sp_patchsets_parse(&sets, json, sizeof json - 1, "test"), 0);
    assert_int_equal(sets->count, 1);
    assert_string_equal(sp_patchset_find(sets, "s")->texts[0].patch.post.hex, OID_B);
    assert_string_equal(sets->sets[0].releases[0].files[0].pre.hex, OID_A);
    assert_null(sp_patchset_find(sets, "t"));
    assert_false(sets->sets[0].checkout);
    sp_patchsets_free(sets);
}

static void a_set_of_a_checkout_says_so(void **state)
{
    static const char json[] = MANIFEST_OF("\"base\":\"checkout\",", TEXT, RELEASE);
    struct sp_patchsets *sets = NULL;

    (void)state;
    assert_int_equal(sp_patchsets_parse(&sets, json, sizeof json - 1, "test"), 0);
    assert_true(sets->sets[0].checkout);
    sp_patchsets_free(sets);
}

static void malformed_manifests_are_refused(void **state)
{
    static const char *const bad[] = {
        "",
        "[]",
        "{",
        "{\"schema\":\"sgl-pcie-patches/2\",\"sets\":{\"s\":{}}}",
        "{\"schema\":\"sgl-pcie-patches/1\"}",
        "{\"schema\":\"sgl-pcie-patches/1\",\"sets\":{}}",
        "{\"schema\":\"sgl-pcie-patches/1\",\"sets\":{\"s\":7}}",
        "{\"schema\":\"sgl-pcie-patches/1\",\"schema\":\"sgl-pcie-patches/1\",\"sets\":{}}",
        MANIFEST_OF("\"base\":\"site\",", TEXT, RELEASE),
        MANIFEST_OF("\"base\":1,", TEXT, RELEASE),
        MANIFEST("7", RELEASE),
        MANIFEST(TEXT, "{\"version\":\"1.0\",\"files\":{}}"),
        MANIFEST(TEXT, "{\"files\":{\"a/b.py\":\"" OID_A "\"}}"),
        MANIFEST(TEXT, "{\"version\":\"1.0\",\"files\":{\"a/b.py\":\"" OID_B "\"}}"),
        MANIFEST(TEXT, "{\"version\":\"1.0\",\"files\":{\"../b.py\":\"" OID_A "\"}}"),
        MANIFEST("{\"path\":\"/etc/passwd\",\"pre\":\"" OID_A "\",\"post\":\"" OID_B
                 "\",\"patch\":\"p\",\"sha256\":\"" SUM "\"}",
                 RELEASE),
        MANIFEST("{\"path\":\"a/b.py\",\"pre\":\"abc\",\"post\":\"" OID_B "\",\"patch\":\"p\",\"sha256\":\"" SUM "\"}",
                 RELEASE),
        MANIFEST("{\"path\":\"a/b.py\",\"pre\":\"" OID_A "\",\"post\":\"" OID_B
                 "\",\"patch\":\"../p\",\"sha256\":\"" SUM "\"}",
                 RELEASE),
        MANIFEST("{\"path\":\"a/b.py\",\"pre\":\"" OID_A "\",\"post\":\"" OID_B "\",\"patch\":\"p\",\"sha256\":\"0\"}",
                 RELEASE),
        MANIFEST("{\"path\":\"a/b.py\",\"pre\":\"" OID_A "\",\"post\":\"" OID_B "\",\"patch\":\"p\",\"sha256\":\"" SUM
                 "\",\"old\":[{}]}",
                 RELEASE),
    };

    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if (parse(bad[i]) != SP_EFAIL)
            fail_msg("malformed manifest %zu was taken: %s", i, bad[i]);
}

static void a_patch_file_with_another_hash_is_refused(void **state)
{
    char dir[] = "/tmp/sgl-pcie-test-XXXXXX", file[64];
    struct sp_patchsets sets = {.dir = dir};
    char name[] = "p";
    struct sp_patch patch = {.file = name, .sha256 = SUM};
    struct sp_buf bytes = SP_BUF_INIT;
    FILE *out;

    (void)state;
    assert_non_null(mkdtemp(dir));
    (void)snprintf(file, sizeof file, "%s/p", dir);
    out = fopen(file, "w");
    assert_non_null(out);
    assert_true(fputs("patch\n", out) >= 0 && fclose(out) == 0);
    assert_int_equal(sp_patch_read(&bytes, &sets, &patch), SP_EFAIL);
    assert_non_null(strstr(sp_err_message(), SUM));
    sp_buf_free(&bytes);
    assert_int_equal(remove(file), 0);
    assert_int_equal(remove(dir), 0);
}

static void flag_files(void **state)
{
    static const struct {
        const char *json;
        int rc;
    } cases[] = {
        {"{\"schema\":\"sgl-pcie-flag/1\",\"value\":\"1\"}", 0},
        {"{\"schema\":\"sgl-pcie-flag/2\",\"value\":\"1\"}", SP_EFAIL},
        {"{\"schema\":\"sgl-pcie-flag/1\",\"value\":1}", SP_EFAIL},
        {"{\"schema\":\"sgl-pcie-flag/1\",\"value\":\"\"}", SP_EFAIL},
        {"{\"schema\":\"sgl-pcie-flag/1\",\"value\":\"0123456789abcdef\"}", SP_EFAIL},
        {"{\"schema\":\"sgl-pcie-flag/1\"}", SP_EFAIL},
        {"{\"schema\":\"sgl-pcie-flag/1\",\"value\":\"1\"", SP_EFAIL},
        {"", SP_EFAIL},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct sp_flag flag;

        assert_int_equal(sp_flag_parse(&flag, cases[i].json, strlen(cases[i].json)), cases[i].rc);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_good_manifest_is_read),
        cmocka_unit_test(a_set_of_a_checkout_says_so),
        cmocka_unit_test(malformed_manifests_are_refused),
        cmocka_unit_test(a_patch_file_with_another_hash_is_refused),
        cmocka_unit_test(flag_files),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
