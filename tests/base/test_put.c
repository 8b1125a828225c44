/* Files that the user names: whose they are, and what is left of one that could not be written. */
#include "base/err.h"
#include "base/put.h"
#include "tree.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cmocka.h>

static const char *in(const struct tree *tree, const char *name)
{
    static char path[256];

    (void)snprintf(path, sizeof path, "%s/%s", tree->path, name);
    return path;
}

static void a_longer_file_does_not_shine_through(void **state)
{
    const struct tree *tree = *state;

    tree_put(tree, "out", "something long");
    assert_int_equal(sp_put_file(in(tree, "out"), "short", 5), SP_OK);
    assert_text(tree, "out", "short");
}

static void a_link_and_a_device_stay_what_they_are(void **state)
{
    const struct tree *tree = *state;

    tree_link(tree, "target", "link");
    assert_int_equal(sp_put_file(in(tree, "link"), "text", 4), SP_OK);
    assert_true(S_ISLNK(tree_stat(tree, "link").st_mode));
    assert_text(tree, "target", "text");
    assert_int_equal(sp_put_file("/dev/null", "text", 4), SP_OK);
    assert_int_equal(access("/dev/null", W_OK), 0);
}

static void what_root_makes_belongs_to_the_owner_of_the_folder(void **state)
{
    const struct tree *tree = *state;

    if (geteuid() != 0)
        skip();
    tree_put(tree, "old", "");
    assert_int_equal(fchown(tree->fd, 1234, 4321), 0);
    assert_int_equal(sp_put_file(in(tree, "new"), "text", 4), SP_OK);
    assert_int_equal(tree_stat(tree, "new").st_uid, 1234);
    assert_int_equal(tree_stat(tree, "new").st_gid, 4321);
    assert_int_equal(sp_put_file(in(tree, "old"), "text", 4), SP_OK);
    assert_int_equal(tree_stat(tree, "old").st_uid, 0); /* was somebody's before */
    assert_int_equal(fchownat(tree->fd, "old", 12, 34, 0), 0);
    assert_int_equal(sp_put_file(in(tree, "old"), "more", 4), SP_OK);
    assert_int_equal(tree_stat(tree, "old").st_uid, 12);
    assert_int_equal(tree_stat(tree, "old").st_gid, 34);
}

/* As on a disk with room for three bytes. */
static int put_without_room(const char *path)
{
    struct rlimit before, tight;
    int rc;

    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    tight = before;
    tight.rlim_cur = 3;
    (void)signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &tight), 0);
    rc = sp_put_file(path, "text", 4);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    return rc;
}

static void a_file_that_could_not_be_finished_is_gone(void **state)
{
    const struct tree *tree = *state;

    assert_int_equal(put_without_room(in(tree, "out")), SP_ECANNOT);
    assert_said("File too large");
    assert_false(tree_has(tree, "out"));
}

static void without_room_the_file_that_was_there_stays(void **state)
{
    const struct tree *tree = *state;

    tree_put(tree, "folder/old", "ok");
    tree_link(tree, "folder/old", "link");
    assert_int_equal(put_without_room(in(tree, "folder/old")), SP_ECANNOT);
    assert_said("folder/old': File too large");
    assert_int_equal(put_without_room(in(tree, "link")), SP_ECANNOT);
    assert_said("link': File too large");
    assert_text(tree, "folder/old", "ok");
    assert_int_equal(linkat(tree->fd, "folder/old", tree->fd, "second", 0), 0); /* is written in place */
    assert_int_equal(put_without_room(in(tree, "folder/old")), SP_ECANNOT);
    assert_said("folder/old': File too large");
    assert_text(tree, "second", "ok");
    assert_int_equal(tree_count(tree), 4);
}

static void a_file_that_was_there_keeps_what_is_not_its_text(void **state)
{
    const struct tree *tree = *state;

    tree_put(tree, "folder/old", "something long");
    tree_link(tree, "folder/old", "link");
    assert_int_equal(fchmodat(tree->fd, "folder/old", 0640, 0), 0);
    assert_int_equal(sp_put_file(in(tree, "link"), "text", 4), SP_OK);
    assert_text(tree, "folder/old", "text");
    assert_true(S_ISLNK(tree_stat(tree, "link").st_mode));
    assert_int_equal(tree_stat(tree, "folder/old").st_mode & 07777, 0640);
    assert_int_equal(linkat(tree->fd, "folder/old", tree->fd, "second", 0), 0);
    assert_int_equal(sp_put_file(in(tree, "second"), "one", 3), SP_OK);
    assert_text(tree, "folder/old", "one");
    assert_int_equal(tree_count(tree), 4);
}

static void a_folder_that_may_not_be_written_is_no_hindrance(void **state)
{
    const struct tree *tree = *state;

    tree_put(tree, "folder/old", "something long");
    assert_int_equal(fchmodat(tree->fd, "folder", 0555, 0), 0);
    assert_int_equal(sp_put_file(in(tree, "folder/old"), "text", 4), SP_OK);
    assert_int_equal(fchmodat(tree->fd, "folder", 0755, 0), 0);
    assert_text(tree, "folder/old", "text");
}

static void a_folder_that_is_not_there_is_named(void **state)
{
    const struct tree *tree = *state;

    assert_int_equal(sp_put_file(in(tree, "no/out"), "", 0), SP_ECANNOT);
    assert_said("no/out': No such file or directory");
}

static void a_place_that_cannot_be_written_is_known_before(void **state)
{
    const struct tree *tree = *state;

    tree_mkdir(tree, "folder");
    tree_put(tree, "old", "text");
    assert_int_equal(sp_put_check(in(tree, "no/out")), SP_ECANNOT);
    assert_said("no/out': No such file or directory");
    assert_int_equal(sp_put_check(in(tree, "old/out")), SP_ECANNOT);
    assert_int_equal(sp_put_check(in(tree, "folder")), SP_ECANNOT);
    assert_said("Is a directory");
    assert_int_equal(sp_put_check(in(tree, "new")), SP_OK);
    assert_int_equal(sp_put_check(in(tree, "old")), SP_OK);
    assert_int_equal(sp_put_check("/dev/null"), SP_OK);
    assert_false(tree_has(tree, "new"));
    assert_text(tree, "old", "text");
    if (geteuid() != 0) {
        assert_int_equal(fchmod(tree->fd, 0555), 0);
        assert_int_equal(sp_put_check(in(tree, "new")), SP_ECANNOT);
        assert_int_equal(fchmod(tree->fd, 0755), 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_longer_file_does_not_shine_through, tree_setup, tree_teardown),
        cmocka_unit_test_setup_teardown(a_link_and_a_device_stay_what_they_are, tree_setup, tree_teardown),
        cmocka_unit_test_setup_teardown(what_root_makes_belongs_to_the_owner_of_the_folder, tree_setup, tree_teardown),
        cmocka_unit_test_setup_teardown(a_file_that_could_not_be_finished_is_gone, tree_setup, tree_teardown),
        cmocka_unit_test_setup_teardown(without_room_the_file_that_was_there_stays, tree_setup, tree_teardown),
        cmocka_unit_test_setup_teardown(a_file_that_was_there_keeps_what_is_not_its_text, tree_setup, tree_teardown),
        cmocka_unit_test_setup_teardown(a_folder_that_may_not_be_written_is_no_hindrance, tree_setup, tree_teardown),
        cmocka_unit_test_setup_teardown(a_folder_that_is_not_there_is_named, tree_setup, tree_teardown),
        cmocka_unit_test_setup_teardown(a_place_that_cannot_be_written_is_known_before, tree_setup, tree_teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
