#include "cli/progress.h"

#include <stdarg.h>
#include <unistd.h>

static const char again[] = "\r\033[K";

bool sp_progress_seen(const struct sp_report *report)
{
    return report->text && isatty(STDERR_FILENO) == 1;
}

void sp_progress_line(const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    (void)fputs(again, stderr);
    (void)vfprintf(stderr, fmt, args);
    (void)fflush(stderr);
    va_end(args);
}

void sp_progress_step(void *context, size_t done, size_t total, const char *text)
{
    (void)context;
    sp_progress_line("[%zu/%zu] %s", done + 1, total, text);
}

void sp_progress_end(void)
{
    (void)fputs(again, stderr);
}
