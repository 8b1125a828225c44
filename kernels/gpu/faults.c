/*
 * smoke --faults: what happens when a rank dies, does not come, is late, or runs two calls at once? Each fault is
 * provoked in processes of its own. A fault must end as the design says: within a second when a process died, at the
 * time limit when a rank is absent, not at all when it is only late; the report must name the right rank; and nothing
 * may be left: no process, no memory file, no GPU memory. When a process died it is also said how soon the library's
 * log named it: an engine that notices by itself waits for nobody.
 */
#include "cuda.h"
#include "fleet.h"
#include "options.h"
#include "probe.h"
#include "report.h"

#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    DATA_BYTES = 1 << 20,
    COUNT = 8192, /* elements of a call */
    GRAPH_CALLS = 50,
    KILL_AT = 200,      /* eager calls before the victim dies */
    KILL_AT_REPLAY = 5, /* or replays: few enough for ranks that take turns on one GPU, 10 ms a call */
    PATIENCE_S = 20     /* how long a survivor waits for the abort */
};

static const double dead_limit_s = 1.0;  /* from the death of a process until every rank knows */
static const double raise_limit_s = 5.0; /* until the engine's own synchronisation fails: the driver's part in it */

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
} witness;

typedef struct {
    double struck_at;  /* when the fault happened */
    volatile int done; /* how many survivors have seen the end */
    witness seen[RANKS_MAX];
} scene;

typedef struct fault fault;

typedef struct {
    const fault *fault;
    const dataset *data;
    int world, victim, algorithm, device[RANKS_MAX];
    scene *scene;
} job;

struct fault {
    const char *name;
    int (*act)(const job *j, fleet *f, witness *w); /* null: the test is about par_create() */
    int (*verdict)(const job *j, const ranks_outcome *o, char *why, size_t size); /* 1: as it must be */
    int kills;                                                                    /* the victim dies */
    uint32_t mode;
    double timeout_s, late_s;
    unsigned algorithms; /* it is tried with these */
};

/* --- what all acts share --------------------------------------------------------------------- */

static void keep_log(void *context, const char *line)
{
    witness *w = context;
    size_t used = strlen(w->log);

    if (w->told_at <= 0 && strstr(line, "aborted") != NULL)
        w->told_at = seconds_now();
    snprintf(w->log + used, sizeof(w->log) - used, "%s%s", used != 0 ? "; " : "", line);
}

static void strike(const job *j)
{
    j->scene->struck_at = seconds_now();
}

static _Noreturn void die(const job *j)
{
    strike(j);
    kill(getpid(), SIGKILL);
    for (;;)
        pause();
}

static int call_once(const job *j, fleet *f, int set)
{
    const void *in = f->input[0];
    void *out = f->work[set][0] + FLEET_MARGIN;

    return fleet_all_reduce(f, set, &in, &out, COUNT, j->data->dtype, j->algorithm);
}

static int wait_stream(fleet *f, int set)
{
    return (int)cudaStreamSynchronize((cudaStream_t)f->stream[set][0]);
}

/* This rank knows; note when, and how it learned. */
static int notice(const job *j, fleet *f, witness *w)
{
    w->noticed_at = seconds_now();
    w->status = par_status(f->comm[0]);
    par_last_report(f->comm[0], &w->report);
    __atomic_add_fetch(&j->scene->done, 1, __ATOMIC_SEQ_CST);
    return CODE_OK;
}

/* Memory files that this process still holds, as descriptors or mappings. */
static int memory_files(void)
{
    char path[300], target[300], line[600];
    DIR *dir = opendir("/proc/self/fd");
    FILE *maps = fopen("/proc/self/maps", "re");
    struct dirent *e;
    int n = 0;

    while (dir != NULL && (e = readdir(dir)) != NULL) {
        ssize_t length;
        snprintf(path, sizeof(path), "/proc/self/fd/%s", e->d_name);
        length = readlink(path, target, sizeof(target) - 1);
        target[length > 0 ? length : 0] = '\0';
        n += strncmp(target, "/memfd:", 7) == 0;
    }
    while (maps != NULL && fgets(line, sizeof(line), maps) != NULL)
        n += strstr(line, "/memfd:") != NULL && strstr(line, "par") != NULL;
    if (dir != NULL)
        closedir(dir);
    if (maps != NULL)
        fclose(maps);
    return n;
}

