/* The pure parts of build/: what to compile for, how commands are filled in, what a record says. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/err.h"
#include "build/arch.h"
#include "build/compile.h"
#include "build/elf.h"
#include "build/parallel.h"
#include "build/record.h"

static char version[] = "13.0.88", nvcc[] = "/cuda/bin/nvcc", gcc[] = "gcc (GCC) 12.2.0", ld[] = "GNU ld 2.40";
static char folder[] = "/cuda/include", cudart[] = "/proc/self/exe";
static const struct sp_toolchain tools = {
    .nvcc = nvcc, .nvcc_version = version, .cc_version = gcc, .ld_version = ld, .include = folder, .cudart = cudart};
static const struct sp_archs known = {.number = {75, 80, 90, 120}, .count = 4};

/* ---- architectures ---- */

static void expect_archs(const char *list, const struct sp_gpus *gpus, const char *expected)
{
    char text[SP_ARCH_TEXT];
    struct sp_archs archs;

    assert_int_equal(sp_archs_choose(&archs, list, &known, gpus, &tools), SP_OK);
    sp_archs_text(text, &archs);
    assert_string_equal(text, expected);
}

static void expect_refusal(const char *list, const struct sp_gpus *gpus, int code, const char *word)
{
    struct sp_archs archs;

    assert_int_equal(sp_archs_choose(&archs, list, &known, gpus, &tools), code);
    assert_non_null(strstr(sp_err_message(), word));
    assert_string_not_equal(sp_err_hint_text(), "");
}

static void test_archs_of_a_list(void **state)
{
    const struct sp_gpus none = {.driver = false};

    (void)state;
    expect_archs("sm_90", &none, "sm_90");
    expect_archs("sm_120,sm_75,sm_120", &none,
                 "sm_75,sm_120"); /* sorted and each once: the order is part of the bytes */
    expect_archs("all", &none, "sm_75,sm_80,sm_90,sm_120");
}

static void test_archs_that_are_not_known(void **state)
{
    static const char *const lists[] = {"sm_91",  "90",        "sm_90,",           ",",         "sm_",
                                        "sm_090", "sm_90a",    "sm_90 ",           "ALL",       "",
                                        "sm_-90", "all,sm_90", "sm_9999999999999", "compute_90"};
    const struct sp_gpus none = {.driver = false};

    (void)state;
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++)
        expect_refusal(lists[i], &none, SP_EUSAGE, "sm_75,sm_80,sm_90,sm_120");
}

static void test_archs_of_the_gpus(void **state)
{
    const struct sp_gpus two = {.driver = true, .archs = {.number = {90, 120}, .count = 2}};
    const struct sp_gpus newer = {.driver = true, .archs = {.number = {90, 130}, .count = 2}};
    const struct sp_gpus no_driver = {.driver = false}, no_gpu = {.driver = true};

    (void)state;
    expect_archs(NULL, &two, "sm_90,sm_120");
    expect_archs("sm_75", &two, "sm_75");
    expect_refusal(NULL, &newer, SP_ECANNOT, "sm_130");
    expect_refusal(NULL, &no_driver, SP_ECANNOT, "no NVIDIA driver");
    expect_refusal(NULL, &no_gpu, SP_ECANNOT, "sees no GPU");
}

/* ---- commands ---- */

static void words(struct sp_words *out, const char *const *text)
{
    for (; *text; text++)
        assert_int_equal(sp_words_add(out, *text), SP_OK);
}

static char name_of_library[] = "libx.so", name_of_module[] = "y.so";

static void make_recipe(struct sp_recipe *recipe)
{
    struct sp_product *library = &recipe->product[0], *module = &recipe->product[1];

    *recipe = (struct sp_recipe){.count = 2, .oldest = 75};
    library->name = name_of_library;
    module->name = name_of_module;
    module->needs_python = true;
    words(&library->c, (const char *const[]){"a.c", NULL});
    words(&library->cu, (const char *const[]){"gpu/k.cu", NULL});
    words(&library->compile_c, (const char *const[]){"{cc}", "-I{cuda}/include", "{source}", "-o{object}", NULL});
    words(&library->compile_cu,
          (const char *const[]){"{nvcc}", "--frandom-seed={source}", "{gencode}", "{source}", "{object}", NULL});
    words(&library->link, (const char *const[]){"{cc}", "{objects}", "{library}", NULL});
    words(&module->c, (const char *const[]){"m.c", NULL});
    words(&module->compile_c, (const char *const[]){"{cc}", "{python}/include", "{source}", NULL});
    words(&module->link, (const char *const[]){"{cc}", "-o", "{output}", "{objects}", "{library}", NULL});
}

