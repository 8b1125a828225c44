/*
 * perf: how fast is it? A row per size in the columns of nccl-tests, then what they do not have: the algorithm and its
 * cut, the time inside a step, NCCL's times from the same run, the ratios NCCL / ours, and the model. What a time is:
 * timing.h.
 *
 * Host transport: NCCL runs with NCCL_P2P_DISABLE=1, so that both sides go through host memory. Push and pull: NCCL as
 * it comes. Each in processes of its own.
 */
#include "model.h"
#include "probe.h"
#include "report.h"
#include "timing.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS = OPTIONS_LIST * PAR_ALGORITHMS, SLACK = 1 << 16 };

/* What one group of processes measured, in shared memory, written by rank 0. */
typedef struct {
    row rows[ROWS];
    int n;
    uint64_t wrong;
    link_rates rates;
    nccl rival;
    char environment[512];
} findings;

typedef struct {
    const options *o;
    const dataset *data;
    int world, device[PAR_MAX_WORLD], dtype;
    unsigned algorithms;
    int host; /* the host transport; else push and pull */
    findings *found;
    void *window;
} job;

/* A rank at work. */
typedef struct {
    const job *j;
    bench b;
    link_rates rates;
    findings *found; /* rank 0's; null elsewhere */
} worker;

/* --- rows ------------------------------------------------------------------------------------ */

static double algbw(size_t bytes, double us)
{
    return us > 0 ? (double)bytes / us / 1000.0 : 0;
}

static void print_place(size_t bytes, double us, uint64_t wrong, int world)
{
    double bus = 2.0 * (world - 1) / world;

    printf(" %8.2f %7.2f %7.2f %6llu", us, algbw(bytes, us), algbw(bytes, us) * bus, (unsigned long long)wrong);
}

static const char *type_name(int dtype)
{
    return dtype == PAR_FP32 ? "float" : dtype == PAR_BF16 ? "bfloat16" : "half";
}

static void print_row(const worker *w, const row *r)
{
    printf("%12zu %12zu %9s %6s %5d", r->bytes, r->bytes / par_dtype_size(w->j->dtype), type_name(w->j->dtype), "sum",
           -1);
    print_place(r->bytes, r->ours.out, r->wrong_out, w->j->world);
    print_place(r->bytes, r->ours.in, r->wrong_in, w->j->world);
    printf("  %-22s %2zu %3zu %6zu %8.2f", par_algorithm_name(r->algorithm), r->cut.lanes, r->cut.threads, r->cut.chunk,
           r->ours.step);
    if (w->j->o->nccl)
        printf(" %8.2f %8.2f %8.2f %5.2f %5.2f", r->nccl.out, r->nccl.in, r->nccl.step,
               r->ours.out > 0 ? r->nccl.out / r->ours.out : 0, r->ours.step > 0 ? r->nccl.step / r->ours.step : 0);
    if (w->j->o->model)
        printf(" %8.2f", r->model);
    putchar('\n');
    fflush(stdout);
}

static void print_header(const worker *w)
{
    const nccl *n = &w->b.rival;

    printf("# world %d, %s, graphs of %d calls, median of up to %d replays, slowest rank\n", w->j->world,
           w->j->host ? "host transport" : "peer transport", w->j->o->calls, w->j->o->iterations);
    if (w->j->o->nccl)
        printf("# NCCL %d.%d.%d, %d channels, via %s, %s; %s\n", n->version / 10000, n->version / 100 % 100,
               n->version % 100, n->channels, n->via[0] != '\0' ? n->via : "?", w->found->environment, n->path);
    if (w->j->o->model)
        printf("# graph node %.2f us; one way: host %.2f us, peer %.2f us; GB/s per GPU, all at once: host read %.1f "
               "write %.1f both %.1f, peer read %.1f write %.1f\n",
               w->rates.node_us, w->rates.host_us, w->rates.peer_us, w->rates.host_read / 1000,
               w->rates.host_write / 1000, w->rates.host_both / 1000, w->rates.peer_read / 1000,
               w->rates.peer_write / 1000);
    printf("#%79s%37s\n", "out-of-place", "in-place");
    printf("#%11s %12s %9s %6s %5s %8s %7s %7s %6s %8s %7s %7s %6s  %-22s %2s %3s %6s %8s%s%s\n", "size", "count",
           "type", "redop", "root", "time", "algbw", "busbw", "#wrong", "time", "algbw", "busbw", "#wrong", "algorithm",
           "bl", "thr", "chunk", "in step", w->j->o->nccl ? "     NCCL in-place  in step ratio  step" : "",
           w->j->o->model ? "    model" : "");
    printf("#%11s %12s %9s %6s %5s %8s %7s %7s %6s %8s %7s %7s\n", "(B)", "(elements)", "", "", "", "(us)", "(GB/s)",
           "(GB/s)", "", "(us)", "(GB/s)", "(GB/s)");
    fflush(stdout);
}