static void sleep_until_done(const job *j, int survivors)
{
    double end = seconds_now() + PATIENCE_S;

    while (j->scene->done < survivors && seconds_now() < end)
        seconds_sleep(0.01);
}

/* --- acts ------------------------------------------------------------------------------------ */

static int act_kill_loop(const job *j, fleet *f, witness *w)
{
    double end = seconds_now() + PATIENCE_S;
    int i, rc = 0, raised = 0;

    for (i = 0; rc == 0 && raised == 0 && seconds_now() < end; i++) {
        rc = call_once(j, f, 0);
        if (i == KILL_AT && f->first == j->victim)
            die(j);
        if (rc == 0 && i % 8 == 7)
            raised = wait_stream(f, 0);
        rc = rc != 0 ? rc : par_status(f->comm[0]);
    }
    w->raised = raised != 0;
    return notice(j, f, w);
}

static int capture(const job *j, fleet *f, int set, fleet_graph *graph)
{
    int i, rc = fleet_capture_begin(f, set), ended;

    for (i = 0; i < GRAPH_CALLS && rc == 0; i++)
        rc = fleet_par(f, call_once(j, f, set), "all-reduce");
    ended = fleet_capture_end(f, set, graph);
    return rc != 0 ? rc : ended;
}

static int act_kill_graph(const job *j, fleet *f, witness *w)
{
    double end = seconds_now() + PATIENCE_S;
    fleet_graph graph;
    int i, rc = capture(j, f, 0, &graph), raised = 0;

    if (rc != 0)
        return rc;
    for (i = 0; rc == 0 && raised == 0 && seconds_now() < end; i++) {
        rc = fleet_launch(f, 0, &graph);
        if (i == KILL_AT_REPLAY && f->first == j->victim)
            die(j);
        if (rc == 0 && i % 4 == 3)
            raised = wait_stream(f, 0);
        rc = rc != 0 ? rc : par_status(f->comm[0]);
    }
    if (raised == 0) { /* status told first, with nothing under way; an engine that does not ask it replays once more */
        rc = fleet_launch(f, 0, &graph);
        raised = wait_stream(f, 0);
    }
    w->raised = raised != 0 || rc == CODE_CANNOT;
    return notice(j, f, w);
}

/* The victim is alive and well, but does not call. */
static int act_absent(const job *j, fleet *f, witness *w)
{
    int rc = 0;

    if (ranks_barrier(f->ranks) != 0)
        return CODE_HANG;
    if (f->first == j->victim) {
        strike(j);
        sleep_until_done(j, j->world - 1);
        return notice(j, f, w);
    }
    rc = fleet_par(f, call_once(j, f, 0), "all-reduce");
    w->raised = wait_stream(f, 0) != 0;
    seconds_sleep(0.05); /* the watcher reads the notes of the kernel */
    notice(j, f, w);
    return rc;
}

static int act_late(const job *j, fleet *f, witness *w)
{
    fleet_call c = {j->algorithm, j->data->dtype, COUNT, 64, 0, 0};
    uint64_t wrong = 0;
    int rc = fleet_tally_reset(f);

    rc = ranks_agree(f->ranks, rc);
    if (rc == 0 && f->first == j->victim) {
        strike(j);
        seconds_sleep(5);
    }
    if (rc == 0)
        rc = fleet_enqueue(f, 0, &c, 0);
    if (rc == 0)
        rc = fleet_finish(f);
    if (rc == 0)
        rc = fleet_tally_read(f, &c, 1, &wrong, NULL);
    w->wrong = wrong != 0;
    notice(j, f, w);
    return rc;
}