static void free_recipe(struct sp_recipe *recipe)
{
    for (size_t i = 0; i < recipe->count; i++) {
        sp_words_free(&recipe->product[i].c);
        sp_words_free(&recipe->product[i].cu);
        sp_words_free(&recipe->product[i].compile_c);
        sp_words_free(&recipe->product[i].compile_cu);
        sp_words_free(&recipe->product[i].link);
    }
}

static void expect_step(const struct sp_steps *steps, size_t index, const char *expected)
{
    char *text = sp_words_join(&steps->step[index].argv);

    assert_string_equal(text, expected);
    free(text);
}

static void test_commands_are_filled_in(void **state)
{
    struct sp_toolchain with_seed = tools;
    struct sp_recipe recipe;
    struct sp_steps steps;

    (void)state;
    with_seed.random_seed = true;
    make_recipe(&recipe);
    assert_int_equal(sp_steps_plan(&steps, &recipe, &with_seed, &known), SP_OK);
    assert_int_equal(steps.count, 5);
    expect_step(&steps, 0, "cc -I../cuda/include a.c -o../obj/libx.so/a.c.o");
    expect_step(&steps, 1,
                "nvcc -ccbin=cc --threads=4 --frandom-seed=gpu/k.cu -gencode=arch=compute_75,code=sm_75 "
                "-gencode=arch=compute_80,code=sm_80 -gencode=arch=compute_90,code=sm_90 "
                "-gencode=arch=compute_120,code=sm_120 gpu/k.cu ../obj/libx.so/gpu-k.cu.o");
    expect_step(&steps, 2, "cc ../obj/libx.so/a.c.o ../obj/libx.so/gpu-k.cu.o ../out/libx.so");
    expect_step(&steps, 3, "cc ../python/include m.c");
    expect_step(&steps, 4, "cc -o ../out/y.so ../obj/y.so/m.c.o ../out/libx.so");
    sp_steps_free(&steps);
    free_recipe(&recipe);
}

static void test_what_is_given_and_an_old_nvcc(void **state)
{
    const struct sp_archs one = {.number = {90}, .count = 1};
    struct sp_recipe recipe;
    struct sp_steps steps;

    (void)state;
    make_recipe(&recipe);
    recipe.product[1].is_given = true;
    assert_int_equal(sp_steps_plan(&steps, &recipe, &tools, &one), SP_OK);
    assert_int_equal(steps.count, 3);
    expect_step(&steps, 1, "nvcc -ccbin=cc -gencode=arch=compute_90,code=sm_90 gpu/k.cu ../obj/libx.so/gpu-k.cu.o");
    sp_steps_free(&steps);
    free_recipe(&recipe);
}

static void test_a_placeholder_that_is_not_known(void **state)
{
    struct sp_recipe recipe;
    struct sp_steps steps;

    (void)state;
    make_recipe(&recipe);
    words(&recipe.product[0].link, (const char *const[]){"-L{nowhere}", NULL});
    assert_int_equal(sp_steps_plan(&steps, &recipe, &tools, &known), SP_EFAIL);
    assert_non_null(strstr(sp_err_message(), "{nowhere}"));
    sp_steps_free(&steps);
    free_recipe(&recipe);
}

/* ---- the record ---- */

static void expect_match(const struct sp_buf *text, const json_t *plan, bool expected, size_t outputs)
{
    struct sp_files found = {NULL, 0};
    bool matches = !expected;

    assert_int_equal(sp_record_matches(&matches, &found, text, plan), SP_OK);
    assert_int_equal(matches, expected);
    assert_int_equal(found.count, outputs);
    sp_files_free(&found);
}

static void add_file(struct sp_files *files, const char *path, const char *text)
{
    struct sp_buf bytes = SP_BUF_INIT;

    assert_int_equal(sp_buf_set(&bytes, text, strlen(text)), SP_OK);
    assert_int_equal(sp_files_add(files, path, &bytes), SP_OK);
}

