/*
 * What a command says: text for people, or one JSON object.
 *
 *     sp_report_begin(&report, &args);
 *     rc = command->run(&args, &report);
 *     status = sp_report_end(&report, rc);
 *
 * Text. What was found goes to standard output (nothing with --quiet), its last line is the verdict and the
 * next command. Errors go to standard error: "sgl-pcie: <message>", then "  next: <command>" when there is one.
 * On a terminal tables are aligned and coloured; elsewhere they are plain lines.
 *
 * JSON. Exactly one object on standard output, keys sorted, whatever happens. The keys of the command's table
 * entry are there from the start, null until they are set.
 */
#ifndef SP_CLI_REPORT_H
#define SP_CLI_REPORT_H

#include "base/err.h"
#include "base/table.h"
#include "cli/opt.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>

#define SP_JSON_SCHEMA "sgl-pcie/1"

struct sp_report {
    const struct sp_args *args;
    json_t *object; /* with --json, else NULL */
    bool text;      /* write text to standard output: neither --json nor --quiet */
    bool verbose;
    bool aligned; /* standard output is a terminal */
    bool colour;
    bool utf8;
    bool judged;    /* the message came from sp_report_judge() */
    bool attention; /* the verdict is good, but something is to be done */
    char *message;  /* on success, or judged */
    char *next;     /* next command, or NULL */
};

void sp_report_begin(struct sp_report *report, const struct sp_args *args, bool json);

/* Print what is due for rc, free the report, return the exit status. Not being able to print makes it SP_ECANNOT. */
int sp_report_end(struct sp_report *report, int rc);

/* The verdict of a command that returns 0, and the next command (NULL: none). Returns 0. */
int sp_report_say(struct sp_report *report, const char *next, const char *fmt, ...) SP_PRINTF(3, 4);

/* The verdict of a command whose result is itself an exit status: printed as what was found, not as an error. Takes
 * the thread's message and hint as they are. Returns code. */
int sp_report_judge(struct sp_report *report, int code);

/* Set a key of the JSON object, if there is one. value is taken over; NULL stands for null. */
void sp_report_set(struct sp_report *report, const char *key, json_t *value);

/* Print a table to standard output as this report does it, and free it. paint may be NULL. */
void sp_report_table(const struct sp_report *report, struct sp_table *table, sp_table_paint *paint);

/* Strings in JSON: NULL and "" give null; bytes that are not UTF-8 become U+FFFD. */
json_t *sp_json_text(const char *text);

#endif