/* The victim replays two graphs on two streams at once; the first cannot end because the others come later. */
static int act_overlap(const job *j, fleet *f, witness *w)
{
    fleet_graph graph[2];
    int i, rc = CODE_OK;

    for (i = 0; i < 2 && rc == 0; i++)
        rc = capture(j, f, i, &graph[i]);
    rc = ranks_agree(f->ranks, rc);
    if (rc == 0 && f->first != j->victim)
        seconds_sleep(0.5);
    else
        strike(j);
    for (i = 0; i < 2 && rc == 0; i++)
        rc = fleet_launch(f, i, &graph[i]);
    w->raised = wait_stream(f, 0) != 0 || wait_stream(f, 1) != 0;
    seconds_sleep(0.05);
    return notice(j, f, w);
}

static int act_abort(const job *j, fleet *f, witness *w)
{
    if (ranks_barrier(f->ranks) != 0)
        return CODE_HANG;
    if (f->first == j->victim) {
        seconds_sleep(0.2);
        strike(j);
        par_abort(f->comm[0], "the test wants it");
        return notice(j, f, w);
    }
    (void)call_once(j, f, 0);
    w->raised = wait_stream(f, 0) != 0;
    seconds_sleep(0.05);
    return notice(j, f, w);
}

/* --- verdicts -------------------------------------------------------------------------------- */

static int blame(char *why, size_t size, int rank, const char *what, double got)
{
    if (why[0] == '\0')
        snprintf(why, size, "rank %d: %.300s (%.2f)", rank, what, got);
    return 0;
}

/* How long after the fault a rank knew. In engine mode its main thread waits for the driver to report the trap. */
static double knew_after(const job *j, int rank)
{
    const witness *w = &j->scene->seen[rank];
    double at = j->fault->mode == PAR_MODE_ENGINE ? w->told_at : w->noticed_at;

    return at > 0 ? at - j->scene->struck_at : PATIENCE_S;
}

/* Every survivor knew in time, by that error, with the victim's rank. */
static int survivors_know(const job *j, int error, double earliest, double latest, char *why, size_t size)
{
    int r, good = 1;

    for (r = 0; r < j->world; r++) {
        const witness *w = &j->scene->seen[r];
        double after = knew_after(j, r);
        if (r == j->victim)
            continue;
        if (after < earliest || after > latest)
            good = blame(why, size, r, "knew after seconds", after);
        else if (w->report.error != error)
            good = blame(why, size, r, w->report.text[0] != '\0' ? w->report.text : "no report, or another error",
                         w->report.error);
        else if (w->report.peer != j->victim)
            good = blame(why, size, r, "the report names another rank", w->report.peer);
        else if (w->left != 0)
            good = blame(why, size, r, "memory files left after close", w->left);
    }
    return good;
}

static int verdict_dead(const job *j, const ranks_outcome *o, char *why, size_t size)
{
    int good = survivors_know(j, PAR_ERR_PEER_DIED, 0, dead_limit_s, why, size), r;

    (void)o;
    for (r = 0; r < j->world && j->fault->mode == PAR_MODE_ENGINE; r++) {
        const witness *w = &j->scene->seen[r];
        if (r == j->victim)
            continue;
        if (!w->raised)
            good = blame(why, size, r, "engine mode, but its synchronisation raised nothing", 0);
        else if (w->noticed_at - j->scene->struck_at > raise_limit_s)
            good = blame(why, size, r, "its synchronisation raised after seconds", w->noticed_at - j->scene->struck_at);
    }
    return good;
}

static int names_victim(const job *j, const char *line)
{
    char name[16];

    snprintf(name, sizeof(name), "rank %d", j->victim);
    return strstr(line, name) != NULL;
}

