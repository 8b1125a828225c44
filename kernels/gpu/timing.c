#include "timing.h"

#include "cuda.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    ITERATIONS_MAX = 1000,
    QUICK = 5, /* replays of a try among several */
    WARM = 8   /* replays before short ones are timed */
};

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
                              w->count * par_dtype_size(b->dtype), stream));
    if (rc == 0 && w->algorithm == 0)
        rc = nccl_all_reduce(&b->rival, in, out, w->count, b->dtype, stream);
    else if (rc == 0 && w->algorithm > 0)
        rc = fleet_par(&b->f, fleet_all_reduce(&b->f, 0, &in, &out, w->count, b->dtype, w->algorithm), "all-reduce");
    return rc;
}

static int capture(bench *b, const work *w, fleet_graph *graph)
{
    int i, rc = fleet_capture_begin(&b->f, 0), ended;

    for (i = 0; i < b->o->calls && rc == 0; i++)
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
    *us /= b->o->calls;
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

static work make_work(bench *b, int algorithm, size_t bytes, int in_place, int layer)
{
    char *out = b->f.work[0][0] + FLEET_MARGIN;
    work w = {layer, algorithm, in_place ? out : b->f.input[0], out, bytes / par_dtype_size(b->dtype)};

    return w;
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

static int measure_step(bench *b, int algorithm, size_t bytes, double *us)
{
    work with = make_work(b, algorithm, bytes, 1, 1), without = make_work(b, -1, bytes, 1, 1);
    double all = 0, layer = 0;
    int rc = measure(b, &with, b->o->iterations, &all);

    if (rc == 0)
        rc = measure(b, &without, b->o->iterations, &layer);
    *us = all - layer;
    return rc;
}

int timing_all(bench *b, int algorithm, size_t bytes, times *t)
{
    work out = make_work(b, algorithm, bytes, 0, 0), in = make_work(b, algorithm, bytes, 1, 0);
    int rc = measure(b, &out, b->o->iterations, &t->out);

    if (rc == 0)
        rc = measure(b, &in, b->o->iterations, &t->in);
    return rc != 0 ? rc : measure_step(b, algorithm, bytes, &t->step);
}

/* Screen and time one cut; a worse or wrong one leaves *best as it is. */
static int try_cut(bench *b, row *best, const cut *c, int single)
{
    row r = *best;
    uint64_t wrong[2];
    work w = make_work(b, r.algorithm, r.bytes, 0, 0);
    int rc = ranks_agree(b->f.ranks, timing_cut(b, c));

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
    if (rc == 0 && b->talks && b->o->grid && !b->o->json)
        printf("# try %12zu %-22s %2zu %3zu %6zu %8.2f\n", r.bytes, par_algorithm_name(r.algorithm), c->lanes,
               c->threads, c->chunk, r.ours.out);
    if (rc == 0 && (best->ours.out <= 0 || r.ours.out < best->ours.out)) {
        best->ours.out = r.ours.out;
        best->cut = *c;
    }
    return rc;
}

/* The fastest cut of an algorithm. */
int timing_tune(bench *b, row *best)
{
    const options *o = b->o;
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
