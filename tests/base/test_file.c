/* Opening beneath a directory, reading, hashing. With an argument: as if the kernel answered openat2 with that. */
#include "base/err.h"
#include "base/file.h"
#include "tree.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cmocka.h>

static void assert_refused(const struct tree *tree, const char *path, int why)
{
    int fd;

    assert_int_equal(sp_open_beneath(&fd, tree->fd, path, O_RDONLY, 0), SP_ECANNOT);
    assert_int_equal(errno, why);
    assert_int_equal(fd, -1);
}

static void opens_a_plain_file(void **state)
{
    const struct tree *tree = *state;
    int fd;

    tree_put(tree, "a/b/c", "text");
    assert_int_equal(sp_open_beneath(&fd, tree->fd, "a/b/c", O_RDONLY, 0), 0);
    assert_true(fcntl(fd, F_GETFD) & FD_CLOEXEC);
    close(fd);
    assert_int_equal(sp_open_beneath(&fd, tree->fd, ".", O_RDONLY | O_DIRECTORY, 0), 0);
    close(fd);
    assert_int_equal(sp_open_beneath(&fd, tree->fd, "a/new", O_WRONLY | O_CREAT | O_EXCL, 0600), 0);
    close(fd);
    assert_int_equal(tree_stat(tree, "a/new").st_mode & 0777, 0600);
}

static void no_path_leads_out(void **state)
{
    const struct tree *tree = *state;
    static const char *const paths[] = {"", "/etc/passwd", "../x", "a/../../x", "a//b", "a/", "./a", "a/./b", ".."};

    tree_put(tree, "a/b", "text");
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
        assert_false(sp_path_is_safe(paths[i]));
        assert_refused(tree, paths[i], EINVAL);
    }
    assert_true(sp_path_is_safe("a/b"));
    assert_true(sp_path_is_safe("..a/...b/ c\xc3\xa9"));
}

static void a_path_too_long_is_not_safe(void **state)
{
    static char path[8192];

    (void)state;
    memset(path, 'x', 256);
    assert_false(sp_path_is_safe(path));
    path[255] = '\0';
    assert_true(sp_path_is_safe(path));
    for (size_t i = 0; i < sizeof path - 1; i++)
        path[i] = i % 2 ? '/' : 'x';
    assert_false(sp_path_is_safe(path));
}

static void no_link_is_followed(void **state)
{
    const struct tree *tree = *state;

    tree_put(tree, "real/file", "text");
    tree_link(tree, "real", "dir");
    tree_link(tree, "file", "real/link");
    tree_link(tree, "/etc", "out");
    tree_link(tree, "nowhere", "dangling");
    assert_refused(tree, "dir/file", ELOOP);
    assert_said("'dir' is a symbolic link");
    assert_refused(tree, "real/link", ELOOP);
    assert_said("'real/link' is a symbolic link");
    assert_refused(tree, "out/passwd", ELOOP);
    assert_refused(tree, "dangling", ELOOP);
    assert_refused(tree, "dir", ELOOP);
}

static void a_link_as_a_directory_is_named_as_a_link(void **state)
{
    const struct tree *tree = *state;
    int fd;

    tree_mkdir(tree, "real");
    tree_link(tree, "real", "dir");
    assert_int_equal(sp_open_beneath(&fd, tree->fd, "dir", O_RDONLY | O_DIRECTORY, 0), SP_ECANNOT);
    assert_said("symbolic link");
}

static void missing_is_not_an_error_of_reading(void **state)
{
    const struct tree *tree = *state;
    struct sp_buf bytes = SP_BUF_INIT;

    assert_int_equal(sp_read_beneath(&bytes, NULL, tree->fd, "not/here", 10), 1);
    assert_null(bytes.data);
    assert_string_equal(sp_err_message(), "");
    assert_refused(tree, "not/here", ENOENT);
    tree_put(tree, "file", "");
    assert_refused(tree, "file/below", ENOTDIR);
}

static void reads_exactly_the_bytes(void **state)
{
    const struct tree *tree = *state;
    struct sp_buf bytes = SP_BUF_INIT;
    struct stat st;

    tree_put(tree, "file", "0123456789");
    assert_int_equal(sp_read_beneath(&bytes, &st, tree->fd, "file", 10), 0);
    assert_int_equal(bytes.len, 10);
    assert_string_equal(bytes.data, "0123456789");
    assert_int_equal(st.st_size, 10);
    tree_put(tree, "empty", "");
    assert_int_equal(sp_read_beneath(&bytes, &st, tree->fd, "empty", 0), 0);
    assert_int_equal(bytes.len, 0);
    assert_string_equal(bytes.data, "");
    sp_buf_free(&bytes);
}

