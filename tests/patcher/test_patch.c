/* One patch in memory: what is not exactly ours is refused, whatever the engine would make of it. */
#include "base/err.h"
#include "patcher/patch.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static const char path[] = "pkg/module.py";
static const char before[] = "one\ntwo\nthree\nfour\nfive\n";
static const char after[] = "one\ntwo\n2.5\nthree\nfive\nsix";

struct fixture {
    struct sp_buf in, out, patch;
    struct sp_oid pre, post;
};

static void make(struct fixture *f, const char *header, const char *index_mode, const char *body)
{
    memset(f, 0, sizeof *f);
    assert_int_equal(sp_buf_set(&f->in, before, sizeof before - 1), 0);
    assert_int_equal(sp_blob_id(&f->pre, before, sizeof before - 1), 0);
    assert_int_equal(sp_blob_id(&f->post, after, sizeof after - 1), 0);
    assert_int_equal(sp_buf_printf(&f->patch, "%sindex %s..%s%s\n--- a/%s\n+++ b/%s\n%s", header, f->pre.hex,
                                   f->post.hex, index_mode, path, path, body),
                     0);
}

static void drop(struct fixture *f)
{
    sp_buf_free(&f->in);
    sp_buf_free(&f->out);
    sp_buf_free(&f->patch);
}

static const char good_header[] = "diff --git a/pkg/module.py b/pkg/module.py\n";
static const char good_body[] =
    "@@ -2,4 +2,5 @@ context\n two\n+2.5\n three\n-four\n five\n+six\n\\ No newline at end of file\n";

static int run(struct fixture *f, int reverse)
{
    return sp_patch_run(&f->out, &f->in, path, &f->pre, &f->post, &f->patch, reverse);
}

static void there_and_back(void **state)
{
    struct fixture f;

    (void)state;
    make(&f, good_header, " 100644", good_body);
    assert_int_equal(run(&f, 0), 0);
    assert_int_equal(f.out.len, sizeof after - 1);
    assert_memory_equal(f.out.data, after, f.out.len);
    sp_buf_free(&f.in);
    f.in = f.out;
    f.out = (struct sp_buf)SP_BUF_INIT;
    assert_int_equal(run(&f, 1), 0);
    assert_int_equal(f.out.len, sizeof before - 1);
    assert_memory_equal(f.out.data, before, f.out.len);
    drop(&f);
}

static void inverting_twice_is_nothing(void **state)
{
    struct fixture f;
    struct sp_buf once = SP_BUF_INIT, twice = SP_BUF_INIT;

    (void)state;
    make(&f, good_header, " 100644", good_body);
    assert_int_equal(sp_patch_invert(&once, &f.patch), 0);
    assert_int_equal(sp_patch_invert(&twice, &once), 0);
    assert_string_not_equal(once.data, f.patch.data);
    assert_string_equal(twice.data, f.patch.data);
    sp_buf_free(&once);
    sp_buf_free(&twice);
    drop(&f);
}

static void other_bytes_are_drift(void **state)
{
    struct fixture f;

    (void)state;
    make(&f, good_header, " 100644", good_body);
    f.in.data[0] = 'O';
    assert_int_equal(run(&f, 0), SP_EDRIFT);
    assert_null(f.out.data);
    drop(&f);
}

/* A patch that applies, but does not give the promised bytes, must not count. */
static void another_result_is_refused(void **state)
{
    struct fixture f;

    (void)state;
    make(&f, good_header, " 100644",
         "@@ -2,4 +2,5 @@\n two\n+2.6\n three\n-four\n five\n+six\n\\ No newline at end of file\n");
    assert_int_equal(run(&f, 0), SP_EFAIL);
    assert_null(f.out.data);
    drop(&f);
}

/* Each of these is accepted by git, by libgit2, or by both. */
static void hostile_shapes_are_refused(void **state)
{
    static const struct {
        const char *header, *mode, *body;
    } bad[] = {
        {"diff --git a/../outside b/../outside\n", " 100644", good_body},
        {"diff --git a//etc/passwd b//etc/passwd\n", " 100644", good_body},
        {"diff --git a/pkg/module.py b/pkg/other.py\nsimilarity index 90%\nrename from pkg/module.py\nrename to "
         "pkg/other.py\n",
         " 100644", good_body},
        {"diff --git a/pkg/module.py b/pkg/module.py\nold mode 100644\nnew mode 100755\n", "", good_body},
        {"diff --git a/pkg/module.py b/pkg/module.py\nold mode 100644\nnew mode 120000\n", "", good_body},
        {"diff --git a/pkg/module.py b/pkg/module.py\ndeleted file mode 100644\n", "", good_body},
        {"diff --git a/pkg/module.py b/pkg/module.py\nnew file mode 100644\n", "", good_body},
        {"", " 100644", good_body},
        {"diff --git a/pkg/module.py b/pkg/module.py\n", " 100644",
         "@@ -2,1000000000 +2,1000000001 @@\n two\n+2.5\n three\n"},
        {"diff --git a/pkg/module.py b/pkg/module.py\n", " 100644", "@@ -99999999999999999999,1 +1,1 @@\n two\n"},
        {"diff --git a/pkg/module.py b/pkg/module.py\n", " 100644", "@@ -0,0 +1,99 @@\n"},
        {"diff --git a/pkg/module.py b/pkg/module.py\n", " 100644", ""},
        {"diff --git a/pkg/module.py b/pkg/module.py\n", " 100644", "Binary files a/x and b/x differ\n"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct fixture f;

        make(&f, bad[i].header, bad[i].mode, bad[i].body);
        if (run(&f, 0) != SP_EFAIL)
            fail_msg("shape %zu was taken", i);
        assert_null(f.out.data);
        drop(&f);
    }
}

static void two_files_in_a_patch_are_refused(void **state)
{
    struct fixture f;
    struct sp_buf twice = SP_BUF_INIT;

    (void)state;
    make(&f, good_header, " 100644", good_body);
    assert_int_equal(sp_buf_append(&twice, f.patch.data, f.patch.len), 0);
    assert_int_equal(sp_buf_append(&twice, f.patch.data, f.patch.len), 0);
    sp_buf_free(&f.patch);
    f.patch = twice;
    assert_int_equal(run(&f, 0), SP_EFAIL);
    drop(&f);
}

static void short_ids_are_refused(void **state)
{
    struct fixture f;
    char *dots;

    (void)state;
    make(&f, good_header, " 100644", good_body);
    dots = strstr(f.patch.data, "..");
    memmove(dots - 33, dots, strlen(dots) + 1);
    f.patch.len -= 33;
    assert_int_equal(run(&f, 0), SP_EFAIL);
    assert_int_equal(sp_patch_invert(&f.out, &f.patch), SP_EFAIL);
    drop(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(there_and_back),
        cmocka_unit_test(inverting_twice_is_nothing),
        cmocka_unit_test(other_bytes_are_drift),
        cmocka_unit_test(another_result_is_refused),
        cmocka_unit_test(hostile_shapes_are_refused),
        cmocka_unit_test(two_files_in_a_patch_are_refused),
        cmocka_unit_test(short_ids_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
