/*
 * perf: how fast is it? Every algorithm, and NCCL beside it, per world, type and size. What a time is: timing.h; what
 * is measured, and for how long: plan.h; the lines: rows.h.
 */
#include "measure.h"
#include "probe.h"
#include "report.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { GRACE_SECONDS = 30 }; /* of a group of processes beyond its time */

typedef struct {
    const options *o;
    const probe *gpus;
    plan plan;
    dataset data[PAR_DTYPES];
    measured *found[PLAN_GROUPS];
    void *window;
    double begin, all; /* clock; weight of everything */
    pace pace;
} run;

/* --- before ---------------------------------------------------------------------------------- */

/* Test data, as long as the longest message of the type. */
static int make_data(run *r)
{
    unsigned worlds = 0;
    int dtype, i, rc = CODE_OK;

    for (i = 0; i < r->plan.groups; i++)
        worlds |= 1u << r->plan.group[i].world;
    for (dtype = 0; dtype < PAR_DTYPES && rc == 0; dtype++) {
        size_t longest = 0;
        for (i = 0; i < r->plan.points; i++)
            if (r->plan.point[i].dtype == dtype && r->plan.point[i].bytes > longest)
                longest = r->plan.point[i].bytes;
        if (longest > 0)
            rc = dataset_init(&r->data[dtype], dtype, longest + MEASURE_SLACK, r->gpus->gpus, worlds, r->o->seed);
    }
    return rc;
}

/* Bits of the transports that these algorithms need. */
static unsigned transports_of(unsigned algorithms)
{
    unsigned bits = 0;
    int a;

    for (a = 1; a < PAR_ALGORITHMS; a++)
        if (algorithms >> a & 1u)
            bits |= 1u << par_algorithm_transport(a);
    return bits;
}

/* The members of the first line, or of the one object. */
static void add_start(text *t, const run *r)
{
    const probe *p = r->gpus;
    int i;

    text_add(t, "\"cuda_driver\":\"%d.%d\",\"cuda_runtime\":\"%d.%d\",\"p2p\":%s,\"calls\":%d,\"iterations\":%d",
             p->driver / 1000, p->driver % 1000 / 10, p->runtime / 1000, p->runtime % 1000 / 10,
             p->p2p ? "true" : "false", r->plan.calls, r->plan.iterations);
    text_add(t, ",\"points\":%d,\"budget_s\":", r->plan.points * r->plan.groups);
    if (isfinite(r->plan.seconds))
        text_add(t, "%.0f", r->plan.seconds);
    else
        text_add(t, "null");
    text_add(t, ",\"gpus\":[");
    for (i = 0; i < p->gpus; i++) {
        text_add(t, "%s{\"device\":%d,\"bus\":\"%s\",\"uuid\":\"%s\",\"name\":", i > 0 ? "," : "", p->device[i],
                 p->bus[i], p->uuid[i]);
        text_add_quoted(t, p->name[i]);
        text_add(t, "}");
    }
    text_add(t, "]");
}

static void show_start(const run *r)
{
    text line = {0};

    if (r->o->stream) {
        text_add(&line, "{\"kind\":\"start\",\"schema\":\"sgl-pcie-perf/1\",\"version\":\"%s\",", par_version());
        add_start(&line, r);
        printf("%s}\n", line.data != NULL ? line.data : "{");
        fflush(stdout);
        text_free(&line);
    }
    report_line("# %d x %s, P2P %s, CUDA driver %d.%d, %s", r->gpus->gpus, r->gpus->name[0],
                r->gpus->p2p ? "yes" : "no", r->gpus->driver / 1000, r->gpus->driver % 1000 / 10, par_version());
}

/* --- a group --------------------------------------------------------------------------------- */

static void check_group(const run *r, const measured *m, const plan_group *g, const ranks_outcome *outcome)
{
    const char *why = ranks_failure(outcome);
    int none = outcome->code == CODE_OK && m->points == 0; /* its time was over before it had begun */
    int code = m->wrong != 0 ? CODE_WRONG : none ? CODE_UNSURE : outcome->code;
    char id[64];

    snprintf(id, sizeof(id), "perf/%d%s", g->world, g->no_p2p ? "/nccl-no-p2p" : "");
    report_check(id, none ? CHECK_UNSURE : code != 0 ? CHECK_FAIL : CHECK_PASS, code, outcome->seconds,
                 "%d rows, %d of %d points, %llu wrong elements%s%s", m->n, m->points, r->plan.points,
                 (unsigned long long)m->wrong, why[0] != '\0' ? ": " : "", why);
    if (m->no_nccl[0] != '\0') {
        snprintf(id, sizeof(id), "perf/%d/nccl", g->world);
        report_check(id, CHECK_SKIP, CODE_OK, 0, "not compared: %s", m->no_nccl);
    }
}