static void keep_row(worker *w, const row *r)
{
    if (w->found == NULL)
        return;
    w->found->wrong += r->wrong_out + r->wrong_in;
    if (w->found->n < ROWS)
        w->found->rows[w->found->n++] = *r;
    if (!w->j->o->json && (r->fastest || w->j->o->each || r->wrong_out + r->wrong_in != 0))
        print_row(w, r);
}

/* All algorithms of a size; the fastest gets the full measurement, all of them with --each. */
static int one_size(worker *w, size_t bytes)
{
    row rows[PAR_ALGORITHMS];
    times rival = {0, 0, 0};
    int a, best = 0, rc = CODE_OK;

    memset(rows, 0, sizeof(rows));
    if (w->j->o->nccl) {
        rank_note("NCCL %zu bytes", bytes);
        rc = timing_all(&w->b, 0, bytes, &rival);
    }
    for (a = 1; a < PAR_ALGORITHMS && rc == 0; a++) {
        rows[a].bytes = bytes;
        rows[a].algorithm = a;
        rows[a].nccl = rival;
        if (!(w->j->algorithms >> a & 1u) || par_max_bytes(w->b.f.comm[0], (par_algorithm)a) < bytes)
            continue;
        rc = timing_tune(&w->b, &rows[a]);
        if (rows[a].ours.out > 0 && (best == 0 || rows[a].ours.out < rows[best].ours.out))
            best = a;
    }
    for (a = 1; a < PAR_ALGORITHMS && rc == 0; a++) {
        row *r = &rows[a];
        r->fastest = a == best;
        r->model = w->j->o->model ? model_us(&w->rates, w->j->host, w->j->world, (double)bytes) : 0;
        if (r->ours.out > 0 && (r->fastest || w->j->o->each)) {
            rc = ranks_agree(w->b.f.ranks, timing_cut(&w->b, &r->cut));
            rc = rc != 0 ? rc : timing_all(&w->b, a, bytes, &r->ours);
        }
        if (rc == 0 && (r->ours.out > 0 || r->wrong_out + r->wrong_in != 0))
            keep_row(w, r);
    }
    return rc;
}

/* --- one process ----------------------------------------------------------------------------- */

/* One eager call, which NCCL needs before it can be captured; it also tells the number of channels. */
static int warm_up_rival(worker *w)
{
    int rc = nccl_open(&w->b.rival, w->b.f.ranks, w->j->o->nccl_path);

    if (rc == 0)
        rc = ranks_agree(w->b.f.ranks, nccl_all_reduce(&w->b.rival, w->b.f.input[0], w->b.f.work[0][0] + FLEET_MARGIN,
                                                       1024, w->j->dtype, w->b.f.stream[0][0]));
    if (rc == 0)
        rc = ranks_agree(w->b.f.ranks, fleet_finish(&w->b.f));
    return rc;
}

static int prepare(worker *w)
{
    const job *j = w->j;
    int rc = fleet_load(&w->b.f, j->data, j->data->bytes - SLACK);

    if (rc == 0 && j->o->nccl)
        rc = warm_up_rival(w);
    if (rc == 0 && j->o->model)
        rc = model_measure(&w->rates, &w->b.f, j->window, !j->host);
    if (rc == 0 && w->found != NULL) {
        w->found->rates = w->rates;
        w->found->rival = w->b.rival;
        nccl_environment(w->found->environment, sizeof(w->found->environment));
        if (!j->o->json)
            print_header(w);
    }
    return rc;
}

