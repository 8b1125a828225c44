/*
 * smoke --faults: what happens when a rank dies, does not come, is late, or runs two calls at once? Each fault is
 * provoked in processes of its own. A fault must end as the design says: within a second when a process died, at the
 * time limit when a rank is absent, not at all when it is only late; the report must name the right rank; and nothing
 * may be left: no process, no memory file, no GPU memory. When a process died it is also said how soon the library's
 * log named it: an engine that notices by itself waits for nobody.
 */
#include "faults.h"
#include "probe.h"
#include "report.h"

#include <stdio.h>
#include <string.h>

enum {
    ONE_HOST = 1 << PAR_HOST_TWO_SHOT,
    HOST = 1 << PAR_HOST_ONE_SHOT | 1 << PAR_HOST_TWO_SHOT | 1 << PAR_HOST_TWO_SHOT_CHUNKED,
    ONE_EACH = ONE_HOST | 1 << PAR_PUSH_TWO_SHOT,
    EACH = HOST | 1 << PAR_PUSH_ONE_SHOT | 1 << PAR_PULL_TWO_SHOT
};

static const fault faults[] = {
    {"kill-loop", fault_act_kill_loop, fault_verdict_dead, 1, PAR_MODE_STATUS, 30, 10, EACH},
    {"kill-graph", fault_act_kill_graph, fault_verdict_dead, 1, PAR_MODE_STATUS, 30, 10, ONE_EACH},
    {"kill-graph-engine", fault_act_kill_graph, fault_verdict_dead, 1, PAR_MODE_ENGINE, 30, 10, ONE_EACH},
    {"dead-at-create", NULL, fault_verdict_create, 1, PAR_MODE_STATUS, 3, 1, ONE_HOST},
    {"absent-at-create", NULL, fault_verdict_create, 0, PAR_MODE_STATUS, 3, 1, ONE_EACH},
    {"absent", fault_act_absent, fault_verdict_absent, 0, PAR_MODE_STATUS, 2, 0.5, EACH},
    {"late", fault_act_late, fault_verdict_late, 0, PAR_MODE_STATUS, 30, 1, ONE_EACH},
    {"overlap", fault_act_overlap, fault_verdict_overlap, 0, PAR_MODE_STATUS, 10, 5, ONE_EACH},
    {"abort", fault_act_abort, fault_verdict_abort, 0, PAR_MODE_STATUS, 10, 5, ONE_EACH},
};

enum { FAULTS = sizeof(faults) / sizeof(faults[0]) };

/* When the libraries of the first and the last survivor said so; empty if one never did. */
static void say_told(const fault_job *j, char *out, size_t size)
{
    double first = FAULT_PATIENCE_S, last = 0;
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

static double latest_notice(const fault_job *j)
{
    double latest = 0;
    int r;

    for (r = 0; r < j->world; r++)
        if (r != j->victim && fault_knew_after(j, r) > latest)
            latest = fault_knew_after(j, r);
    return latest;
}

static void run_one(fault_job *j, const fault *which, int algorithm)
{
    ranks_outcome outcome;
    char id[96], why[400] = "", told[64] = "";
    const char *report;
    int good, first = j->victim == 0 ? 1 : 0;

    memset(j->scene, 0, sizeof(*j->scene));
    j->fault = which;
    j->algorithm = algorithm;
    ranks_run(&outcome, j->world, 60, which->kills ? 1u << j->victim : 0, fault_body, j);
    good = which->verdict(j, &outcome, why, sizeof(why));
    if (outcome.timed_out || outcome.stray) {
        good = 0;
        snprintf(why, sizeof(why), "%.300s", outcome.stray ? "a process was left behind" : outcome.rank[first].text);
    }
    report = j->scene->seen[which->verdict == fault_verdict_overlap ? j->victim : first].report.text;
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
    fault_job j = {NULL, &data, 0, 0, 0, {0}, NULL};
    unsigned algorithms;
    probe p;
    int i, a, r, turn = 0, rc = probe_gpus(&p, o);

    if (rc != 0)
        return rc;
    if (p.gpus < 2)
        return rank_fail(CODE_CANNOT, "the fault tests need two GPUs, there is %d", p.gpus);
    algorithms = probe_algorithms(&p, o);
    j.world = p.gpus;
    for (r = 0; r < p.gpus; r++)
        j.device[r] = p.device[r];
    j.scene = shared_alloc(sizeof(*j.scene));
    rc = dataset_init(&data, PAR_BF16, FAULT_DATA_BYTES, j.world, 1u << j.world, o->seed);
    if (j.scene == NULL && rc == 0)
        rc = rank_fail(CODE_CANNOT, "no shared memory");
    for (i = 0; i < FAULTS && rc == 0; i++)
        for (a = 1; a < PAR_ALGORITHMS; a++)
            if ((faults[i].algorithms & algorithms) >> a & 1u) {
                j.victim = turn++ % 3 == 2 ? 0 : j.world - 1; /* rank 0 has its own ways to be special */
                run_one(&j, &faults[i], a);
            }
    if (rc == 0)
        check_memory(&p, o);
    dataset_free(&data);
    shared_free(j.scene, sizeof(*j.scene));
    return rc;
}
