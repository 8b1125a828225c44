#include "report.h"

#include "ranks.h"

#include "../pcie_allreduce.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

static const char *const status_names[] = {"PASS", "FAIL", "SKIP", "INCONCLUSIVE"};

static struct {
    const char *command;
    int how, code;
    text checks, members;
} report;

/* --- text that grows ------------------------------------------------------------------------- */

static int make_room(text *t, size_t more)
{
    size_t room = t->room != 0 ? t->room : 256;
    char *data;

    while (room < t->length + more + 1)
        room *= 2;
    if (room == t->room)
        return 0;
    data = realloc(t->data, room);
    if (data == NULL)
        return -1;
    t->data = data;
    t->room = room;
    return 0;
}

static void add_arguments(text *t, const char *format, va_list args)
{
    va_list again;
    int n;

    va_copy(again, args);
    n = vsnprintf(NULL, 0, format, again);
    va_end(again);
    if (n >= 0 && make_room(t, (size_t)n) == 0)
        t->length += (size_t)vsnprintf(t->data + t->length, (size_t)n + 1, format, args);
}

void text_add(text *t, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    add_arguments(t, format, args);
    va_end(args);
}

void text_add_quoted(text *t, const char *s)
{
    text_add(t, "\"");
    for (; *s != '\0'; s++) {
        unsigned char c = (unsigned char)*s;
        if (c == '"' || c == '\\')
            text_add(t, "\\%c", c);
        else if (c < 0x20 || c >= 0x7f)
            text_add(t, "\\u%04x", c);
        else
            text_add(t, "%c", c);
    }
    text_add(t, "\"");
}

void text_free(text *t)
{
    free(t->data);
    memset(t, 0, sizeof(*t));
}

/* --- the report ------------------------------------------------------------------------------ */

void report_begin(const char *command, int how)
{
    report.command = command;
    report.how = how;
}

void report_check(const char *id, check_status status, int code, double seconds, const char *format, ...)
{
    text actual = {0};
    va_list args;

    va_start(args, format);
    add_arguments(&actual, format, args);
    va_end(args);
    report.code = code_worse(report.code, code);
    if (report.how != REPORT_TEXT) {
        text_add(&report.checks, "%s%s{\"actual\":", report.checks.length != 0 ? "," : "",
                 report.how == REPORT_JSON ? "\n  " : "");
        text_add_quoted(&report.checks, actual.data != NULL ? actual.data : "");
        text_add(&report.checks, ",\"code\":%d,\"duration_ms\":%.0f,\"id\":", code, seconds * 1e3);
        text_add_quoted(&report.checks, id);
        text_add(&report.checks, ",\"status\":\"%s\"}", status_names[status]);
    } else {
        printf("%-4s %-28s %6.1f s  %s\n", status_names[status], id, seconds, actual.data != NULL ? actual.data : "");
        fflush(stdout);
    }
    text_free(&actual);
}

void report_member(const char *name, const char *json)
{
    text_add(&report.members, ",\"%s\":%s", name, json);
}

void report_members(const char *json)
{
    text_add(&report.members, ",%s", json);
}

void report_line(const char *format, ...)
{
    va_list args;

    if (report.how == REPORT_TEXT) {
        va_start(args, format);
        vprintf(format, args);
        va_end(args);
        putchar('\n');
        fflush(stdout);
    }
}

int report_code(void)
{
    return report.code;
}

static const char *result_of(int code)
{
    return code == CODE_OK                             ? "ok"
           : code == CODE_UNSURE                       ? "inconclusive"
           : code == CODE_CANNOT || code == CODE_USAGE ? "error"
                                                       : "fail";
}

int report_end(int code, const char *message)
{
    text line = {0};

    code = code_worse(code, report.code);
    if (report.how != REPORT_TEXT) {
        text_add(&line, "{\"checks\":[%s],\"command\":", report.checks.data != NULL ? report.checks.data : "");
        text_add_quoted(&line, report.command);
        text_add(&line, ",\"exit_code\":%d,\"message\":", code);
        text_add_quoted(&line, message);
        text_add(&line, ",\"result\":\"%s\",\"schema\":\"sgl-pcie/1\",\"version\":\"%s\"%s}", result_of(code),
                 par_version(), report.members.data != NULL ? report.members.data : "");
        puts(line.data != NULL ? line.data : "{}");
    } else {
        printf("%s: %s (exit code %d)\n", report.command, result_of(code), code);
    }
    text_free(&line);
    text_free(&report.checks);
    text_free(&report.members);
    return code;
}
