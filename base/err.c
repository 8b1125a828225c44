#include "base/err.h"
#include "base/clean.h"

#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

enum { MESSAGE_MAX = 4096, HINT_MAX = 1024 };

static _Thread_local char message[MESSAGE_MAX];
static _Thread_local char hint[HINT_MAX];

/* Cut when it is too long. */
static void append(const char *text)
{
    size_t used = strlen(message), len = strlen(text), room = sizeof message - 1 - used;

    if (len > room)
        len = room;
    memcpy(message + used, text, len);
    message[used + len] = '\0';
}

int sp_err(int code, const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    (void)vsnprintf(message, sizeof message, fmt, args);
    va_end(args);
    (void)sp_clean(message, true);
    hint[0] = '\0';
    return code;
}

int sp_err_sys(int code, const char *fmt, ...)
{
    const char *reason = strerror(errno);
    va_list args;

    va_start(args, fmt);
    (void)vsnprintf(message, sizeof message, fmt, args);
    va_end(args);
    (void)sp_clean(message, true);
    append(": ");
    append(reason);
    hint[0] = '\0';
    return code;
}

int sp_err_wrap(int code, const char *fmt, ...)
{
    char cause[MESSAGE_MAX];
    va_list args;

    memcpy(cause, message, sizeof cause);
    va_start(args, fmt);
    (void)vsnprintf(message, sizeof message, fmt, args);
    va_end(args);
    (void)sp_clean(message, true);
    append(": ");
    append(cause);
    return code;
}

int sp_err_add(int code, const char *fmt, ...)
{
    char text[MESSAGE_MAX];
    va_list args;

    va_start(args, fmt);
    (void)vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    (void)sp_clean(text, true);
    append(text);
    return code;
}

int sp_err_hint(int code, const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    (void)vsnprintf(hint, sizeof hint, fmt, args);
    va_end(args);
    (void)sp_clean(hint, true);
    return code;
}

const char *sp_err_message(void)
{
    return message;
}

const char *sp_err_hint_text(void)
{
    return hint;
}

void sp_err_clear(void)
{
    message[0] = '\0';
    hint[0] = '\0';
}

int sp_exit_status(int code)
{
    return code < 0 ? -code : 0;
}
