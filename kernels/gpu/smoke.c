/*
 * smoke: is the all-reduce right? Every algorithm, dtype and world size, as processes and inside one process, against
 * the CPU reference, bit by bit. One group of processes per mode and world size, which goes through the trials
 * (trial.h).
 */
#include "cuda.h"
#include "options.h"
#include "probe.h"
#include "report.h"
#include "trial.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Bytes by which the dataset is longer than the longest message. */
enum { SLACK = 1 << 20, REPEATS = 3 };

typedef struct {
    const options *o;
    const dataset *data; /* per dtype */
    int world, local, device[PAR_MAX_WORLD];
    unsigned algorithms; /* to test, a bit each */
    unsigned with;
    findings *found; /* per process */
} job;

/* --- one process ----------------------------------------------------------------------------- */

/* The inputs must be as they were. */
static int inputs_untouched(trial *t)
{
    const dataset *d = t->f.data;
    char *copy = malloc(d->bytes);
    int h, rc = CODE_OK;

    if (copy == NULL)
        return rank_fail(CODE_CANNOT, "no memory for %zu bytes", d->bytes);
    for (h = 0; h < t->f.held && rc == 0; h++) {
        rc = CUDA(cudaMemcpy(copy, t->f.input[h], d->bytes, cudaMemcpyDeviceToHost));
        if (rc == 0 && memcmp(copy, d->input[t->f.first + h], d->bytes) != 0)
            rc = rank_fail(CODE_WRONG, "rank %d: an out-of-place call changed its input", t->f.first + h);
    }
    free(copy);
    return rc;
}

static int one_dtype(trial *t, const dataset *d)
{
    int a, i, rc = fleet_load(&t->f, d, t->o->max_bytes);

    if (rc == 0)
        rc = ranks_agree(t->f.ranks, fleet_tally_reset(&t->f));
    for (a = 1; a < PAR_ALGORITHMS && rc == 0; a++) {
        if (!(t->algorithms >> a & 1u) || t->found->hung[a])
            continue;
        rc = trial_ladder(t, a);
        if (rc == 0 && !t->found->hung[a])
            rc = ranks_agree(t->f.ranks, trial_too_large(t, a));
    }
    for (i = 0; i < REPEATS && rc == 0 && trial_any_left(t); i++)
        rc = trial_mixed(t);
    for (i = 0; i < REPEATS && rc == 0 && trial_any_left(t); i++)
        rc = trial_graphs(t);
    if (rc == 0)
        rc = ranks_agree(t->f.ranks, inputs_untouched(t));
    return rc;
}

static int soaks(const options *o)
{
    return o->soak > 0 || o->soak_s > 0;
}

static int body(ranks *self, void *context)
{
    const job *j = context;
    par_options wanted = PAR_OPTIONS_INIT;
    trial *t = calloc(1, sizeof(*t));
    int dtype, last = -1, rc;

    if (t == NULL)
        return rank_fail(CODE_CANNOT, "no memory");
    t->o = j->o;
    t->algorithms = j->algorithms;
    t->found = &j->found[self->rank];
    t->d.state = j->o->seed;
    wanted.with = j->with;
    wanted.mode = PAR_MODE_STATUS;
    wanted.timeout_s = j->o->timeout_s;
    wanted.late_s = j->o->timeout_s / 2;
    wanted.no_watcher = (uint32_t)j->local;
    rc = fleet_open(&t->f, self, j->world, j->device, j->local, &wanted);
    for (dtype = 0; dtype < PAR_DTYPES && rc == 0; dtype++)
        if (j->o->dtypes >> dtype & 1u) {
            rc = one_dtype(t, &j->data[dtype]);
            last = dtype;
        }
    if (rc == 0 && last >= 0)
        rc = trial_life(t);
    if (rc == 0 && last >= 0 && soaks(j->o))
        rc = trial_soak(t);
    rank_note("closing");
    fleet_close(&t->f);
    free(t);
    return rc;
}

/* --- the parent ------------------------------------------------------------------------------ */

/* What all processes of a group found about one transport, as a check. */
static void report_transport(const job *j, const ranks_outcome *outcome, int transport, const char *prefix)
{
    uint64_t calls = 0, wrong = 0;
    int a, p, hung = 0, processes = j->local ? 1 : j->world;
    const char *why = "";
    char id[64];

    for (a = 1; a < PAR_ALGORITHMS; a++) {
        if (par_algorithm_transport(a) != transport || !(j->algorithms >> a & 1u))
            continue;
        calls += j->found[0].calls[a];
        for (p = 0; p < processes; p++) {
            wrong += j->found[p].wrong[a];
            hung |= j->found[p].hung[a];
            if (why[0] == '\0')
                why = j->found[p].text[a];
        }
    }
    for (p = 0; p < processes && why[0] == '\0'; p++)
        why = outcome->rank[p].text;
    snprintf(id, sizeof(id), "%s/%s", prefix, par_transport_name(transport));
    report_check(id, wrong != 0 || hung || outcome->code != 0 ? CHECK_FAIL : CHECK_PASS,
                 wrong != 0 ? CODE_WRONG
                 : hung     ? CODE_HANG
                            : outcome->code,
                 outcome->seconds, "%llu calls, %llu wrong elements%s%s", (unsigned long long)calls,
                 (unsigned long long)wrong, why[0] != '\0' ? ": " : "", why);
}

