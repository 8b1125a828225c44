#include "cli/report.h"
#include "base/clean.h"

#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

enum { MARK_OK, MARK_NOTE, MARK_BAD };

static const char *const results[] = {
    "ok", "fail", "error", "refused", "refused", "error", "fail", "fail", "fail", "inconclusive", "refused",
};

/* ---- terminal ---- */

static bool locale_is_utf8(void)
{
    static const char *const names[] = {"LC_ALL", "LC_CTYPE", "LANG"};

    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *value = getenv(names[i]);

        if (value && *value)
            return strcasestr(value, "utf-8") || strcasestr(value, "utf8");
    }
    return false;
}

static bool want_colour(const char *when, bool terminal)
{
    const char *no_colour = getenv("NO_COLOR");
    const char *term = getenv("TERM");

    if (when && strcmp(when, "auto") != 0)
        return strcmp(when, "always") == 0;
    return terminal && !(no_colour && *no_colour) && !(term && strcmp(term, "dumb") == 0);
}

/* ---- JSON ---- */

/* Length of the valid UTF-8 sequence at s, 0 when there is none. */
static size_t sequence(const unsigned char *s)
{
    static const struct {
        unsigned char low, high, second_low, second_high;
        size_t len;
    } forms[] = {
        {0x01, 0x7f, 0, 0, 1},       {0xc2, 0xdf, 0x80, 0xbf, 2}, {0xe0, 0xe0, 0xa0, 0xbf, 3},
        {0xe1, 0xec, 0x80, 0xbf, 3}, {0xed, 0xed, 0x80, 0x9f, 3}, {0xee, 0xef, 0x80, 0xbf, 3},
        {0xf0, 0xf0, 0x90, 0xbf, 4}, {0xf1, 0xf3, 0x80, 0xbf, 4}, {0xf4, 0xf4, 0x80, 0x8f, 4},
    };

    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        if (s[0] < forms[i].low || s[0] > forms[i].high)
            continue;
        if (forms[i].len > 1 && (s[1] < forms[i].second_low || s[1] > forms[i].second_high))
            return 0;
        for (size_t k = 2; k < forms[i].len; k++)
            if (s[k] < 0x80 || s[k] > 0xbf)
                return 0;
        return forms[i].len;
    }
    return 0;
}

static json_t *repaired(const char *text)
{
    const unsigned char *from = (const unsigned char *)text;
    char *copy = malloc(3 * strlen(text) + 1);
    char *to = copy;
    json_t *value;

    if (!copy)
        return json_null();
    while (*from) {
        size_t len = sequence(from);

        if (len > 0) {
            memcpy(to, from, len);
            to += len;
            from += len;
        } else {
            memcpy(to, "\xef\xbf\xbd", 3);
            to += 3;
            from++;
        }
    }
    *to = '\0';
    value = json_string(copy);
    free(copy);
    return value ? value : json_null();
}

json_t *sp_json_text(const char *text)
{
    json_t *value;

    if (!text || !*text)
        return json_null();
    value = json_string(text);
    return value ? value : repaired(text);
}

void sp_report_set(struct sp_report *report, const char *key, json_t *value)
{
    if (report->object)
        (void)json_object_set_new(report->object, key, value ? value : json_null());
    else
        json_decref(value);
}

static void set_envelope(struct sp_report *report, int rc, const char *message, const char *next)
{
    int status = sp_exit_status(rc);
    size_t known = sizeof results / sizeof *results;

    sp_report_set(report, "schema", json_string(SP_JSON_SCHEMA));
    sp_report_set(report, "version", json_string(SP_VERSION));
    sp_report_set(report, "command", sp_json_text(report->args->command ? report->args->command->name : NULL));
    sp_report_set(report, "result", json_string((size_t)status < known ? results[status] : "error"));
    sp_report_set(report, "exit_code", json_integer(status));
    sp_report_set(report, "message", sp_json_text(message));
    sp_report_set(report, "next", sp_json_text(next));
}

/* ---- text ---- */

static void print_verdict(const struct sp_report *report, int rc)
{
    static const char *const marks[][2] = {{"[ok]", "✓"}, {"[!]", "!"}, {"[x]", "✗"}};
    static const char *const colours[] = {"32", "33", "31"};
    int kind = rc < 0 ? MARK_BAD : report->attention ? MARK_NOTE : MARK_OK;

    if (report->colour)
        (void)printf("\033[%sm%s\033[0m ", colours[kind], marks[kind][report->utf8]);
    else
        (void)printf("%s ", marks[kind][report->utf8]);
    (void)printf("%s%s%s\n", report->message ? report->message : "", report->next ? "; next: " : "",
                 report->next ? report->next : "");
}

static void print_error(const char *message, const char *next)
{
    (void)fflush(stdout);
    (void)fprintf(stderr, "sgl-pcie: %s\n", message);
    if (next && *next)
        (void)fprintf(stderr, "  next: %s\n", next);
}

void sp_report_table(const struct sp_report *report, struct sp_table *table, sp_table_paint *paint)
{
    sp_table_print(table, stdout, report->aligned, report->colour ? paint : NULL);
    sp_table_free(table);
}

/* ---- life ---- */

void sp_report_begin(struct sp_report *report, const struct sp_args *args, bool json)
{
    memset(report, 0, sizeof *report);
    report->args = args;
    report->text = !json && !sp_args_has(args, "quiet");
    report->verbose = sp_args_has(args, "verbose");
    report->aligned = isatty(STDOUT_FILENO) == 1;
    report->colour = want_colour(sp_args_value(args, "color"), report->aligned);
    report->utf8 = locale_is_utf8();
    if (!json)
        return;
    report->object = json_object();
    for (const char *const *key = args->command ? args->command->fields : NULL; key && *key; key++)
        sp_report_set(report, *key, json_null());
}

static void keep(char **to, const char *text)
{
    free(*to);
    *to = text && *text ? strdup(text) : NULL;
}

int sp_report_say(struct sp_report *report, const char *next, const char *fmt, ...)
{
    va_list args;

    free(report->message);
    va_start(args, fmt);
    if (vasprintf(&report->message, fmt, args) < 0)
        report->message = NULL;
    va_end(args);
    if (report->message)
        (void)sp_clean(report->message, true);
    keep(&report->next, next);
    return SP_OK;
}

int sp_report_judge(struct sp_report *report, int code)
{
    keep(&report->message, sp_err_message());
    keep(&report->next, sp_err_hint_text());
    report->judged = true;
    return code;
}

static int flush_output(int rc)
{
    if (fflush(stdout) == 0 && !ferror(stdout))
        return rc;
    (void)fprintf(stderr, "sgl-pcie: cannot write standard output: %s\n", strerror(errno));
    return rc < 0 ? rc : SP_ECANNOT;
}

int sp_report_end(struct sp_report *report, int rc)
{
    bool error = rc < 0 && !report->judged;
    const char *message = error ? sp_err_message() : report->message;
    const char *next = error ? sp_err_hint_text() : report->next;

    if (report->object) {
        set_envelope(report, rc, message, next);
        (void)json_dumpf(report->object, stdout, JSON_SORT_KEYS | JSON_INDENT(2));
        (void)fputc('\n', stdout);
    } else if (error || (rc < 0 && !report->text)) {
        print_error(message ? message : "", next);
    } else if (report->text && report->message) {
        print_verdict(report, rc);
    }
    rc = flush_output(rc);
    json_decref(report->object);
    free(report->message);
    free(report->next);
    memset(report, 0, sizeof *report);
    return sp_exit_status(rc);
}