static void test_a_record_describes_its_plan_and_no_other(void **state)
{
    const struct sp_archs one = {.number = {90}, .count = 1};
    const struct sp_python python = {.include = NULL};
    struct sp_files inputs = {NULL, 0}, changed = {NULL, 0}, outputs = {NULL, 0};
    struct sp_steps steps = {NULL, 0};
    struct sp_buf text = SP_BUF_INIT;
    json_t *plan, *other, *edited;

    (void)state;
    add_file(&inputs, "a.c", "one");
    add_file(&changed, "a.c", "two");
    add_file(&outputs, "libx.so", "library");
    assert_int_equal(sp_record_plan(&plan, &steps, &inputs, &tools, &one, &python), SP_OK);
    assert_int_equal(sp_record_plan(&other, &steps, &inputs, &tools, &known, &python), SP_OK);
    assert_int_equal(sp_record_plan(&edited, &steps, &changed, &tools, &one, &python), SP_OK);
    assert_int_equal(sp_record_format(&text, plan, &outputs), SP_OK);
    (void)json_object_del(plan, "outputs");
    expect_match(&text, plan, true, 1);
    expect_match(&text, other, false, 1);
    expect_match(&text, edited, false, 1);
    json_decref(plan);
    json_decref(other);
    json_decref(edited);
    sp_buf_free(&text);
    sp_files_free(&inputs);
    sp_files_free(&changed);
    sp_files_free(&outputs);
}

static void test_a_record_that_cannot_be_read(void **state)
{
    static const char *const texts[] = {
        "", "{", "[]", "{}", "{\"outputs\": 1}", "{\"outputs\": [1]}", "{\"outputs\": [{\"path\": \"x\"}]}"};
    json_t *plan = json_object();
    struct sp_buf text = SP_BUF_INIT;

    (void)state;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        bool matches = true;

        assert_int_equal(sp_buf_set(&text, texts[i], strlen(texts[i])), SP_OK);
        assert_int_equal(sp_record_matches(&matches, NULL, &text, plan), SP_OK);
        assert_false(matches);
    }
    sp_buf_free(&text);
    json_decref(plan);
}

/* ---- small things ---- */

enum { JOBS = 100 };

static int count_or_fail(void *context, size_t index)
{
    int *done = context;

    done[index]++;
    return index == 30 || index == 60 ? sp_err_hint(sp_err(SP_EBUILD, "job %zu", index), "hint %zu", index) : 0;
}

static void test_jobs_are_done_once_and_the_first_error_counts(void **state)
{
    int done[JOBS] = {0};

    (void)state;
    assert_int_equal(sp_parallel(count_or_fail, done, 30, 8), SP_OK);
    for (size_t i = 0; i < 30; i++)
        assert_int_equal(done[i], 1);
    for (int threads = 8; threads > 0; threads -= 7) {
        memset(done, 0, sizeof done);
        assert_int_equal(sp_parallel(count_or_fail, done, JOBS, (size_t)threads), SP_EBUILD);
        assert_string_equal(sp_err_message(), "job 30");
        assert_string_equal(sp_err_hint_text(), "hint 30");
    }
    assert_int_equal(done[31], 0); /* after an error nothing new is begun */
    assert_int_equal(sp_parallel(count_or_fail, done, 0, 8), SP_OK);
}

static void test_first_lines(void **state)
{
    char out[64], small[8];

    (void)state;
    sp_first_lines(out, sizeof out, "one\n\ntwo\nthree\n", 2);
    assert_string_equal(out, "  one\n  two");
    sp_first_lines(out, sizeof out, "", 2);
    assert_string_equal(out, "");
    sp_first_lines(small, sizeof small, "one and a half\ntwo", 2);
    assert_string_equal(small, "  one a");
}

static void test_words_are_sorted_and_each_once(void **state)
{
    struct sp_words list = {NULL, 0};

    (void)state;
    sp_words_sort(&list);
    words(&list, (const char *const[]){"b", "a", "b", "c", "a", NULL});
    sp_words_sort(&list);
    assert_int_equal(list.count, 3);
    assert_string_equal(list.word[0], "a");
    assert_string_equal(list.word[2], "c");
    assert_null(list.word[3]);
    sp_words_free(&list);
}

static void test_the_section_of_a_byte(void **state)
{
    char section[SP_SECTION_MAX];
    char text[] = "no ELF file at all";

    (void)state;
    sp_elf_section(section, text, sizeof text, 3);
    assert_string_equal(section, "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_archs_of_a_list),
        cmocka_unit_test(test_archs_that_are_not_known),
        cmocka_unit_test(test_archs_of_the_gpus),
        cmocka_unit_test(test_commands_are_filled_in),
        cmocka_unit_test(test_what_is_given_and_an_old_nvcc),
        cmocka_unit_test(test_a_placeholder_that_is_not_known),
        cmocka_unit_test(test_a_record_describes_its_plan_and_no_other),
        cmocka_unit_test(test_a_record_that_cannot_be_read),
        cmocka_unit_test(test_jobs_are_done_once_and_the_first_error_counts),
        cmocka_unit_test(test_first_lines),
        cmocka_unit_test(test_words_are_sorted_and_each_once),
        cmocka_unit_test(test_the_section_of_a_byte),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