static double seconds_for(const run *r, const measure_job *j)
{
    double end = j->end - seconds_now() + GRACE_SECONDS;

    return end < r->o->limit_s ? end : r->o->limit_s;
}

static int run_group(run *r, int at, unsigned algorithms)
{
    const plan_group *g = &r->plan.group[at];
    const int follows = at > 0 && r->plan.group[at - 1].no_p2p && r->plan.group[at - 1].world == g->world;
    measured *m = r->found[at] = shared_alloc(sizeof(*m));
    double now = seconds_now();
    measure_job j = {.o = r->o, .plan = &r->plan, .group = g, .data = r->data, .found = m, .begin = r->begin};
    ranks_outcome outcome;

    if (m == NULL)
        return rank_fail(CODE_CANNOT, "no shared memory");
    memcpy(j.device, r->gpus->device, sizeof(int) * (size_t)g->world);
    m->head.group = at;
    m->head.world = g->world;
    m->head.no_p2p = g->no_p2p;
    j.algorithms = g->no_p2p ? 0 : algorithms;
    j.transports = m->head.transports = transports_of(j.algorithms);
    j.window = r->window;
    j.end = now + pace_share(&r->pace, now, g->weight);
    j.before = r->all - r->pace.left;
    j.all = r->all;
    j.points_before = at * r->plan.points;
    j.points = r->plan.groups * r->plan.points;
    j.rivals = follows ? r->found[at - 1] : NULL;
    ranks_run(&outcome, g->world, seconds_for(r, &j), 0, measure_body, &j);
    pace_spend(&r->pace, g->weight);
    check_group(r, m, g, &outcome);
    return CODE_OK;
}

/* --- after ----------------------------------------------------------------------------------- */

static void add_list(const char *name, text *t)
{
    text_add(t, "]");
    report_member(name, t->data != NULL ? t->data : "[]");
    text_free(t);
}

/* The one object: everything; the last line: what came last. */
static void report_run(const run *r)
{
    text groups = {0}, rows = {0}, start = {0}, left = {0};
    int i, k, unmeasured = 0;

    text_add(&groups, "[");
    text_add(&rows, "[");
    for (i = 0; i < r->plan.groups; i++) {
        const measured *m = r->found[i];
        unmeasured += r->plan.points - (m != NULL ? m->points : 0);
        if (m == NULL || r->o->stream)
            continue;
        text_add(&groups, "%s\n  ", groups.length > 1 ? "," : "");
        group_json(&groups, &m->head);
        for (k = 0; k < m->n; k++) {
            text_add(&rows, "%s\n  ", rows.length > 1 ? "," : "");
            row_json(&rows, &m->rows[k]);
        }
    }
    text_add(&left, "%d", unmeasured);
    report_member("unmeasured", left.data != NULL ? left.data : "null");
    if (!r->o->stream) {
        add_list("groups", &groups);
        add_list("rows", &rows);
        add_start(&start, r);
        report_members(start.data != NULL ? start.data : "");
    }
    text_free(&start);
    text_free(&left);
    text_free(&groups);
    text_free(&rows);
}

static int measure_all(run *r, unsigned algorithms)
{
    double weight = 0;
    int i, rc = make_data(r);

    for (i = 0; i < r->plan.groups; i++)
        weight += r->plan.group[i].weight;
    r->all = weight;
    pace_begin(&r->pace, r->begin, r->plan.seconds, weight);
    for (i = 0; i < r->plan.groups && rc == 0; i++)
        rc = run_group(r, i, algorithms);
    return rc;
}

int perf_command(const options *given)
{
    options o = *given;
    probe gpus;
    run *r = calloc(1, sizeof(*r));
    unsigned algorithms = 0;
    int i, rc = r == NULL ? rank_fail(CODE_CANNOT, "no memory") : CODE_OK;

    if (rc == 0) {
        *r = (run){.o = &o, .gpus = &gpus, .begin = seconds_now()};
        rc = probe_gpus(&gpus, &o);
    }
    if (rc == 0 && gpus.gpus < 2)
        rc = rank_fail(CODE_CANNOT, "perf needs two GPUs, there is %d", gpus.gpus);
    if (rc == 0) {
        algorithms = probe_algorithms(&gpus, &o);
        rc = plan_make(&r->plan, &o, gpus.gpus, gpus.p2p, getenv("NCCL_P2P_DISABLE") != NULL);
    }
    if (rc == 0) {
        show_start(r);
        r->window = o.model || o.stream ? shared_alloc(MODEL_SHARED) : NULL;
        rc = measure_all(r, algorithms);
        report_run(r);
        for (i = 0; i < PAR_DTYPES; i++)
            dataset_free(&r->data[i]);
        for (i = 0; i < r->plan.groups; i++)
            shared_free(r->found[i], sizeof(*r->found[i]));
        shared_free(r->window, MODEL_SHARED);
    }
    free(r);
    return rc;
}