static int body(ranks *self, void *context)
{
    const job *j = context;
    par_options wanted = PAR_OPTIONS_INIT;
    worker *w = calloc(1, sizeof(*w));
    int i, rc;

    if (w == NULL)
        return rank_fail(CODE_CANNOT, "no memory");
    w->j = j;
    w->found = self->rank == 0 ? j->found : NULL;
    w->b.o = j->o;
    w->b.dtype = j->dtype;
    w->b.talks = self->rank == 0;
    w->b.d.state = j->o->seed;
    if (j->host)
        setenv("NCCL_P2P_DISABLE", "1", 1);
    wanted.with = j->host ? PAR_WITH_HOST : PAR_WITH_PEER;
    wanted.mode = PAR_MODE_STATUS;
    wanted.timeout_s = 20;
    rc = fleet_open(&w->b.f, self, j->world, j->device, 0, &wanted);
    if (rc == 0)
        rc = prepare(w);
    for (i = 0; i < j->o->sizes.n && rc == 0; i++)
        rc = one_size(w, j->o->sizes.value[i]);
    rank_note("closing");
    nccl_close(&w->b.rival);
    fleet_close(&w->b.f);
    free(w);
    return rc;
}

/* --- the parent ------------------------------------------------------------------------------ */

static void add_times(text *t, const char *name, const times *x)
{
    text_add(t, "\"%s\":{\"in_place_us\":%.3f,\"in_step_us\":%.3f,\"out_of_place_us\":%.3f}", name, x->in, x->step,
             x->out);
}

static void add_rows(text *t, const findings *f, const job *j)
{
    int i;

    for (i = 0; i < f->n; i++) {
        const row *r = &f->rows[i];
        text_add(t, "%s\n   {\"algorithm\":\"%s\",\"bytes\":%zu,\"chunk\":%zu,\"fastest\":%s,\"lanes\":%zu,",
                 i != 0 ? "," : "", par_algorithm_name(r->algorithm), r->bytes, r->cut.chunk,
                 r->fastest ? "true" : "false", r->cut.lanes);
        if (j->o->model)
            text_add(t, "\"model_us\":%.3f,", r->model);
        if (j->o->nccl) {
            add_times(t, "nccl", &r->nccl);
            text_add(t, ",");
        }
        add_times(t, "ours", &r->ours);
        text_add(t, ",\"threads\":%zu,\"type\":\"%s\",\"wrong\":%llu}", r->cut.threads, par_dtype_name(j->dtype),
                 (unsigned long long)(r->wrong_out + r->wrong_in));
    }
}

static void add_group(text *t, const findings *f, const job *j)
{
    text_add(t, "%s\n  {\"rows\":[", t->length > 1 ? "," : "");
    add_rows(t, f, j);
    text_add(t, "],\"transport\":\"%s\",\"world\":%d", j->host ? "host" : "peer", j->world);
    if (j->o->nccl) {
        text_add(t, ",\"nccl\":{\"channels\":%d,\"environment\":", f->rival.channels);
        text_add_quoted(t, f->environment);
        text_add(t, ",\"path\":");
        text_add_quoted(t, f->rival.path);
        text_add(t, ",\"version\":%d,\"via\":", f->rival.version);
        text_add_quoted(t, f->rival.via);
        text_add(t, "}");
    }
    if (j->o->model)
        text_add(t,
                 ",\"model\":{\"graph_node_us\":%.3f,\"host_both_gbs\":%.2f,\"host_one_way_us\":%.3f,"
                 "\"host_read_gbs\":%.2f,\"host_write_gbs\":%.2f,\"peer_one_way_us\":%.3f,\"peer_read_gbs\":%.2f,"
                 "\"peer_write_gbs\":%.2f}",
                 f->rates.node_us, f->rates.host_both / 1000, f->rates.host_us, f->rates.host_read / 1000,
                 f->rates.host_write / 1000, f->rates.peer_us, f->rates.peer_read / 1000, f->rates.peer_write / 1000);
    text_add(t, "}");
}

static const char *first_text(const ranks_outcome *outcome, int world)
{
    const char *found = "";
    int r;

    for (r = 0; r < world && found[0] == '\0'; r++)
        found = outcome->rank[r].text;
    return found;
}

