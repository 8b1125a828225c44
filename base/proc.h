/*
 * A child process with a time limit and bounded output.
 *
 * The child leads a process group of its own and dies with us. At the time limit the whole group is killed, so
 * that a helper which forked cannot stay behind with a GPU or a pipe; the same when it ends and leaves others behind.
 * Standard input is /dev/null, or what the options give. Output beyond the bounds is read and dropped, so that the
 * child never blocks on it.
 *
 *     const char *const argv[] = {python, "-I", "-c", script, NULL};
 *     struct sp_proc_options options = {.seconds = 10, .output_max = 1 << 20};
 *     struct sp_proc_result result;
 *     rc = sp_proc_run(&result, argv, &options);
 *     ...
 *     sp_proc_free(&result);
 */
#ifndef SP_BASE_PROC_H
#define SP_BASE_PROC_H

#include "base/file.h"

#include <stdbool.h>

typedef void sp_proc_seen(void *context, const char *text, size_t len);

struct sp_proc_options {
    double seconds;         /* time limit; 0: none */
    size_t output_max;      /* bytes kept of each of the two streams */
    const char *const *env; /* NULL: ours */
    const char *dir;        /* working directory; NULL: ours */
    sp_proc_seen *seen;     /* gets its standard error as it comes, for progress; may be NULL */
    void *context;          /* of seen */
    const char *input;      /* standard input; NULL: /dev/null */
    size_t input_len;
};

struct sp_proc_result {
    int status;             /* exit status, or -1 when a signal ended it */
    int signal;             /* that signal, or 0 */
    bool timed_out;         /* then signal is SIGKILL, by us */
    bool out_cut, err_cut;  /* there was more than output_max */
    struct sp_buf out, err; /* NUL-terminated, never NULL after SP_OK */
};

/* argv[0] is looked up in PATH unless it has a slash. SP_OK also when the child failed or timed out: read the
 * result. SP_ECANNOT: it could not be started; the result is then empty. */
int sp_proc_run(struct sp_proc_result *result, const char *const *argv, const struct sp_proc_options *options);

/* The same with every outcome but exit status 0 as an error: SP_EHANG at the time limit, else SP_ECANNOT, with the
 * last line of its standard error. The result is valid either way. */
int sp_proc_run_ok(struct sp_proc_result *result, const char *const *argv, const struct sp_proc_options *options);

/* From now on SIGHUP, SIGINT, SIGQUIT and SIGTERM, unless they are ignored, end what runs before they end us: only the
 * child itself dies with us, and not what it has started. It is asked first, so that it can end its own children, too.
 */
void sp_proc_catch_signals(void);

/* Safe on a zeroed result, and twice. */
void sp_proc_free(struct sp_proc_result *result);

#endif