static int verdict_absent(const job *j, const ranks_outcome *o, char *why, size_t size)
{
    double limit = j->fault->timeout_s;
    int good = survivors_know(j, PAR_ERR_TIMEOUT, limit - 0.2, limit + 1, why, size), r;

    (void)o;
    for (r = 0; r < j->world; r++)
        if (j->scene->seen[r].status != PAR_ERR_ABORTED)
            good = blame(why, size, r, "status is not aborted", j->scene->seen[r].status);
    return good;
}

static int verdict_late(const job *j, const ranks_outcome *o, char *why, size_t size)
{
    int r, good = o->code == 0;

    if (!good)
        blame(why, size, 0, "a late rank is no failure, but the code is", o->code);
    for (r = 0; r < j->world; r++) {
        const witness *w = &j->scene->seen[r];
        if (w->status != 0 || w->wrong != 0)
            good = blame(why, size, r, "aborted or wrong data", w->status);
        else if (r != j->victim && !names_victim(j, w->log))
            good = blame(why, size, r, w->log[0] != '\0' ? w->log : "nothing logged about the late rank", 0);
    }
    return good;
}

static int verdict_overlap(const job *j, const ranks_outcome *o, char *why, size_t size)
{
    const witness *w = &j->scene->seen[j->victim];
    int r, good = 1;

    (void)o;
    if (w->report.error != PAR_ERR_OVERLAP)
        good = blame(why, size, j->victim, "the report is not about an overlap", w->report.error);
    if (w->noticed_at - j->scene->struck_at > 1)
        good = blame(why, size, j->victim, "knew after seconds", w->noticed_at - j->scene->struck_at);
    for (r = 0; r < j->world; r++)
        if (j->scene->seen[r].status != PAR_ERR_ABORTED)
            good = blame(why, size, r, "status is not aborted", j->scene->seen[r].status);
    return good;
}

static int verdict_abort(const job *j, const ranks_outcome *o, char *why, size_t size)
{
    (void)o;
    return survivors_know(j, PAR_ERR_ABORTED, 0, dead_limit_s, why, size);
}

/* par_create() failed on all others, each with a text that names the victim. */
static int verdict_create(const job *j, const ranks_outcome *o, char *why, size_t size)
{
    double limit = j->fault->kills ? dead_limit_s : 2 * j->fault->timeout_s + 1;
    int r, good = 1;

    (void)o;
    for (r = 0; r < j->world; r++) {
        const witness *w = &j->scene->seen[r];
        double after = w->noticed_at - j->scene->struck_at;
        if (r == j->victim)
            continue;
        if (w->create == 0)
            good = blame(why, size, r, "par_create() succeeded or never returned", 0);
        else if (after > limit)
            good = blame(why, size, r, "knew after seconds", after);
        else if (!names_victim(j, w->text))
            good = blame(why, size, r, w->text, w->create);
        else if (w->left != 0)
            good = blame(why, size, r, "memory files left", w->left);
    }
    return good;
}

/* --- the faults ------------------------------------------------------------------------------ */

enum {
    ONE_HOST = 1 << PAR_HOST_TWO_SHOT,
    HOST = 1 << PAR_HOST_ONE_SHOT | 1 << PAR_HOST_TWO_SHOT | 1 << PAR_HOST_TWO_SHOT_CHUNKED,
    ONE_EACH = ONE_HOST | 1 << PAR_PUSH_TWO_SHOT,
    EACH = HOST | 1 << PAR_PUSH_ONE_SHOT | 1 << PAR_PULL_TWO_SHOT
};