static void run_group(job *j, const probe *p, int world, int host, text *groups)
{
    const char *why;
    ranks_outcome outcome;
    char id[64];
    int r;

    j->world = world;
    j->host = host;
    for (r = 0; r < world; r++)
        j->device[r] = p->device[r];
    j->found = shared_alloc(sizeof(findings));
    j->window = shared_alloc(MODEL_SHARED);
    snprintf(id, sizeof(id), "perf/%s/%d", host ? "host" : "peer", world);
    if (j->found == NULL || j->window == NULL) {
        report_check(id, CHECK_FAIL, CODE_CANNOT, 0, "no shared memory");
        return;
    }
    ranks_run(&outcome, world, j->o->limit_s, 0, body, j);
    why = first_text(&outcome, world);
    add_group(groups, j->found, j);
    report_check(id, outcome.code != 0 || j->found->wrong != 0 ? CHECK_FAIL : CHECK_PASS,
                 j->found->wrong != 0 ? CODE_WRONG : outcome.code, outcome.seconds, "%d rows, %llu wrong elements%s%s",
                 j->found->n, (unsigned long long)j->found->wrong, why[0] != '\0' ? ": " : "", why);
    shared_free(j->window, MODEL_SHARED);
    shared_free(j->found, sizeof(findings));
}

/* Bits of the algorithms asked for, of the host transport or of push and pull. */
static unsigned algorithms_of(const options *o, unsigned transports, int host)
{
    unsigned bits = 0;
    int a;

    for (a = 1; a < PAR_ALGORITHMS; a++) {
        int transport = par_algorithm_transport(a);
        if ((transport == PAR_HOST) == (host != 0) && (transports >> transport & 1u))
            bits |= o->algorithms & 1u << a;
    }
    return bits;
}

static int start_data(dataset *data, options *o, int dtype, unsigned worlds, int most)
{
    static const size_t sizes[] = {2048, 4096, 16384, 43008, 65536, 131072, 262144, 524288, 1048576, 4194304, 16777216};
    size_t longest = 0;
    int i;

    if (o->sizes.n == 0) {
        o->sizes.n = (int)(sizeof(sizes) / sizeof(sizes[0]));
        memcpy(o->sizes.value, sizes, sizeof(sizes));
    }
    for (i = 0; i < o->sizes.n; i++) {
        o->sizes.value[i] -= o->sizes.value[i] % par_dtype_size(dtype);
        longest = o->sizes.value[i] > longest ? o->sizes.value[i] : longest;
    }
    return dataset_init(data, dtype, longest + SLACK, most, worlds, o->seed);
}

int perf_command(const options *given)
{
    options o = *given;
    job j = {0};
    unsigned transports, worlds;
    dataset data;
    text groups = {0};
    probe p;
    int w, host, dtype, rc = probe_gpus(&p, &o);

    if (rc != 0)
        return rc;
    if (p.gpus < 2)
        return rank_fail(CODE_CANNOT, "perf needs two GPUs, there is %d", p.gpus);
    j.o = &o;
    j.data = &data;
    transports = probe_transports(&p, &o);
    worlds = o.worlds != 0 ? o.worlds & ((2u << p.gpus) - 1) : 1u << p.gpus;
    report_line("# %d x %s, P2P %s, CUDA driver %d.%d, %s", p.gpus, p.name[0], p.p2p ? "yes" : "no", p.driver / 1000,
                p.driver % 1000 / 10, par_version());
    text_add(&groups, "[");
    for (dtype = 0; dtype < PAR_DTYPES && rc == 0; dtype++) {
        if (!(o.dtypes >> dtype & 1u))
            continue;
        j.dtype = dtype;
        rc = start_data(&data, &o, dtype, worlds, p.gpus);
        for (host = 1; host >= 0 && rc == 0; host--)
            for (w = 2; w <= p.gpus; w++)
                if ((worlds >> w & 1u) && (j.algorithms = algorithms_of(&o, transports, host)) != 0)
                    run_group(&j, &p, w, host, &groups);
        dataset_free(&data);
    }
    text_add(&groups, "]");
    report_member("groups", groups.data != NULL ? groups.data : "[]");
    text_free(&groups);
    return rc;
}