static void a_huge_file_does_not_fill_memory(void **state)
{
    const struct tree *tree = *state;
    struct sp_buf bytes = SP_BUF_INIT;

    tree_put(tree, "file", "0123456789");
    assert_int_equal(sp_read_beneath(&bytes, NULL, tree->fd, "file", 9), SP_ECANNOT);
    assert_said("larger than 9 bytes");
    assert_null(bytes.data);
    assert_int_equal(sp_read_file(&bytes, "/dev/zero", 100), SP_ECANNOT);
    assert_said("not a regular file");
}

static void a_file_without_a_size_is_read_to_its_end(void **state)
{
    struct sp_buf bytes = SP_BUF_INIT;

    (void)state;
    assert_int_equal(sp_read_file(&bytes, "/proc/self/status", 1 << 20), 0);
    assert_true(bytes.len > 100);
    assert_int_equal(sp_read_file(&bytes, "/proc/self/status", 20), SP_ECANNOT);
    sp_buf_free(&bytes);
}

static void a_fifo_does_not_hang(void **state)
{
    const struct tree *tree = *state;
    struct sp_buf bytes = SP_BUF_INIT;

    assert_int_equal(mkfifoat(tree->fd, "fifo", 0600), 0);
    assert_int_equal(sp_read_beneath(&bytes, NULL, tree->fd, "fifo", 10), SP_ECANNOT);
    assert_said("not a regular file");
}

static void a_rename_does_not_replace(void **state)
{
    const struct tree *tree = *state;

    tree_put(tree, "from", "from");
    tree_put(tree, "to", "to");
    assert_int_equal(sp_rename_noreplace(tree->fd, "from", "to"), -1);
    assert_int_equal(errno, EEXIST);
    assert_text(tree, "to", "to");
    assert_int_equal(sp_rename_noreplace(tree->fd, "from", "other"), 0);
    assert_text(tree, "other", "from");
    assert_false(tree_has(tree, "from"));
}

/* git hash-object, sha256sum */
static void ids_are_those_of_git(void **state)
{
    char sha256[SP_SHA256_HEX + 1];
    struct sp_oid oid;

    (void)state;
    assert_int_equal(sp_blob_id(&oid, NULL, 0), 0);
    assert_string_equal(oid.hex, "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391");
    assert_int_equal(sp_blob_id(&oid, "hello\n", 6), 0);
    assert_string_equal(oid.hex, "ce013625030ba8dba906f756967f9e9ca394464a");
    assert_int_equal(sp_sha256(sha256, "hello\n", 6), 0);
    assert_string_equal(sha256, "5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03");
}

static void a_buffer_may_be_set_from_itself(void **state)
{
    struct sp_buf buf = SP_BUF_INIT;

    (void)state;
    assert_int_equal(sp_buf_printf(&buf, "%s-%d", "abc", 7), 0);
    assert_int_equal(sp_buf_append(&buf, "\0x", 2), 0);
    assert_int_equal(buf.len, 7);
    assert_memory_equal(buf.data, "abc-7\0x", 8);
    assert_int_equal(sp_buf_set(&buf, buf.data + 4, 1), 0);
    assert_string_equal(buf.data, "7");
    sp_buf_free(&buf);
    sp_buf_free(&buf);
    assert_null(buf.data);
}

/* From here on openat2 fails with this errno, as in a sandbox. */
static int forbid_openat2(int why)
{
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_openat2, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (unsigned int)why),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof filter / sizeof *filter, filter};

    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) < 0)
        return -1;
    return syscall(SYS_openat2, -1, "", NULL, 0) < 0 && errno == why ? 0 : -1;
}

#define IN_TREE(test) cmocka_unit_test_setup_teardown(test, tree_setup, tree_teardown)

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        IN_TREE(opens_a_plain_file),
        IN_TREE(no_path_leads_out),
        cmocka_unit_test(a_path_too_long_is_not_safe),
        IN_TREE(no_link_is_followed),
        IN_TREE(a_link_as_a_directory_is_named_as_a_link),
        IN_TREE(missing_is_not_an_error_of_reading),
        IN_TREE(reads_exactly_the_bytes),
        IN_TREE(a_huge_file_does_not_fill_memory),
        cmocka_unit_test(a_file_without_a_size_is_read_to_its_end),
        IN_TREE(a_fifo_does_not_hang),
        IN_TREE(a_rename_does_not_replace),
        cmocka_unit_test(ids_are_those_of_git),
        cmocka_unit_test(a_buffer_may_be_set_from_itself),
    };

    if (argc > 1 && forbid_openat2(strcmp(argv[1], "EPERM") == 0 ? EPERM : ENOSYS) < 0) {
        perror("cannot forbid openat2");
        return EXIT_FAILURE;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
