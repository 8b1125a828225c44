/*
 * The ladder: levels of checks, each of which needs the one below it.
 *
 *     1 grant       what the driver and the platform promise (verify/ladder/grant.c)
 *     2 transfers   loads, stores and copies between all pairs of GPUs, and through host memory
 * (verify/ladder/level2.c) 3 kernels     every algorithm against a reference, as the install will load it
 * (verify/ladder/level3.c) 4 soak        the same for long, and its time against NCCL (verify/ladder/level4.c)
 *
 * A level adds checks to the ladder. A check starts as INCONCLUSIVE: one that nobody brought to an end never passes. A
 * level returns an error only when it could not be run at all; a check that fails is a result, not an error.
 *
 * A new level is a function, its line in sp_rungs[] (rungs.c), and nothing else.
 *
 *     struct sp_ladder ladder = {.topology = &topology, .findings = &findings, .level = 1};
 *     rc = sp_ladder_run(&ladder);
 *     code = sp_checks_code(&ladder.checks);      // with the message
 *     sp_checks_free(&ladder.checks);
 */
#ifndef SP_LADDER_LADDER_H
#define SP_LADDER_LADDER_H

#include "base/proc.h"
#include "verify/machine/findings.h"

enum sp_check_status { SP_CHECK_PASS, SP_CHECK_FAIL, SP_CHECK_WARN, SP_CHECK_SKIP, SP_CHECK_INCONCLUSIVE };

enum { SP_CHECK_ID = 64 };

enum { SP_LEAST_SECONDS = 1 }; /* in less no program on GPUs starts */

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

struct sp_ladder {
    const struct sp_topology *topology; /* the chosen GPUs */
    const struct sp_findings *findings; /* of it */
    struct sp_candidates candidates;    /* which backends are worth a try */
    bool replay;                        /* the topology is of a recording: nothing may be run on GPUs */
    int level;                          /* run up to this one */
    double seconds;                     /* time limit of one child; 0: the level's own */
    double minutes;                     /* of the soak; 0: none */
    const char *site;                   /* the install whose all-reduce is run; NULL: none was found */
    const char *target;                 /* words that name it in a next command, " --site DIR"; NULL: none */
    void (*progress)(const char *text); /* what runs now, for people; may be NULL */
    sp_proc_seen *seen;                 /* gets what children say on standard error; may be NULL */
    void *context;                      /* of seen */
    struct sp_checks checks;
};

struct sp_rung {
    int level; /* 0 ends the list */
    const char *name;
    const char *what;
    bool replay; /* makes sense of a recording */
    int (*run)(struct sp_ladder *ladder);
};

extern const struct sp_rung sp_rungs[];

/* The words of the target, or none. */
const char *sp_ladder_target(const struct sp_ladder *ladder);

/* The highest level that there is. */
int sp_ladder_top(void);

/* "3": SP_EUSAGE where there is no such level. */
int sp_ladder_level(int *out, const char *text);

/* Run the levels up to ladder->level, lowest first; stops at an error, and below level 2 unless what was promised is
 * good enough to try. What fails at level 2 does not end the climb: one backend's transfers say nothing about
 * another's. */
int sp_ladder_run(struct sp_ladder *ladder);

/* ---- checks ---- */

/* A new check, INCONCLUSIVE; *out stays valid while more are added. */
int sp_check_new(struct sp_check **out, struct sp_checks *checks, int level, const char *id_fmt, ...)
    __attribute__((format(printf, 4, 5)));
void sp_checks_free(struct sp_checks *checks);

/* Text, or a number with the check's unit. */
void sp_check_expect(struct sp_check *check, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void sp_check_actual(struct sp_check *check, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void sp_check_numbers(struct sp_check *check, double expected, double actual, const char *unit);
void sp_check_remedy(struct sp_check *check, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* A program on GPUs was killed, or gave up, after fewer seconds than the level would give it: that is no finding about
 * the machine, and more time is the remedy. Nothing where ladder->seconds is no less than usual. */
void sp_check_cut(struct sp_check *check, const struct sp_ladder *ladder, double usual);

/* Milliseconds of a clock that only goes forward; duration_ms is a difference. */
double sp_now_ms(void);

const char *sp_check_status_name(enum sp_check_status status);
size_t sp_checks_with(const struct sp_checks *checks, enum sp_check_status status);

/* What all checks amount to: SP_EDATA before SP_EHANG before SP_EFAIL before SP_EINCONCLUSIVE, else SP_OK. Other than
 * SP_OK: with a message that names the first such check, and its remedy as the hint. */
int sp_checks_code(const struct sp_checks *checks);

/* The array for --json. */
json_t *sp_checks_json(const struct sp_checks *checks);

/* The levels. */
int sp_run_grant(struct sp_ladder *ladder);
int sp_run_transfers(struct sp_ladder *ladder);
int sp_run_kernels(struct sp_ladder *ladder);
int sp_run_soak(struct sp_ladder *ladder);

#endif
