/* A process that holds something until it is ended, for tests of who comes second. */
#ifndef SP_TEST_HOLDER_H
#define SP_TEST_HOLDER_H

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

/* Returns when take(what) is done, in the new process. */
static pid_t holder_start(bool (*take)(const void *what), const void *what)
{
    int ready[2];
    char byte = 0;
    pid_t child;

    assert_int_equal(pipe(ready), 0);
    child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        if (!take(what) || write(ready[1], &byte, 1) != 1)
            _exit(1);
        for (;;)
            pause();
    }
    close(ready[1]);
    assert_int_equal(read(ready[0], &byte, 1), 1);
    close(ready[0]);
    return child;
}

static void holder_end(pid_t child)
{
    kill(child, SIGKILL);
    assert_int_equal(waitpid(child, NULL, 0), child);
}

#endif