static const fault faults[] = {
    {"kill-loop", act_kill_loop, verdict_dead, 1, PAR_MODE_STATUS, 30, 10, EACH},
    {"kill-graph", act_kill_graph, verdict_dead, 1, PAR_MODE_STATUS, 30, 10, ONE_EACH},
    {"kill-graph-engine", act_kill_graph, verdict_dead, 1, PAR_MODE_ENGINE, 30, 10, ONE_EACH},
    {"dead-at-create", NULL, verdict_create, 1, PAR_MODE_STATUS, 3, 1, ONE_HOST},
    {"absent-at-create", NULL, verdict_create, 0, PAR_MODE_STATUS, 3, 1, ONE_EACH},
    {"absent", act_absent, verdict_absent, 0, PAR_MODE_STATUS, 2, 0.5, EACH},
    {"late", act_late, verdict_late, 0, PAR_MODE_STATUS, 30, 1, ONE_EACH},
    {"overlap", act_overlap, verdict_overlap, 0, PAR_MODE_STATUS, 10, 5, ONE_EACH},
    {"abort", act_abort, verdict_abort, 0, PAR_MODE_STATUS, 10, 5, ONE_EACH},
};

enum { FAULTS = sizeof(faults) / sizeof(faults[0]) };

/* --- one process ----------------------------------------------------------------------------- */

static int create_only(const job *j, ranks *self, witness *w, const par_options *wanted)
{
    par_comm *comm = NULL;
    int rc = CUDA(cudaSetDevice(j->device[self->rank]));

    if (rc == 0)
        rc = CUDA(cudaFree(NULL)); /* the start of CUDA, which takes its time, is not what is measured */
    rc = ranks_agree(self, rc);
    if (rc != 0)
        return rc;
    self->limit_s = wanted->timeout_s;
    if (self->rank == j->victim) {
        if (j->fault->kills)
            die(j);
        strike(j);
        sleep_until_done(j, j->world - 1);
        return CODE_OK;
    }
    w->create = par_create(&comm, self->rank, j->world, j->device[self->rank], ranks_allgather, self, wanted);
    w->noticed_at = seconds_now();
    snprintf(w->text, sizeof(w->text), "%s; %s", par_last_error(), rank_text());
    rank_clear();
    par_close(comm);
    w->left = memory_files();
    __atomic_add_fetch(&j->scene->done, 1, __ATOMIC_SEQ_CST);
    return CODE_OK;
}

static int body(ranks *self, void *context)
{
    const job *j = context;
    witness *w = &j->scene->seen[self->rank];
    par_options wanted = PAR_OPTIONS_INIT;
    fleet f;
    int rc;

    wanted.with = par_algorithm_transport(j->algorithm) == PAR_HOST ? PAR_WITH_HOST : PAR_WITH_PEER;
    wanted.mode = j->fault->mode;
    wanted.timeout_s = j->fault->timeout_s;
    wanted.late_s = j->fault->late_s;
    wanted.log = keep_log;
    wanted.log_context = w;
    if (j->fault->act == NULL)
        return create_only(j, self, w, &wanted);
    rc = fleet_open(&f, self, j->world, j->device, 0, &wanted);
    if (rc == 0)
        rc = fleet_load(&f, j->data, DATA_BYTES / 2);
    rank_note("%s", j->fault->name);
    if (rc == 0)
        rc = j->fault->act(j, &f, w);
    rank_note("closing");
    fleet_close(&f);
    w->left = memory_files();
    return rc;
}

/* --- the parent ------------------------------------------------------------------------------ */

/* When the libraries of the first and the last survivor said so; empty if one never did. */
static void say_told(const job *j, char *out, size_t size)
{
    double first = PATIENCE_S, last = 0;
    int r, told = 1;

    for (r = 0; r < j->world; r++) {
        double after = j->scene->seen[r].told_at - j->scene->struck_at;
        if (r == j->victim)
            continue;
        told = told && after >= 0;
        first = after < first ? after : first;
        last = after > last ? after : last;
    }
    out[0] = '\0';
    if (told)
        snprintf(out, size, " (logged after %.1f to %.1f ms)", 1e3 * first, 1e3 * last);
}

