/*
 * Errors: a code and one message for each thread.
 *
 * A function that can fail returns int: 0 for success, one of the negative codes below for an error,
 * and has then set the thread's message. The codes are the tool's exit codes, negated, so that a
 * command only passes on what it got: sp_exit_status().
 *
 * The message says what failed, where and why ("cannot open '/x/y': permission denied"), in lower
 * case and without a full stop. The hint is the next command to run, or an empty string.
 *
 *     if (fd < 0)
 *         return sp_err_sys(SP_ECANNOT, "cannot open '%s'", path);
 *     rc = read_manifest(&m, path);
 *     if (rc < 0)
 *         return sp_err_wrap(rc, "patch set '%s'", name);      // "patch set 'sglang': ..."
 *
 * Nothing here allocates: a message longer than the buffer is cut. Nothing here exits or prints.
 */
#ifndef SP_BASE_ERR_H
#define SP_BASE_ERR_H

enum sp_code {
    SP_OK = 0,
    SP_EFAIL = -1,         /* a check failed, or enable was refused */
    SP_EUSAGE = -2,        /* wrong arguments, or several candidates for the target */
    SP_ENOPATCH = -3,      /* no patch for this release */
    SP_EDRIFT = -4,        /* files differ from every text that we know */
    SP_ECANNOT = -5,       /* could not: no GPU, toolkit, permission or space; a running server */
    SP_EBUILD = -6,        /* the compiler refused */
    SP_EDATA = -7,         /* wrong data from a GPU */
    SP_EHANG = -8,         /* hang or time limit */
    SP_EINCONCLUSIVE = -9, /* the control arm failed too */
    SP_EINTERRUPTED = -10  /* an earlier write was interrupted: run recover */
};

#if defined(__GNUC__)
#define SP_PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))
#else
#define SP_PRINTF(fmt, args)
#endif

/* Set the message, clear the hint, return code. */
int sp_err(int code, const char *fmt, ...) SP_PRINTF(2, 3);

/* The same, with ": " and the text of errno appended. */
int sp_err_sys(int code, const char *fmt, ...) SP_PRINTF(2, 3);

/* Put "<text>: " before the present message; the hint stays. Returns code. */
int sp_err_wrap(int code, const char *fmt, ...) SP_PRINTF(2, 3);

/* Put text behind the present message; the hint stays. Returns code. */
int sp_err_add(int code, const char *fmt, ...) SP_PRINTF(2, 3);

/* Set the next command to run, after sp_err(). Returns code. */
int sp_err_hint(int code, const char *fmt, ...) SP_PRINTF(2, 3);

/* The thread's message and hint: never NULL, valid until the next call of this module. */
const char *sp_err_message(void);
const char *sp_err_hint_text(void);

/* Forget message and hint, for an error that was dealt with. */
void sp_err_clear(void);

/* The exit status for a return code: 0 for code >= 0, else -code. */
int sp_exit_status(int code);

#endif
