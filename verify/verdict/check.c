#include "verify/verdict/check.h"
#include "base/err.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

int sp_check_new(struct sp_check **out, struct sp_checks *checks, int level, const char *id_fmt, ...)
{
    struct sp_check **grown = realloc(checks->item, (checks->count + 1) * sizeof *grown);
    va_list args;

    *out = NULL;
    if (!grown)
        return sp_err(SP_ECANNOT, "out of memory");
    checks->item = grown;
    *out = calloc(1, sizeof **out);
    if (!*out)
        return sp_err(SP_ECANNOT, "out of memory");
    checks->item[checks->count++] = *out;
    (*out)->level = level;
    (*out)->status = SP_CHECK_INCONCLUSIVE;
    (*out)->code = SP_EFAIL;
    va_start(args, id_fmt);
    (void)vsnprintf((*out)->id, sizeof(*out)->id, id_fmt, args);
    va_end(args);
    return SP_OK;
}

void sp_checks_free(struct sp_checks *checks)
{
    for (size_t i = 0; i < checks->count; i++) {
        json_decref(checks->item[i]->expected);
        json_decref(checks->item[i]->actual);
        free(checks->item[i]->remedy);
        free(checks->item[i]);
    }
    free(checks->item);
    memset(checks, 0, sizeof *checks);
}

struct sp_check *sp_check_find(const struct sp_checks *checks, const char *id)
{
    struct sp_check *found = NULL;

    for (size_t i = 0; i < checks->count && !found; i++)
        if (strcmp(checks->item[i]->id, id) == 0)
            found = checks->item[i];
    return found;
}

static json_t *text_value(const char *fmt, va_list args)
{
    char *text = NULL;
    json_t *value = vasprintf(&text, fmt, args) < 0 ? NULL : json_string(text);

    free(text);
    return value;
}

void sp_check_expect(struct sp_check *check, const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    json_decref(check->expected);
    check->expected = text_value(fmt, args);
    va_end(args);
}

void sp_check_actual(struct sp_check *check, const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    json_decref(check->actual);
    check->actual = text_value(fmt, args);
    va_end(args);
}

void sp_check_numbers(struct sp_check *check, double expected, double actual, const char *unit)
{
    json_decref(check->expected);
    json_decref(check->actual);
    check->expected = json_real(expected);
    check->actual = json_real(actual);
    check->unit = unit;
}

void sp_check_remedy(struct sp_check *check, const char *fmt, ...)
{
    va_list args;

    free(check->remedy);
    va_start(args, fmt);
    if (vasprintf(&check->remedy, fmt, args) < 0)
        check->remedy = NULL;
    va_end(args);
}

void sp_check_cut(struct sp_check *check, double limit, double usual)
{
    check->cut = check->status == SP_CHECK_FAIL && check->code == SP_EHANG && limit > 0 && limit < usual;
    if (check->cut)
        sp_check_remedy(check, "again with more time: --timeout %.0f, or none", usual);
}

double sp_now_ms(void)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e3 + (double)now.tv_nsec / 1e6;
}

const char *sp_check_status_name(enum sp_check_status status)
{
    static const char *const names[] = {"PASS", "FAIL", "WARN", "SKIP", "INCONCLUSIVE"};

    return names[status];
}

size_t sp_checks_with(const struct sp_checks *checks, enum sp_check_status status)
{
    size_t count = 0;

    for (size_t i = 0; i < checks->count; i++)
        count += checks->item[i]->status == status;
    return count;
}

/* ---- what they amount to ---- */

static int code_of(const struct sp_check *check)
{
    if (check->status == SP_CHECK_FAIL)
        return check->code;
    return check->status == SP_CHECK_INCONCLUSIVE ? SP_EINCONCLUSIVE : SP_OK;
}

static const char *text_of(const json_t *value)
{
    return json_is_string(value) ? json_string_value(value) : "";
}

static int say(const struct sp_check *check, int code)
{
    const char *actual = text_of(check->actual);

    sp_err(code, "%s: %s%s%s", check->id, code == SP_EINCONCLUSIVE ? "inconclusive" : "failed", actual[0] ? ": " : "",
           actual);
    return check->remedy ? sp_err_hint(code, "%s", check->remedy) : code;
}

int sp_checks_code(const struct sp_checks *checks)
{
    static const int order[] = {SP_EDATA, SP_EHANG, SP_EFAIL, SP_EINCONCLUSIVE};

    for (size_t k = 0; k < sizeof order / sizeof *order; k++)
        for (size_t i = 0; i < checks->count; i++)
            if (code_of(checks->item[i]) == order[k])
                return say(checks->item[i], order[k]);
    return SP_OK;
}

static json_t *check_json(const struct sp_check *check)
{
    return json_pack("{s:s, s:i, s:s, s:O?, s:O?, s:s?, s:f, s:s?}", "id", check->id, "level", check->level, "status",
                     sp_check_status_name(check->status), "expected", check->expected, "actual", check->actual, "unit",
                     check->unit, "duration_ms", check->duration_ms, "remedy", check->remedy);
}

json_t *sp_checks_json(const struct sp_checks *checks)
{
    json_t *list = json_array();

    for (size_t i = 0; list && i < checks->count; i++)
        (void)json_array_append_new(list, check_json(checks->item[i]));
    return list;
}
