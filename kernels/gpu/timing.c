#include "timing.h"

#include "cuda.h"
#include "plan.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    ITERATIONS_MAX = 1000,
    QUICK = 5, /* replays of a try */
    WARM = 8,  /* replays before short ones are timed */
    SHORT_US = 5000
};

/* --- what is timed --------------------------------------------------------------------------- */

/* `calls` times: a layer, an all-reduce by us or NCCL, or both. */
typedef struct {
    int layer;
    int algorithm; /* ours; 0: NCCL; -1: no all-reduce */
    char *in, *out;
    size_t count;
    int calls;
    int eager;
    fleet_graph graph; /* of them, unless eager */
} work;

static int enqueue(bench *b, const work *w)
{
    void *stream = b->f.stream[0][0];
    const void *in = w->in;
    void *out = w->out;
    int rc = CODE_OK;

    if (w->layer)
        rc = CUDA(check_layer(w->in, w->count * par_dtype_size(b->dtype), stream));
    if (rc == 0 && w->algorithm == 0)
        rc = nccl_all_reduce(&b->rival, in, out, w->count, b->dtype, stream);
    else if (rc == 0 && w->algorithm > 0)
        rc = fleet_par(&b->f, fleet_all_reduce(&b->f, 0, &in, &out, w->count, b->dtype, w->algorithm), "all-reduce");
    return rc;
}

static int enqueue_all(bench *b, const work *w)
{
    int i, rc = CODE_OK;

    for (i = 0; i < w->calls && rc == 0; i++)
        rc = enqueue(b, w);
    return rc;
}

static int capture(bench *b, work *w)
{
    int rc = fleet_capture_begin(&b->f, 0), ended;

    rc = rc != 0 ? rc : enqueue_all(b, w);
    ended = fleet_capture_end(&b->f, 0, &w->graph);
    return rc != 0 ? rc : ended;
}

static work make_work(bench *b, int algorithm, size_t bytes, manner how)
{
    char *out = b->f.work[0][0] + FLEET_MARGIN;
    work w = {.layer = how == TIMING_STEP,
              .algorithm = algorithm,
              .in = how == TIMING_IN_PLACE ? out : b->f.input[0],
              .out = out,
              .count = bytes / par_dtype_size(b->dtype),
              .calls = plan_calls(b->calls, bytes),
              .eager = how == TIMING_EAGER};

    return w;
}

/* --- one measurement ------------------------------------------------------------------------- */

/* Do it n times with an event between any two; us[i]: time i, the slowest rank. */
static int replay(bench *b, const work *w, int n, double *us)
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
            rc = w->eager ? enqueue_all(b, w) : fleet_launch(&b->f, 0, &w->graph);
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

/* Of rising values, between the two that are next to it. */
static double quantile(const double *sorted, int n, double q)
{
    double at = q * (n - 1);
    int low = (int)at, high = low + 1 < n ? low + 1 : low;

    return sorted[low] + (at - low) * (sorted[high] - sorted[low]);
}

static span span_of(double *us, int n, int calls)
{
    span s;

    qsort(us, (size_t)n, sizeof(*us), rising);
    s = (span){quantile(us, n, 0.5) / calls, quantile(us, n, 0.1) / calls, quantile(us, n, 0.9) / calls, n};
    return s;
}

/* Two replays tell how long one is; short ones are warmed up more: the first hundreds of calls are slower. */
static int measure(bench *b, work *w, int most, double seconds, span *out)
{
    double sample[ITERATIONS_MAX];
    int n = most, rc = ranks_agree(b->f.ranks, w->eager ? CODE_OK : capture(b, w));

    if (rc == 0)
        rc = replay(b, w, 2, sample);
    if (rc == 0 && sample[1] < SHORT_US)
        rc = replay(b, w, WARM, sample);
    if (rc == 0) {
        n = plan_replays(seconds, sample[1], most);
        rc = replay(b, w, n, sample);
    }
    fleet_graph_free(&b->f, &w->graph);
    if (rc == 0)
        *out = span_of(sample, n, w->calls);
    return rc;
}

static int measure_layer(bench *b, size_t bytes, double seconds)
{
    work w = make_work(b, -1, bytes, TIMING_STEP);
    span layer = {0};
    int rc = CODE_OK;

    if (b->layer_bytes != bytes) {
        rc = measure(b, &w, b->iterations, seconds, &layer);
        b->layer_us = layer.us;
        b->layer_bytes = bytes;
    }
    return rc;
}

