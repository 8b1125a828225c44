#include "verify/machine/pseudo.h"
#include "verify/machine/record.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static size_t read_all(char *out, size_t size, const char *path)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    size_t len = 0;
    ssize_t got = 1;

    while (fd >= 0 && got > 0 && len < size - 1) {
        got = read(fd, out + len, size - 1 - len);
        if (got > 0)
            len += (size_t)got;
        else if (got < 0 && errno == EINTR)
            got = 1;
    }
    out[len] = '\0';
    if (fd >= 0)
        close(fd);
    return len;
}

static size_t read_named(char *out, size_t size, const char *fmt, va_list args)
{
    char path[PATH_MAX];

    out[0] = '\0';
    if (vsnprintf(path, sizeof path, fmt, args) >= (int)sizeof path)
        return 0;
    return read_all(out, size, path);
}

size_t sp_pseudo_read(char *out, size_t size, const char *fmt, ...)
{
    va_list args;
    size_t len;

    va_start(args, fmt);
    len = read_named(out, size, fmt, args);
    va_end(args);
    return len;
}

static void cut_line(char *text)
{
    size_t len = strcspn(text, "\n");

    while (len > 0 && (text[len - 1] == ' ' || text[len - 1] == '\t' || text[len - 1] == '\r'))
        len--;
    text[len] = '\0';
}

char *sp_pseudo_line(const char *fmt, ...)
{
    char text[SP_REC_TEXT_MAX];
    va_list args;

    va_start(args, fmt);
    (void)read_named(text, sizeof text, fmt, args);
    va_end(args);
    cut_line(text);
    return text[0] ? strdup(text) : NULL;
}

int64_t sp_pseudo_number(const char *fmt, ...)
{
    char text[64], *end;
    int64_t value;
    va_list args;

    va_start(args, fmt);
    (void)read_named(text, sizeof text, fmt, args);
    va_end(args);
    cut_line(text);
    errno = 0;
    value = strtoll(text, &end, 0);
    return end == text || *end || errno != 0 ? SP_ABSENT : value;
}
