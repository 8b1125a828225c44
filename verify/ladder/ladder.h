/*
 * The ladder: levels of checks, each of which needs the one below it.
 *
 *     1 grant       what the driver and the platform promise (grant.c)
 *     2 transfers   loads, stores and copies between all pairs of GPUs, and through host memory (level2.c)
 *     3 kernels     every algorithm against a reference, as the install will load it (level3.c)
 *     4 soak        the same for long, and its time against NCCL (level4.c)
 *
 * A level adds checks to the ladder (verdict/check.h). It returns an error only when it could not be run at all; a
 * check that fails is a result, not an error.
 *
 * A new level is a function, its line in sp_rungs[] (rungs.c), and one more of SP_LEVELS.
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
#include "verify/verdict/check.h"

enum { SP_LEAST_SECONDS = 1 }; /* in less no program on GPUs starts */

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

/* "3": SP_EUSAGE where there is no such level. */
int sp_ladder_level(int *out, const char *text);

/* Run the levels up to ladder->level, lowest first; stops at an error, and below level 2 unless what was promised is
 * good enough to try. What fails at level 2 does not end the climb: one backend's transfers say nothing about
 * another's. */
int sp_ladder_run(struct sp_ladder *ladder);

/* "grant.processes" is INCONCLUSIVE, and names them, where others compute on these GPUs by this topology, or now; where
 * nobody does, nothing is said. gpus: as --gpus takes it, or NULL. An error where no driver answers. */
int sp_check_others(struct sp_checks *checks, const struct sp_topology *topology);
int sp_check_others_now(struct sp_checks *checks, const char *gpus);

/* The levels. */
int sp_run_grant(struct sp_ladder *ladder);
int sp_run_transfers(struct sp_ladder *ladder);
int sp_run_kernels(struct sp_ladder *ladder);
int sp_run_soak(struct sp_ladder *ladder);

#endif