/* Where something else disturbed the layer alone, less than nothing may be left: that is no time. */
static double above(double us, double layer)
{
    return us > layer ? us - layer : 0;
}

int timing_measure(bench *b, int algorithm, size_t bytes, manner how, double seconds, span *out)
{
    work w = make_work(b, algorithm, bytes, how);
    int rc = how == TIMING_STEP ? measure_layer(b, bytes, seconds) : CODE_OK;

    if (rc == 0)
        rc = measure(b, &w, b->iterations, seconds, out);
    if (rc == 0 && how == TIMING_STEP) {
        out->us = above(out->us, b->layer_us);
        out->p10 = above(out->p10, b->layer_us);
        out->p90 = above(out->p90, b->layer_us);
    }
    return rc;
}

/* --- a way to do a size ---------------------------------------------------------------------- */

int timing_cut(bench *b, const cut *c)
{
    int rc = par_debug(b->f.comm[0], PAR_DEBUG_LANES, c->lanes);

    rc = rc != 0 ? rc : par_debug(b->f.comm[0], PAR_DEBUG_THREADS, c->threads);
    rc = rc != 0 ? rc : par_debug(b->f.comm[0], PAR_DEBUG_CHUNK, c->chunk);
    return fleet_par(&b->f, rc, "set lanes, threads and chunk");
}

/* Both places against the reference; wrong elements are summed over the ranks. */
static int screen(bench *b, int algorithm, size_t bytes, uint64_t wrong[2])
{
    size_t count = bytes / par_dtype_size(b->dtype);
    uint64_t mine[2] = {0, 0}, all[RANKS_MAX][2], total = 0;
    fleet_call call[2];
    int i, r, rc = fleet_tally_reset(&b->f);

    for (i = 0; i < 2 && rc == 0; i++) {
        size_t shift = dice_below(&b->d, b->f.data->count - count + 1);
        call[i] = (fleet_call){algorithm, b->dtype, count, shift - shift % 8, 0, i};
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

/* Screen and time one cut; a worse or wrong one leaves *best as it is. */
static int try_cut(bench *b, findings *best, const cut *c, double seconds)
{
    work w = make_work(b, best->algorithm, best->bytes, TIMING_GRAPH);
    span found = {0}, *fastest = &best->time[TIMING_GRAPH];
    uint64_t wrong[2];
    int rc = ranks_agree(b->f.ranks, timing_cut(b, c));

    rank_note("%s %zu bytes lanes %zu threads %zu chunk %zu", par_algorithm_name(best->algorithm), best->bytes,
              c->lanes, c->threads, c->chunk);
    if (rc == 0)
        rc = screen(b, best->algorithm, best->bytes, wrong);
    if (rc == 0 && wrong[0] + wrong[1] != 0) {
        best->wrong_out += wrong[0];
        best->wrong_in += wrong[1];
        return CODE_OK;
    }
    if (rc == 0)
        rc = measure(b, &w, b->iterations < QUICK ? b->iterations : QUICK, seconds, &found);
    if (rc == 0 && b->talks && b->o->grid && !b->o->json)
        printf("# try %12zu %-22s %2zu %3zu %6zu %8.2f\n", best->bytes, par_algorithm_name(best->algorithm), c->lanes,
               c->threads, c->chunk, found.us);
    if (rc == 0 && (fastest->n == 0 || found.us < fastest->us)) {
        *fastest = found;
        best->cut = *c;
    }
    return rc;
}

int timing_tune(bench *b, findings *best, double seconds)
{
    const options *o = b->o;
    int chunked = strstr(par_algorithm_name(best->algorithm), "chunked") != NULL ||
                  par_algorithm_transport(best->algorithm) == PAR_PULL;
    int l, t, c, chunks = chunked ? o->chunks.n : 1, rc = CODE_OK;
    double each = seconds / (o->lanes.n * o->threads.n * chunks);

    for (l = 0; l < o->lanes.n && rc == 0; l++)
        for (t = 0; t < o->threads.n && rc == 0; t++)
            for (c = 0; c < chunks && rc == 0; c++) {
                cut this = {o->lanes.value[l], o->threads.value[t], chunked ? o->chunks.value[c] : 0};
                rc = try_cut(b, best, &this, each);
            }
    return rc;
}
