/* Which GPUs: every form of --gpus and of CUDA_VISIBLE_DEVICES. */
#include "base/err.h"
#include "verify/machine/choose.h"
#include "verify/machine/nvml.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static int setup(void **state)
{
    static const char *const uuids[] = {
        "GPU-aaaa1111-0000-0000-0000-000000000000", "GPU-aaab2222-0000-0000-0000-000000000000",
        "GPU-cccc3333-0000-0000-0000-000000000000", "GPU-dddd4444-0000-0000-0000-000000000000"};
    struct sp_recording *recording = calloc(1, sizeof *recording);

    sp_recording_init(recording);
    for (size_t i = 0; i < 4; i++) {
        struct sp_rec_gpu *gpu;
        void *item;
        char bdf[32];

        assert_int_equal(sp_recording_add(&item, recording, "gpus"), SP_OK);
        gpu = item;
        (void)snprintf(bdf, sizeof bdf, "0000:%zu1:00.0", i + 1);
        gpu->bdf = strdup(bdf);
        gpu->uuid = strdup(uuids[i]);
        gpu->device = 0x2204;
    }
    *state = recording;
    return 0;
}

static int teardown(void **state)
{
    sp_recording_free(*state);
    free(*state);
    return 0;
}

/* "0,2" for the numbers chosen, "!N" for a code. */
static void expect(void **state, const char *list, const char *visible, const char *wanted)
{
    struct sp_choice choice;
    char found[128] = "";
    int rc = sp_choose_gpus(&choice, *state, list, visible, NULL);

    if (rc < 0)
        (void)snprintf(found, sizeof found, "!%d", -rc);
    for (size_t i = 0; rc == SP_OK && i < choice.count; i++)
        (void)snprintf(found + strlen(found), sizeof found - strlen(found), "%s%zu", i ? "," : "", choice.number[i]);
    if (strcmp(found, wanted) != 0)
        fail_msg("--gpus %s, variable %s: '%s', not '%s'", list ? list : "-", visible ? visible : "-", found, wanted);
}

static void test_option(void **state)
{
    expect(state, NULL, NULL, "0,1,2,3");
    expect(state, "all", "0", "0,1,2,3");
    expect(state, "0,2", "1", "0,2");
    expect(state, "3,0", NULL, "3,0");
    expect(state, "0-2", NULL, "0,1,2");
    expect(state, " 1 , 2 ", NULL, "1,2");
    expect(state, "GPU-cccc", NULL, "2");
    expect(state, "gpu-CCCC3333,0", NULL, "2,0");
    expect(state, "0000:21:00.0,31:00.0", NULL, "1,2");
    expect(state, "00000000:21:00.0", NULL, "1"); /* as nvidia-smi writes it */
    expect(state, "GPU-aaaa1111-0000-0000-0000-000000000000,GPU-aaab", NULL, "0,1");
}

static void test_option_refuses(void **state)
{
    static const char *const wrong[] = {"4",    "",    "0,",  "0,0", "0,GPU-aaaa", "GPU-aaa", "GPU-ffff",
                                        "x",    "2-1", "0-9", "-1",  "1.5",        "0x1",     "99999999999999999999",
                                        "GPU-", "0;1", "0-"};

    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        expect(state, wrong[i], NULL, "!2");
    expect(state, "MIG-12345678", NULL, "!5");
}

static void test_a_driver_that_fails_is_told_before_a_list(void **state)
{
    struct sp_recording *recording = *state;

    recording->driver.nvml_error = strdup("NVML does not start");
    expect(state, "0,1", NULL, "0,1"); /* as sysfs counts them */
    expect(state, "GPU-ffff", NULL, "!5");
    assert_string_equal(sp_err_message(), "4 NVIDIA GPUs are on the bus, but NVML does not start");
    free(recording->driver.nvml_error);
    recording->driver.nvml_error = strdup(SP_NVML_HANGS);
    expect(state, "GPU-ffff", NULL, "!8");
    expect(state, "0,0", NULL, "!2");
}

static void test_variable(void **state)
{
    expect(state, NULL, "2,0", "2,0");
    expect(state, NULL, "", "");
    expect(state, NULL, "-1", "");
    expect(state, NULL, "NoDevFiles", "");
    expect(state, NULL, "0,9,1", "0"); /* what follows one that is not there is not seen */
    expect(state, NULL, "0,-1,1", "0");
    expect(state, NULL, "0,1,0", ""); /* one twice hides all */
    expect(state, NULL, "GPU-cccc,GPU-aaab", "2,1");
    expect(state, NULL, "GPU-aaa", ""); /* two begin like this */
    expect(state, NULL, "GPU-dddd4444-0000-0000-0000-000000000000", "3");
    expect(state, NULL, " 1, 3", "1,3");
    expect(state, NULL, "MIG-GPU-aaaa/1/0", "!5");
}

static void test_order(void **state)
{
    struct sp_recording *recording = *state;
    struct sp_choice choice;

    assert_int_equal(sp_choose_gpus(&choice, recording, NULL, "0,1", NULL), SP_OK);
    assert_false(choice.reordered);
    recording->gpus[3].device = 0x2b85;
    assert_int_equal(sp_choose_gpus(&choice, recording, NULL, "0,1", NULL), SP_OK);
    assert_true(choice.reordered);
    assert_int_equal(sp_choose_gpus(&choice, recording, NULL, "0,1", "PCI_BUS_ID"), SP_OK);
    assert_false(choice.reordered);
    assert_int_equal(sp_choose_gpus(&choice, recording, NULL, "GPU-cccc", NULL), SP_OK);
    assert_false(choice.reordered);
    assert_true(choice.uuids);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_option, setup, teardown),
        cmocka_unit_test_setup_teardown(test_option_refuses, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_driver_that_fails_is_told_before_a_list, setup, teardown),
        cmocka_unit_test_setup_teardown(test_variable, setup, teardown),
        cmocka_unit_test_setup_teardown(test_order, setup, teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
