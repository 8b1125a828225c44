/* Two that start together: one has the GPUs, and the other learns who. */
#include "base/err.h"
#include "tests/base/holder.h"
#include "verify/machine/claim.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum { GPUS = 3 };

static char root[] = "/tmp/sp-claim-XXXXXX";

/* A machine whose last GPU sysfs does not know. */
static void record(struct sp_recording *out)
{
    sp_recording_init(out);
    for (int i = 0; i < GPUS; i++) {
        void *item;

        assert_int_equal(sp_recording_add(&item, out, "gpus"), SP_OK);
        assert_true(asprintf(&((struct sp_rec_gpu *)item)->bdf, "0000:0%d:00.0", i) > 0);
    }
}

static int make_tree(void **state)
{
    char command[256];

    (void)state;
    if (!mkdtemp(root))
        return -1;
    (void)snprintf(command, sizeof command,
                   "mkdir -p %s/sys/bus/pci/devices/0000:00:00.0 %s/sys/bus/pci/devices/0000:01:00.0", root, root);
    return system(command);
}

static int remove_tree(void **state)
{
    char command[64];

    (void)state;
    (void)snprintf(command, sizeof command, "rm -r %s", root);
    return system(command);
}

static bool take(const void *choice)
{
    struct sp_recording recording;
    struct sp_claim claim;

    record(&recording);
    return sp_claim_make(&claim, &recording, choice, root) == SP_OK;
}

static void the_second_learns_who_has_them(void **state)
{
    const struct sp_choice all = {.number = {2, 1, 0}, .count = 3}, one = {.number = {1}, .count = 1};
    const pid_t child = holder_start(take, &one);
    struct sp_recording recording;
    struct sp_claim claim;

    (void)state;
    record(&recording);
    assert_int_equal(sp_claim_make(&claim, &recording, &all, root), SP_OK);
    assert_int_equal(claim.count, 1);
    assert_int_equal(recording.process_count, 1);
    assert_int_equal(recording.processes[0].gpu, 1);
    assert_int_equal(recording.processes[0].pid, child);
    sp_claim_free(&claim);
    assert_int_equal(sp_claim_make(&claim, &recording, &all, root), SP_OK);
    assert_int_equal(recording.process_count, 1); /* as where the driver has named it */
    sp_claim_free(&claim);
    holder_end(child);
    sp_recording_free(&recording);
}

static void other_gpus_are_not_in_the_way(void **state)
{
    const struct sp_choice one = {.number = {1}, .count = 1}, others = {.number = {0, 2}, .count = 2};
    const pid_t child = holder_start(take, &one);
    struct sp_recording recording;
    struct sp_claim claim;

    (void)state;
    record(&recording);
    assert_int_equal(sp_claim_make(&claim, &recording, &others, root), SP_OK);
    assert_int_equal(claim.count, 1); /* without a folder there is nothing to hold, and nobody is kept out */
    assert_int_equal(recording.process_count, 0);
    sp_claim_free(&claim);
    holder_end(child);
    assert_int_equal(sp_claim_make(&claim, &recording, &one, root), SP_OK);
    assert_int_equal(claim.count, 1);
    sp_claim_free(&claim);
    sp_recording_free(&recording);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_second_learns_who_has_them),
        cmocka_unit_test(other_gpus_are_not_in_the_way),
    };

    return cmocka_run_group_tests(tests, make_tree, remove_tree);
}