static double latest_notice(const job *j)
{
    double latest = 0;
    int r;

    for (r = 0; r < j->world; r++)
        if (r != j->victim && knew_after(j, r) > latest)
            latest = knew_after(j, r);
    return latest;
}

static void run_one(job *j, const fault *which, int algorithm)
{
    ranks_outcome outcome;
    char id[96], why[400] = "", told[64] = "";
    const char *report;
    int good, first = j->victim == 0 ? 1 : 0;

    memset(j->scene, 0, sizeof(*j->scene));
    j->fault = which;
    j->algorithm = algorithm;
    ranks_run(&outcome, j->world, 60, which->kills ? 1u << j->victim : 0, body, j);
    good = which->verdict(j, &outcome, why, sizeof(why));
    if (outcome.timed_out || outcome.stray) {
        good = 0;
        snprintf(why, sizeof(why), "%.300s", outcome.stray ? "a process was left behind" : outcome.rank[first].text);
    }
    report = j->scene->seen[which->verdict == verdict_overlap ? j->victim : first].report.text;
    snprintf(id, sizeof(id), "fault/%s/%s", which->name, par_algorithm_name(algorithm));
    if (which->kills)
        say_told(j, told, sizeof(told));
    report_check(id, good ? CHECK_PASS : CHECK_FAIL,
                 good                ? 0
                 : outcome.timed_out ? CODE_HANG
                                     : CODE_CHECK,
                 outcome.seconds, "%.2f s after the fault%s: %s", latest_notice(j), told,
                 why[0] != '\0'      ? why
                 : report[0] != '\0' ? report
                                     : j->scene->seen[first].text);
}

/* What is free on each GPU must be what was free before, but for the noise of the driver. */
static void check_memory(const probe *before, const options *o)
{
    const double noise = 32 << 20;
    double begin = seconds_now(), most = 0;
    probe after;
    int i, rc = probe_gpus(&after, o);

    for (i = 0; i < after.gpus && rc == 0; i++) {
        double lost = (double)before->free_bytes[i] - (double)after.free_bytes[i];
        most = lost > most ? lost : most;
    }
    report_check("fault/nothing-left", rc == 0 && most <= noise ? CHECK_PASS : CHECK_FAIL,
                 rc != 0         ? rc
                 : most <= noise ? 0
                                 : CODE_CHECK,
                 seconds_now() - begin, "%.1f MiB of GPU memory less than before", most / 1048576);
}

int faults_command(const options *o)
{
    dataset data;
    job j = {NULL, &data, 0, 0, 0, {0}, NULL};
    unsigned transports;
    probe p;
    int i, a, r, turn = 0, rc = probe_gpus(&p, o);

    if (rc != 0)
        return rc;
    if (p.gpus < 2)
        return rank_fail(CODE_CANNOT, "the fault tests need two GPUs, there is %d", p.gpus);
    transports = probe_transports(&p, o);
    j.world = p.gpus;
    for (r = 0; r < p.gpus; r++)
        j.device[r] = p.device[r];
    j.scene = shared_alloc(sizeof(*j.scene));
    rc = dataset_init(&data, PAR_BF16, DATA_BYTES, j.world, 1u << j.world, o->seed);
    if (j.scene == NULL && rc == 0)
        rc = rank_fail(CODE_CANNOT, "no shared memory");
    for (i = 0; i < FAULTS && rc == 0; i++)
        for (a = 1; a < PAR_ALGORITHMS; a++)
            if (((unsigned)faults[i].algorithms & o->algorithms) >> a & 1u &&
                transports >> par_algorithm_transport(a) & 1u) {
                j.victim = turn++ % 3 == 2 ? 0 : j.world - 1; /* rank 0 has its own ways to be special */
                run_one(&j, &faults[i], a);
            }
    if (rc == 0)
        check_memory(&p, o);
    dataset_free(&data);
    shared_free(j.scene, sizeof(*j.scene));
    return rc;
}
