/*
 * report.h: what the program says. Results are kept and printed as text when they arrive, or as one JSON object at the
 * end. Progress and warnings go to standard error.
 */
#ifndef GPU_REPORT_H
#define GPU_REPORT_H

#include <stdint.h>
#include <stdio.h>

typedef enum { CHECK_PASS, CHECK_FAIL, CHECK_SKIP, CHECK_UNSURE } check_status;

/* Text; JSON, one object; the same in one line. */
enum { REPORT_TEXT, REPORT_JSON, REPORT_LINE };
void report_begin(const char *command, int how);

/* One check: its id ("smoke/process/4/host"), status, exit code it asks for, how long it took, and a sentence. */
void report_check(const char *id, check_status status, int code, double seconds, const char *format, ...)
    __attribute__((format(printf, 5, 6)));

/* A member of the JSON object, as text that is JSON already; text mode ignores it. */
void report_member(const char *name, const char *json);

/* Several at once: "a":1,"b":2. */
void report_members(const char *json);

/* A line of text; JSON mode ignores it. */
void report_line(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* The worst code so far. */
int report_code(void);

/* Print the end, text or JSON; returns the exit code, the worse of `code` and the checks'. */
int report_end(int code, const char *message);

/* Append to a text that grows; null after the first failure to allocate. */
typedef struct {
    char *data;
    size_t length, room;
} text;
void text_add(text *t, const char *format, ...) __attribute__((format(printf, 2, 3)));
void text_add_quoted(text *t, const char *s);
void text_free(text *t);

#endif
