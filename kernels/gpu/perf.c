/*
 * perf: how fast is it? A row per size in the columns of nccl-tests, then what they do not have: the algorithm and its
 * cut, the time inside a step, NCCL's times from the same run, the ratios NCCL / ours, and the model.
 *
 * A time is that of one call in a CUDA graph of many: per replay the slowest rank, of the replays the median. "In a
 * step": a small kernel that touches the message comes before each call; the time of the same graph without the
 * all-reduces is taken off. What does not give the right sum is not timed.
 *
 * Host transport: NCCL runs with NCCL_P2P_DISABLE=1, so that both sides go through host memory. Push and pull: NCCL as
 * it comes. Each in processes of its own.
 */
#include "cuda.h"
#include "fleet.h"
#include "model.h"
#include "nccl.h"
#include "options.h"
#include "pattern.h"
#include "probe.h"
#include "report.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ITERATIONS_MAX = 1000, ROWS = OPTIONS_LIST * PAR_ALGORITHMS, SLACK = 1 << 16, QUICK = 5, WARM = 8 };

/* How a call is cut; 0: by the library's rule. */
typedef struct { size_t lanes, threads, chunk; } cut;

/* Times of one way to do it, microseconds per call; 0: not measured. */
typedef struct { double out, in, step; } times;

typedef struct {
    size_t bytes;
    int algorithm, fastest;
    cut cut;
    times ours, nccl;
    uint64_t wrong_out, wrong_in;
    double model;
} row;