static void report_soak(const job *j, const ranks_outcome *outcome, const char *prefix)
{
    const findings *f = &j->found[0];
    const int cut = f->soaked < j->o->soak || f->soak_seconds < j->o->soak_s;
    uint64_t wrong = 0;
    char id[64];
    int p;

    for (p = 0; p < (j->local ? 1 : j->world); p++)
        wrong += j->found[p].soak_wrong;
    snprintf(id, sizeof(id), "%s/soak", prefix);
    report_check(id, wrong != 0 || cut ? CHECK_FAIL : CHECK_PASS,
                 wrong != 0 ? CODE_WRONG
                 : cut      ? code_worse(outcome->code, CODE_CHECK)
                            : 0,
                 f->soak_seconds, "%llu calls in a row, %llu wrong elements", (unsigned long long)f->soaked,
                 (unsigned long long)wrong);
}

static void run_group(job *j, const probe *p, int world, int local)
{
    size_t bytes = PAR_MAX_WORLD * sizeof(findings);
    ranks_outcome outcome;
    char prefix[48];
    int r, transport;

    j->world = world;
    j->local = local;
    for (r = 0; r < world; r++)
        j->device[r] = p->device[r % p->gpus];
    j->found = shared_alloc(bytes);
    snprintf(prefix, sizeof(prefix), "smoke/%s/%d", local ? "local" : "process", world);
    if (j->found == NULL) {
        report_check(prefix, CHECK_FAIL, CODE_CANNOT, 0, "no shared memory");
        return;
    }
    ranks_run(&outcome, local ? 1 : world, j->o->limit_s, 0, body, j);
    for (transport = 0; transport < PAR_TRANSPORTS; transport++) {
        unsigned mine = 0;
        for (r = 1; r < PAR_ALGORITHMS; r++)
            if (par_algorithm_transport(r) == transport)
                mine |= j->algorithms & 1u << r;
        if (mine != 0)
            report_transport(j, &outcome, transport, prefix);
    }
    if (soaks(j->o))
        report_soak(j, &outcome, prefix);
    shared_free(j->found, bytes);
    j->found = NULL;
}

/* What a communicator must set up for these algorithms. */
static unsigned with_for(unsigned algorithms)
{
    unsigned with = 0;
    int a;

    for (a = 1; a < PAR_ALGORITHMS; a++)
        if (algorithms >> a & 1u)
            with |= par_algorithm_transport(a) == PAR_HOST ? PAR_WITH_HOST : PAR_WITH_PEER;
    return with;
}

static unsigned all_worlds(int most)
{
    unsigned bits = 0;
    int w;

    for (w = 2; w <= most; w++)
        bits |= 1u << w;
    return bits;
}

static int make_data(dataset *data, const options *o, unsigned worlds)
{
    int dtype, most = 2, rc = CODE_OK;

    while (worlds >> (most + 1) != 0)
        most++;
    for (dtype = 0; dtype < PAR_DTYPES && rc == 0; dtype++)
        if (o->dtypes >> dtype & 1u)
            rc = dataset_init(&data[dtype], dtype, o->max_bytes + SLACK, most, worlds, o->seed);
    return rc;
}

int smoke_command(const options *o)
{
    dataset data[PAR_DTYPES];
    job j = {o, data, 0, 0, {0}, 0, 0, NULL};
    unsigned process, local;
    double begin = seconds_now();
    probe p;
    int w, dtype, rc = probe_gpus(&p, o);

    memset(data, 0, sizeof(data));
    if (rc != 0)
        return rc;
    j.algorithms = probe_algorithms(&p, o);
    j.with = with_for(j.algorithms);
    if (j.algorithms == 0)
        return rank_fail(CODE_CANNOT, "nothing to test: push and pull need P2P between all GPUs, which is not there");
    report_line("# %d x %s, P2P %s, %s", p.gpus, p.name[0], p.p2p ? "yes" : "no", par_version());
    process = o->process ? all_worlds(p.gpus) & (o->worlds != 0 ? o->worlds : ~0u) : 0;
    local = o->local ? o->worlds != 0 ? o->worlds : all_worlds(p.gpus > 3 ? 8 : 2 * p.gpus) : 0;
    if (process == 0 && local == 0)
        return rank_fail(CODE_CANNOT,
                         "nothing to test: a process per rank needs a GPU for each; --gpus 0,0 lets two share one, "
                         "--mode local tests all ranks in one process");
    rc = make_data(data, o, process | local);
    if (rc == 0)
        report_line("# test data ready after %.1f s", seconds_now() - begin);
    for (w = 2; w <= PAR_MAX_WORLD && rc == 0; w++)
        if (process >> w & 1u)
            run_group(&j, &p, w, 0);
    for (w = 2; w <= PAR_MAX_WORLD && rc == 0; w++)
        if (local >> w & 1u)
            run_group(&j, &p, w, 1);
    for (dtype = 0; dtype < PAR_DTYPES; dtype++)
        dataset_free(&data[dtype]);
    return rc;
}
