/*
 * Checks: what a level of the ladder found out, one fact about some GPUs each.
 *
 * A check starts as INCONCLUSIVE: one that nobody brought to an end never passes. What they prove together is the
 * verdict's (verdict.h), which has a table of their ids.
 *
 *     rc = sp_check_new(&check, &checks, 2, "store.%zu-%zu", from, to);
 *     ...
 *     code = sp_checks_code(&checks);      // with the message
 *     sp_checks_free(&checks);
 */
#ifndef SP_VERDICT_CHECK_H
#define SP_VERDICT_CHECK_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

enum { SP_LEVELS = 4 }; /* a check is of level 1 to this; they are in ladder/rungs.c */

enum sp_check_status { SP_CHECK_PASS, SP_CHECK_FAIL, SP_CHECK_WARN, SP_CHECK_SKIP, SP_CHECK_INCONCLUSIVE };

enum { SP_CHECK_ID = 64 };

struct sp_check {
    char id[SP_CHECK_ID]; /* "grant.acs", "store.0-1" */
    int level;
    enum sp_check_status status;
    int code;                  /* of a FAIL: SP_EFAIL, SP_EDATA or SP_EHANG */
    json_t *expected, *actual; /* text or numbers; NULL: null */
    const char *unit;          /* "GB/s", "us"; NULL: none */
    bool cut;                  /* by a time limit that was asked for, below the level's own: nothing was found */
    double duration_ms;
    char *remedy; /* NULL: nothing to do */
};

struct sp_checks {
    struct sp_check **item;
    size_t count;
};

/* A new check, INCONCLUSIVE; *out stays valid while more are added. */
int sp_check_new(struct sp_check **out, struct sp_checks *checks, int level, const char *id_fmt, ...)
    __attribute__((format(printf, 4, 5)));
void sp_checks_free(struct sp_checks *checks);

/* NULL where there is none. */
struct sp_check *sp_check_find(const struct sp_checks *checks, const char *id);

/* Text, or a number with the check's unit. */
void sp_check_expect(struct sp_check *check, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void sp_check_actual(struct sp_check *check, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void sp_check_numbers(struct sp_check *check, double expected, double actual, const char *unit);
void sp_check_remedy(struct sp_check *check, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* A program on GPUs was killed, or gave up, after fewer seconds than the level would give it: that is no finding about
 * the machine, and more time is the remedy. limit: the one that was asked for, 0: none. Nothing where that is no
 * less than usual. */
void sp_check_cut(struct sp_check *check, double limit, double usual);

/* Milliseconds of a clock that only goes forward; duration_ms is a difference. */
double sp_now_ms(void);

const char *sp_check_status_name(enum sp_check_status status);
size_t sp_checks_with(const struct sp_checks *checks, enum sp_check_status status);

/* What all checks amount to: SP_EDATA before SP_EHANG before SP_EFAIL before SP_EINCONCLUSIVE, else SP_OK. Other than
 * SP_OK: with a message that names the first such check, and its remedy as the hint. */
int sp_checks_code(const struct sp_checks *checks);

/* The array for --json. */
json_t *sp_checks_json(const struct sp_checks *checks);

#endif
