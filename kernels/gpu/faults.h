/*
 * faults.h: a fault is what one rank does or has done to it (fault_acts.c, in a process each), and what must come of it
 * (fault_verdicts.c, afterwards).
 */
#ifndef GPU_FAULTS_H
#define GPU_FAULTS_H

#include "fleet.h"
#include "options.h"

enum {
    FAULT_DATA_BYTES = 1 << 20,
    FAULT_COUNT = 8192,   /* elements of a call */
    FAULT_PATIENCE_S = 20 /* how long a survivor waits for the abort */
};

/* What a rank saw, in shared memory. */
typedef struct {
    double noticed_at; /* when this rank's main thread knew that it is over */
    double told_at;    /* when the library's watcher said so */
    int create;        /* par_create()'s result where that is the test */
    int status;        /* par_status() at the end */
    int raised;        /* the engine's own synchronisation failed */
    int wrong;         /* wrong elements */
    int left;          /* memory files still open or mapped after par_close() */
    par_report report;
    char text[256]; /* par_last_error(), or what the all-gather said */
    char log[512];  /* what the library logged */
} fault_witness;

typedef struct {
    double struck_at;  /* when the fault happened */
    volatile int done; /* how many survivors have seen the end */
    fault_witness seen[RANKS_MAX];
} fault_scene;

typedef struct fault fault;

typedef struct {
    const fault *fault;
    const dataset *data;
    int world, victim, algorithm, device[RANKS_MAX];
    fault_scene *scene;
} fault_job;

struct fault {
    const char *name;
    int (*act)(const fault_job *j, fleet *f, fault_witness *w); /* null: the test is about par_create() */
    int (*verdict)(const fault_job *j, const ranks_outcome *o, char *why, size_t size); /* 1: as it must be */
    int kills; /* the victim dies */
    uint32_t mode;
    double timeout_s, late_s;
    unsigned algorithms; /* it is tried with these */
};

/* A rank, for ranks_run(); its context is a fault_job. */
int fault_body(ranks *self, void *context);

/* What ranks do; the victim something else. */
int fault_act_kill_loop(const fault_job *j, fleet *f, fault_witness *w);
int fault_act_kill_graph(const fault_job *j, fleet *f, fault_witness *w);
int fault_act_absent(const fault_job *j, fleet *f, fault_witness *w);
int fault_act_late(const fault_job *j, fleet *f, fault_witness *w);
int fault_act_overlap(const fault_job *j, fleet *f, fault_witness *w);
int fault_act_abort(const fault_job *j, fleet *f, fault_witness *w);

/* Is it as it must be? If not, `why` says what is not. */
int fault_verdict_dead(const fault_job *j, const ranks_outcome *o, char *why, size_t size);
int fault_verdict_absent(const fault_job *j, const ranks_outcome *o, char *why, size_t size);
int fault_verdict_late(const fault_job *j, const ranks_outcome *o, char *why, size_t size);
int fault_verdict_overlap(const fault_job *j, const ranks_outcome *o, char *why, size_t size);
int fault_verdict_abort(const fault_job *j, const ranks_outcome *o, char *why, size_t size);
int fault_verdict_create(const fault_job *j, const ranks_outcome *o, char *why, size_t size);

/* How long after the fault a rank knew. In engine mode its main thread waits for the driver to report the trap. */
double fault_knew_after(const fault_job *j, int rank);

#endif
