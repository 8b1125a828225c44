#include "cuda.h"
#include "faults.h"

#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum {
    GRAPH_CALLS = 50,
    KILL_AT = 200,     /* eager calls before the victim dies */
    KILL_AT_REPLAY = 5 /* or replays: few enough for ranks that take turns on one GPU, 10 ms a call */
};

/* --- what all acts share --------------------------------------------------------------------- */

static void keep_log(void *context, const char *line)
{
    fault_witness *w = context;
    size_t used = strlen(w->log);

    if (w->told_at <= 0 && strstr(line, "aborted") != NULL)
        w->told_at = seconds_now();
    snprintf(w->log + used, sizeof(w->log) - used, "%s%s", used != 0 ? "; " : "", line);
}

static void strike(const fault_job *j)
{
    j->scene->struck_at = seconds_now();
}

static _Noreturn void die(const fault_job *j)
{
    strike(j);
    kill(getpid(), SIGKILL);
    for (;;)
        pause();
}

static int call_once(const fault_job *j, fleet *f, int set)
{
    const void *in = f->input[0];
    void *out = f->work[set][0] + FLEET_MARGIN;

    return fleet_all_reduce(f, set, &in, &out, FAULT_COUNT, j->data->dtype, j->algorithm);
}

static int wait_stream(fleet *f, int set)
{
    return (int)cudaStreamSynchronize((cudaStream_t)f->stream[set][0]);
}

/* This rank knows; note when, and how it learned. */
static int notice(const fault_job *j, fleet *f, fault_witness *w)
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

static void sleep_until_done(const fault_job *j, int survivors)
{
    double end = seconds_now() + FAULT_PATIENCE_S;

    while (j->scene->done < survivors && seconds_now() < end)
        seconds_sleep(0.01);
}

/* --- acts ------------------------------------------------------------------------------------ */

int fault_act_kill_loop(const fault_job *j, fleet *f, fault_witness *w)
{
    double end = seconds_now() + FAULT_PATIENCE_S;
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

static int capture(const fault_job *j, fleet *f, int set, fleet_graph *graph)
{
    int i, rc = fleet_capture_begin(f, set), ended;

    for (i = 0; i < GRAPH_CALLS && rc == 0; i++)
        rc = fleet_par(f, call_once(j, f, set), "all-reduce");
    ended = fleet_capture_end(f, set, graph);
    return rc != 0 ? rc : ended;
}

int fault_act_kill_graph(const fault_job *j, fleet *f, fault_witness *w)
{
    double end = seconds_now() + FAULT_PATIENCE_S;
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
int fault_act_absent(const fault_job *j, fleet *f, fault_witness *w)
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

int fault_act_late(const fault_job *j, fleet *f, fault_witness *w)
{
    fleet_call c = {j->algorithm, j->data->dtype, FAULT_COUNT, 64, 0, 0};
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
int fault_act_overlap(const fault_job *j, fleet *f, fault_witness *w)
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

int fault_act_abort(const fault_job *j, fleet *f, fault_witness *w)
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

/* --- one process ----------------------------------------------------------------------------- */

static int create_only(const fault_job *j, ranks *self, fault_witness *w, const par_options *wanted)
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

int fault_body(ranks *self, void *context)
{
    const fault_job *j = context;
    fault_witness *w = &j->scene->seen[self->rank];
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
        rc = fleet_load(&f, j->data, FAULT_DATA_BYTES / 2);
    rank_note("%s", j->fault->name);
    if (rc == 0)
        rc = j->fault->act(j, &f, w);
    rank_note("closing");
    fleet_close(&f);
    w->left = memory_files();
    return rc;
}