/* What one group of processes measured, in shared memory, written by rank 0. */
typedef struct {
    row rows[ROWS];
    int n, skipped;
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

typedef struct {
    const job *j;
    fleet f;
    nccl rival;
    link_rates rates;
    findings *found; /* rank 0's; null elsewhere */
    dice d;
} bench;

/* --- one measurement ------------------------------------------------------------------------- */

/* What a graph holds, `calls` times: a layer, an all-reduce by us or NCCL, or both. */
typedef struct {
    int layer;
    int algorithm; /* ours; 0: NCCL; -1: no all-reduce */
    const char *in;
    char *out;
    size_t count;
} work;

static int enqueue(bench *b, const work *w)
{
    void *stream = b->f.stream[0][0];
    const void *in = w->in;
    void *out = w->out;
    int rc = CODE_OK;

    if (w->layer)
        rc = CUDA(check_layer(w->in == w->out ? out : b->f.work[0][0] + FLEET_MARGIN,
                              w->count * par_dtype_size(b->j->dtype), stream));
    if (rc == 0 && w->algorithm == 0)
        rc = nccl_all_reduce(&b->rival, in, out, w->count, b->j->dtype, stream);
    else if (rc == 0 && w->algorithm > 0)
        rc = fleet_par(&b->f, fleet_all_reduce(&b->f, 0, &in, &out, w->count, b->j->dtype, w->algorithm),
                       "all-reduce");
    return rc;
}

static int capture(bench *b, const work *w, fleet_graph *graph)
{
    int i, rc = fleet_capture_begin(&b->f, 0), ended;

    for (i = 0; i < b->j->o->calls && rc == 0; i++)
        rc = enqueue(b, w);
    ended = fleet_capture_end(&b->f, 0, graph);
    return rc != 0 ? rc : ended;
}

/* Replay n times with an event between any two; us[i]: replay i, the slowest rank. */
static int replay(bench *b, const fleet_graph *graph, int n, double *us)
{
    cudaStream_t stream = (cudaStream_t)b->f.stream[0][0];
    cudaEvent_t event[ITERATIONS_MAX + 1] = {NULL};
    double *all = calloc((size_t)n * RANKS_MAX, sizeof(double));
    int i, r, rc = all == NULL ? rank_fail(CODE_CANNOT, "no memory") : ranks_barrier(b->f.ranks);

    for (i = 0; i <= n && rc == 0; i++)
        rc = CUDA(cudaEventCreate(&event[i]));
    for (i = 0; i <= n && rc == 0; i++) {
        rc = CUDA(cudaEventRecord(event[i], stream));
        if (rc == 0 && i < n)
            rc = fleet_launch(&b->f, 0, graph);
    }
    rc = code_worse(rc, fleet_finish(&b->f));
    for (i = 0; i < n && rc == 0; i++) {
        float ms = 0;
        rc = CUDA(cudaEventElapsedTime(&ms, event[i], event[i + 1]));
        us[i] = 1000.0 * (double)ms;
    }
    for (i = 0; i <= n; i++)
        if (event[i] != NULL)
            cudaEventDestroy(event[i]);
    rc = ranks_agree(b->f.ranks, rc);
    if (rc == 0)
        rc = ranks_allgather(b->f.ranks, us, all, (size_t)n * sizeof(double));
    for (i = 0; i < n && rc == 0; i++)
        for (r = 0; r < b->f.world; r++)
            us[i] = all[r * n + i] > us[i] ? all[r * n + i] : us[i];
    free(all);
    return rc;
}

static int rising(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return x < y ? -1 : x > y;
}

/*
 * Median over replays of the slowest rank, per call. Two replays tell how long one is; short ones are warmed up more
 * (the first hundreds of calls of an algorithm are slower), long ones are repeated less, to half a second at most.
 */
static int measure(bench *b, const work *w, int iterations, double *us)
{
    double sample[ITERATIONS_MAX];
    fleet_graph graph;
    int n = iterations, rc = ranks_agree(b->f.ranks, capture(b, w, &graph));

    if (rc == 0)
        rc = replay(b, &graph, 2, sample);
    if (rc == 0 && sample[1] < 5000)
        rc = replay(b, &graph, WARM, sample);
    if (rc == 0) {
        if (sample[1] * n > 500000)
            n = (int)(500000 / sample[1]);
        n = n < 3 ? 3 : n;
        rc = replay(b, &graph, n, sample);
    }
    fleet_graph_free(&b->f, &graph);
    qsort(sample, (size_t)n, sizeof(double), rising);
    *us = n % 2 != 0 ? sample[n / 2] : (sample[n / 2 - 1] + sample[n / 2]) / 2;
    *us /= b->j->o->calls;
    return rc;
}

/* --- a way to do a size ---------------------------------------------------------------------- */

static int set_cut(bench *b, const cut *c)
{
    int rc = par_debug(b->f.comm[0], PAR_DEBUG_LANES, c->lanes);

    rc = rc != 0 ? rc : par_debug(b->f.comm[0], PAR_DEBUG_THREADS, c->threads);
    rc = rc != 0 ? rc : par_debug(b->f.comm[0], PAR_DEBUG_CHUNK, c->chunk);
    return fleet_par(&b->f, rc, "set lanes, threads and chunk");
}

static work make_work(bench *b, int algorithm, size_t bytes, int in_place, int layer)
{
    char *out = b->f.work[0][0] + FLEET_MARGIN;
    work w = {layer, algorithm, in_place ? out : b->f.input[0], out, bytes / par_dtype_size(b->j->dtype)};

    return w;
}

/* Both places against the reference; wrong elements are summed over the ranks. */
static int screen(bench *b, int algorithm, size_t bytes, uint64_t wrong[2])
{
    size_t count = bytes / par_dtype_size(b->j->dtype);
    uint64_t mine[2] = {0, 0}, all[RANKS_MAX][2], total = 0;
    fleet_call call[2];
    int i, r, rc = fleet_tally_reset(&b->f);

    for (i = 0; i < 2 && rc == 0; i++) {
        size_t shift = dice_below(&b->d, b->j->data->count - count + 1);
        call[i] = (fleet_call){algorithm, b->j->dtype, count, shift - shift % 8, 0, i};
        rc = fleet_enqueue(&b->f, 0, &call[i], i);
    }
    rc = code_worse(rc, fleet_finish(&b->f));
    if (rc == 0)
        rc = fleet_tally_read(&b->f, call, 2, &total, mine);
    rc = ranks_agree(b->f.ranks, rc == CODE_WRONG ? CODE_OK : rc);
    if (rc == 0)
        rc = ranks_allgather(b->f.ranks, mine, all, sizeof(mine));
    wrong[0] = wrong[1] = 0;
    for (r = 0; r < b->f.world && rc == 0; r++) {
        wrong[0] += all[r][0];
        wrong[1] += all[r][1];
    }
    return rc;
}

static int measure_step(bench *b, int algorithm, size_t bytes, double *us)
{
    work with = make_work(b, algorithm, bytes, 1, 1), without = make_work(b, -1, bytes, 1, 1);
    double all = 0, layer = 0;
    int rc = measure(b, &with, b->j->o->iterations, &all);

    if (rc == 0)
        rc = measure(b, &without, b->j->o->iterations, &layer);
    *us = all - layer;
    return rc;
}

static int measure_all(bench *b, int algorithm, size_t bytes, times *t)
{
    work out = make_work(b, algorithm, bytes, 0, 0), in = make_work(b, algorithm, bytes, 1, 0);
    int rc = measure(b, &out, b->j->o->iterations, &t->out);

    if (rc == 0)
        rc = measure(b, &in, b->j->o->iterations, &t->in);
    return rc != 0 ? rc : measure_step(b, algorithm, bytes, &t->step);
}

/* Screen and time one cut; a worse or wrong one leaves *best as it is. */
static int try_cut(bench *b, row *best, const cut *c, int single)
{
    row r = *best;
    uint64_t wrong[2];
    work w = make_work(b, r.algorithm, r.bytes, 0, 0);
    int rc = ranks_agree(b->f.ranks, set_cut(b, c));

    rank_note("%s %zu bytes lanes %zu threads %zu chunk %zu", par_algorithm_name(r.algorithm), r.bytes, c->lanes,
              c->threads, c->chunk);
    if (rc == 0)
        rc = screen(b, r.algorithm, r.bytes, wrong);
    if (rc == 0 && wrong[0] + wrong[1] != 0) {
        best->wrong_out += wrong[0];
        best->wrong_in += wrong[1];
        return CODE_OK;
    }
    if (rc == 0)
        rc = measure(b, &w, single ? 3 : QUICK, &r.ours.out);
    if (rc == 0 && b->found != NULL && b->j->o->grid && !b->j->o->json)
        printf("# try %12zu %-22s %2zu %3zu %6zu %8.2f\n", r.bytes, par_algorithm_name(r.algorithm), c->lanes, c->threads,
               c->chunk, r.ours.out);
    if (rc == 0 && (best->ours.out <= 0 || r.ours.out < best->ours.out)) {
        best->ours.out = r.ours.out;
        best->cut = *c;
    }
    return rc;
}

/* The fastest cut of an algorithm. */
static int tune(bench *b, row *best)
{
    const options *o = b->j->o;
    int chunked = strstr(par_algorithm_name(best->algorithm), "chunked") != NULL ||
                  par_algorithm_transport(best->algorithm) == PAR_PULL;
    int l, t, c, chunks = chunked ? o->chunks.n : 1, single = o->lanes.n * o->threads.n * chunks == 1, rc = CODE_OK;

    for (l = 0; l < o->lanes.n && rc == 0; l++)
        for (t = 0; t < o->threads.n && rc == 0; t++)
            for (c = 0; c < chunks && rc == 0; c++) {
                cut this = {o->lanes.value[l], o->threads.value[t], chunked ? o->chunks.value[c] : 0};
                rc = try_cut(b, best, &this, single);
            }
    return rc;
}

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

static void print_row(const bench *b, const row *r)
{
    printf("%12zu %12zu %9s %6s %5d", r->bytes, r->bytes / par_dtype_size(b->j->dtype), type_name(b->j->dtype), "sum",
           -1);
    print_place(r->bytes, r->ours.out, r->wrong_out, b->j->world);
    print_place(r->bytes, r->ours.in, r->wrong_in, b->j->world);
    printf("  %-22s %2zu %3zu %6zu %8.2f", par_algorithm_name(r->algorithm), r->cut.lanes, r->cut.threads,
           r->cut.chunk, r->ours.step);
    if (b->j->o->nccl)
        printf(" %8.2f %8.2f %8.2f %5.2f %5.2f", r->nccl.out, r->nccl.in, r->nccl.step,
               r->ours.out > 0 ? r->nccl.out / r->ours.out : 0, r->ours.step > 0 ? r->nccl.step / r->ours.step : 0);
    if (b->j->o->model)
        printf(" %8.2f", r->model);
    putchar('\n');
    fflush(stdout);
}

static void print_header(const bench *b)
{
    const nccl *n = &b->rival;

    printf("# world %d, %s, graphs of %d calls, median of up to %d replays, slowest rank\n", b->j->world,
           b->j->host ? "host transport" : "peer transport", b->j->o->calls, b->j->o->iterations);
    if (b->j->o->nccl)
        printf("# NCCL %d.%d.%d, %d channels, via %s, %s; %s\n", n->version / 10000, n->version / 100 % 100,
               n->version % 100, n->channels, n->via[0] != '\0' ? n->via : "?", b->found->environment, n->path);
    if (b->j->o->model)
        printf("# graph node %.2f us; one way: host %.2f us, peer %.2f us; GB/s per GPU, all at once: host read %.1f "
               "write %.1f both %.1f, peer read %.1f write %.1f\n",
               b->rates.node_us, b->rates.host_us, b->rates.peer_us, b->rates.host_read / 1000,
               b->rates.host_write / 1000, b->rates.host_both / 1000, b->rates.peer_read / 1000,
               b->rates.peer_write / 1000);
    printf("#%79s%37s\n", "out-of-place", "in-place");
    printf("#%11s %12s %9s %6s %5s %8s %7s %7s %6s %8s %7s %7s %6s  %-22s %2s %3s %6s %8s%s%s\n", "size", "count", "type",
           "redop", "root", "time", "algbw", "busbw", "#wrong", "time", "algbw", "busbw", "#wrong", "algorithm", "bl",
           "thr", "chunk", "in step", b->j->o->nccl ? "     NCCL in-place  in step ratio  step" : "",
           b->j->o->model ? "    model" : "");
    printf("#%11s %12s %9s %6s %5s %8s %7s %7s %6s %8s %7s %7s\n", "(B)", "(elements)", "", "", "", "(us)", "(GB/s)",
           "(GB/s)", "", "(us)", "(GB/s)", "(GB/s)");
    fflush(stdout);
}

static void keep_row(bench *b, const row *r)
{
    if (b->found == NULL)
        return;
    b->found->wrong += r->wrong_out + r->wrong_in;
    if (b->found->n < ROWS)
        b->found->rows[b->found->n++] = *r;
    if (!b->j->o->json && (r->fastest || b->j->o->each || r->wrong_out + r->wrong_in != 0))
        print_row(b, r);
}

/* All algorithms of a size; the fastest gets the full measurement, all of them with --each. */
static int one_size(bench *b, size_t bytes)
{
    row rows[PAR_ALGORITHMS];
    times rival = {0, 0, 0};
    int a, best = 0, rc = CODE_OK;

    memset(rows, 0, sizeof(rows));
    if (b->j->o->nccl) {
        rank_note("NCCL %zu bytes", bytes);
        rc = measure_all(b, 0, bytes, &rival);
    }
    for (a = 1; a < PAR_ALGORITHMS && rc == 0; a++) {
        rows[a].bytes = bytes;
        rows[a].algorithm = a;
        rows[a].nccl = rival;
        if (!(b->j->algorithms >> a & 1u) || par_max_bytes(b->f.comm[0], (par_algorithm)a) < bytes)
            continue;
        rc = tune(b, &rows[a]);
        if (rows[a].ours.out > 0 && (best == 0 || rows[a].ours.out < rows[best].ours.out))
            best = a;
    }
    for (a = 1; a < PAR_ALGORITHMS && rc == 0; a++) {
        row *r = &rows[a];
        r->fastest = a == best;
        r->model = b->j->o->model ? model_us(&b->rates, b->j->host, b->j->world, (double)bytes) : 0;
        if (r->ours.out > 0 && (r->fastest || b->j->o->each)) {
            rc = ranks_agree(b->f.ranks, set_cut(b, &r->cut));
            rc = rc != 0 ? rc : measure_all(b, a, bytes, &r->ours);
        }
        if (rc == 0 && (r->ours.out > 0 || r->wrong_out + r->wrong_in != 0))
            keep_row(b, r);
    }
    return rc;
}

/* --- one process ----------------------------------------------------------------------------- */

/* One eager call, which NCCL needs before it can be captured; it also tells the number of channels. */
static int warm_up_rival(bench *b)
{
    int rc = nccl_open(&b->rival, b->f.ranks, b->j->o->nccl_path);

    if (rc == 0)
        rc = ranks_agree(b->f.ranks, nccl_all_reduce(&b->rival, b->f.input[0], b->f.work[0][0] + FLEET_MARGIN, 1024,
                                                     b->j->dtype, b->f.stream[0][0]));
    if (rc == 0)
        rc = ranks_agree(b->f.ranks, fleet_finish(&b->f));
    return rc;
}

static int prepare(bench *b)
{
    const job *j = b->j;
    int rc = fleet_load(&b->f, j->data, j->data->bytes - SLACK);

    if (rc == 0 && j->o->nccl)
        rc = warm_up_rival(b);
    if (rc == 0 && j->o->model)
        rc = model_measure(&b->rates, &b->f, j->window, !j->host);
    if (rc == 0 && b->found != NULL) {
        b->found->rates = b->rates;
        b->found->rival = b->rival;
        nccl_environment(b->found->environment, sizeof(b->found->environment));
        if (!j->o->json)
            print_header(b);
    }
    return rc;
}

static int body(ranks *self, void *context)
{
    const job *j = context;
    par_options wanted = PAR_OPTIONS_INIT;
    bench *b = calloc(1, sizeof(*b));
    int i, rc;

    if (b == NULL)
        return rank_fail(CODE_CANNOT, "no memory");
    b->j = j;
    b->found = self->rank == 0 ? j->found : NULL;
    b->d.state = j->o->seed;
    if (j->host)
        setenv("NCCL_P2P_DISABLE", "1", 1);
    wanted.with = j->host ? PAR_WITH_HOST : PAR_WITH_PEER;
    wanted.mode = PAR_MODE_STATUS;
    wanted.timeout_s = 20;
    rc = fleet_open(&b->f, self, j->world, j->device, 0, &wanted);
    if (rc == 0)
        rc = prepare(b);
    for (i = 0; i < j->o->sizes.n && rc == 0; i++)
        rc = one_size(b, j->o->sizes.value[i]);
    rank_note("closing");
    nccl_close(&b->rival);
    fleet_close(&b->f);
    free(b);
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
        text_add(t, ",\"model\":{\"graph_node_us\":%.3f,\"host_both_gbs\":%.2f,\"host_one_way_us\":%.3f,"
                 "\"host_read_gbs\":%.2f,\"host_write_gbs\":%.2f,\"peer_one_way_us\":%.3f,\"peer_read_gbs\":%.2f,"
                 "\"peer_write_gbs\":%.2f}", f->rates.node_us, f->rates.host_both / 1000, f->rates.host_us,
                 f->rates.host_read / 1000, f->rates.host_write / 1000, f->rates.peer_us, f->rates.peer_read / 1000,
                 f->rates.peer_write / 1000);
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
