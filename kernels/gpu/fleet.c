#include "fleet.h"

#include "cuda.h"
#include "inject.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static size_t size_of(int dtype)
{
    return par_dtype_size(dtype);
}

/* The held rank whose streams rank h uses: the first on the same GPU. */
static int owner_of(const fleet *f, int h)
{
    int i = 0;

    while (f->device[f->first + i] != f->device[f->first + h])
        i++;
    return i;
}

static int on_device(const fleet *f, int h)
{
    return CUDA(cudaSetDevice(f->device[f->first + h]));
}

/* --- errors ---------------------------------------------------------------------------------- */

static int aborted(fleet *f, const char *what)
{
    par_report report;
    int h, found = 0;

    for (h = 0; h < f->held && !found; h++) {
        memset(&report, 0, sizeof(report));
        found = f->comm[h] != NULL && par_last_report(f->comm[h], &report) == 0 && report.error != 0;
    }
    return rank_fail(CODE_HANG, "rank %d: %s: %s", f->first, what, found ? report.text : "aborted, no report");
}

int fleet_par(fleet *f, int error, const char *what)
{
    if (error == PAR_OK)
        return CODE_OK;
    if (error == PAR_ERR_ABORTED)
        return aborted(f, what);
    return rank_fail(CODE_CANNOT, "rank %d: %s: %s: %s", f->first, what, par_error_name(error), par_last_error());
}

/* --- life ------------------------------------------------------------------------------------ */

static int make_comms(fleet *f)
{
    int rc;

    if (f->local)
        rc = fleet_par(f, par_create_local(f->comm, f->world, f->device, &f->options), "create");
    else
        rc = fleet_par(
            f, par_create(&f->comm[0], f->first, f->world, f->device[f->first], ranks_allgather, f->ranks, &f->options),
            "create");
    return ranks_agree(f->ranks, rc);
}

static void drop_comms(fleet *f)
{
    int h;

    for (h = 0; h < f->held; h++) {
        par_close(f->comm[h]);
        f->comm[h] = NULL;
    }
}

static int make_streams(fleet *f)
{
    int h, s, rc = CODE_OK;

    for (h = 0; h < f->held && rc == 0; h++) {
        int owner = owner_of(f, h);
        rc = on_device(f, h);
        if (rc == 0)
            rc = CUDA(check_load());
        for (s = 0; s < FLEET_SETS && rc == 0; s++) {
            if (owner == h)
                rc = CUDA(cudaStreamCreateWithFlags((cudaStream_t *)&f->stream[s][h], cudaStreamNonBlocking));
            else
                f->stream[s][h] = f->stream[s][owner];
        }
        if (rc == 0)
            rc = CUDA(cudaEventCreateWithFlags((cudaEvent_t *)&f->event[h], cudaEventDisableTiming));
        if (rc == 0)
            rc = CUDA(cudaMalloc((void **)&f->tally[h], FLEET_TALLIES * sizeof(check_tally)));
    }
    return rc;
}

int fleet_open(fleet *f, ranks *r, int world, const int *device, int local, const par_options *wanted)
{
    int rc;

    memset(f, 0, sizeof(*f));
    f->ranks = r;
    f->world = world;
    f->local = local;
    f->first = local ? 0 : r->rank;
    f->held = local ? world : 1;
    if (wanted != NULL)
        f->options = *wanted;
    memcpy(f->device, device, sizeof(int) * (size_t)world);
    rank_note("opening streams");
    rc = ranks_agree(r, make_streams(f));
    rank_note("creating the communicator");
    return rc != 0 || wanted == NULL ? rc : make_comms(f);
}

int fleet_reopen(fleet *f)
{
    rank_note("creating the communicator again");
    drop_comms(f);
    return make_comms(f);
}

int fleet_twin(fleet *twin, const fleet *f)
{
    *twin = *f;
    memset(twin->comm, 0, sizeof(twin->comm));
    return make_comms(twin);
}

void fleet_twin_close(fleet *twin)
{
    drop_comms(twin);
}

static void unload(fleet *f, int h)
{
    int s;

    cudaFree(f->input[h]);
    cudaFree(f->expected[h]);
    for (s = 0; s < FLEET_SETS; s++) {
        cudaFree(f->work[s][h]);
        f->work[s][h] = NULL;
    }
    f->input[h] = f->expected[h] = NULL;
}

void fleet_close(fleet *f)
{
    int h, s;

    drop_comms(f);
    for (h = 0; h < f->held; h++) {
        cudaSetDevice(f->device[f->first + h]);
        unload(f, h);
        cudaFree(f->tally[h]);
        for (s = 0; s < FLEET_SETS; s++)
            if (f->stream[s][h] != NULL && owner_of(f, h) == h)
                cudaStreamDestroy((cudaStream_t)f->stream[s][h]);
        if (f->event[h] != NULL)
            cudaEventDestroy((cudaEvent_t)f->event[h]);
    }
}

static int load_one(fleet *f, int h)
{
    size_t work = f->room + 2 * FLEET_MARGIN;
    int rc = on_device(f, h);

    if (rc == 0)
        rc = CUDA(cudaMalloc((void **)&f->input[h], f->data->bytes));
    if (rc == 0)
        rc = CUDA(cudaMalloc((void **)&f->expected[h], f->data->bytes));
    if (rc == 0)
        rc = CUDA(cudaMalloc((void **)&f->work[0][h], work));
    if (rc == 0)
        rc = CUDA(cudaMalloc((void **)&f->work[1][h], FLEET_SECOND + 2 * FLEET_MARGIN));
    if (rc == 0)
        rc = CUDA(cudaMemcpy(f->input[h], f->data->input[f->first + h], f->data->bytes, cudaMemcpyHostToDevice));
    if (rc == 0)
        rc = CUDA(cudaMemcpy(f->expected[h], f->data->expected[f->world], f->data->bytes, cudaMemcpyHostToDevice));
    return rc;
}

int fleet_load(fleet *f, const dataset *d, size_t room)
{
    int h, rc = CODE_OK;

    rank_note("loading %s data", par_dtype_name(d->dtype));
    f->data = d;
    f->room = room;
    for (h = 0; h < f->held && rc == 0; h++) {
        unload(f, h);
        rc = load_one(f, h);
    }
    return ranks_agree(f->ranks, rc);
}

/* --- calls ----------------------------------------------------------------------------------- */

/* A fault on purpose, in a build that has them. */
static void inject(fleet *f, int set, void *const *out, const char *fault, int algorithm)
{
    int h;

    if (!injected_into(fault, par_algorithm_name(algorithm)))
        return;
    for (h = 0; h < f->held && on_device(f, h) == 0; h++)
        if (out != NULL)
            (void)cudaMemsetAsync(out[h], 0x5a, 2, (cudaStream_t)f->stream[set][h]);
        else if (owner_of(f, h) == h)
            (void)check_delay(20000, f->stream[set][h]);
}

int fleet_all_reduce(fleet *f, int set, const void *const *in, void *const *out, size_t count, int dtype, int algorithm)
{
    int rc;

    inject(f, set, NULL, "slow", algorithm);
    if (f->local)
        rc = par_all_reduce_local(f->comm, in, out, count, (par_dtype)dtype, (par_algorithm)algorithm, f->stream[set]);
    else
        rc = par_all_reduce(f->comm[0], in[0], out[0], count, (par_dtype)dtype, (par_algorithm)algorithm,
                            f->stream[set][0]);
    inject(f, set, out, "wrong", algorithm);
    return rc;
}

static int prepare(fleet *f, int set, int h, const fleet_call *c, char *out, const char *source)
{
    cudaStream_t stream = (cudaStream_t)f->stream[set][h];
    size_t bytes = c->count * size_of(c->dtype);
    int rc = on_device(f, h);

    if (rc == 0)
        rc = CUDA(cudaMemsetAsync(out - FLEET_GUARD, CHECK_POISON, bytes + 2 * FLEET_GUARD, stream));
    if (rc == 0 && c->in_place)
        rc = CUDA(cudaMemcpyAsync(out, source, bytes, cudaMemcpyDeviceToDevice, stream));
    return rc;
}

static int compare(fleet *f, int set, const fleet_call *c, int slot, char *const *out, size_t guard)
{
    size_t size = size_of(c->dtype);
    int h, rc = CODE_OK;

    for (h = 0; h < f->held && rc == 0; h++) {
        rc = on_device(f, h);
        if (rc == 0)
            rc = CUDA(check_compare(out[h], f->expected[h] + c->shift * size, c->count, size, guard, &f->tally[h][slot],
                                    f->stream[set][h]));
    }
    return rc;
}

int fleet_enqueue(fleet *f, int set, const fleet_call *c, int slot)
{
    const void *in[PAR_MAX_WORLD];
    char *out[PAR_MAX_WORLD];
    size_t size = size_of(c->dtype);
    int h, rc = CODE_OK;

    for (h = 0; h < f->held && rc == 0; h++) {
        const char *source = f->input[h] + c->shift * size;
        out[h] = f->work[set][h] + FLEET_MARGIN + c->offset * size;
        in[h] = c->in_place ? out[h] : source;
        rc = prepare(f, set, h, c, out[h], source);
    }
    if (rc == 0)
        rc = fleet_par(f, fleet_all_reduce(f, set, in, (void *const *)out, c->count, c->dtype, c->algorithm),
                       "all-reduce");
    return rc != 0 ? rc : compare(f, set, c, slot, out, FLEET_GUARD);
}

int fleet_enqueue_bare(fleet *f, int set, const fleet_call *c, int slot)
{
    const void *in[PAR_MAX_WORLD];
    char *out[PAR_MAX_WORLD];
    size_t size = size_of(c->dtype);
    int h, rc;

    for (h = 0; h < f->held; h++) {
        in[h] = f->input[h] + c->shift * size;
        out[h] = f->work[set][h] + FLEET_MARGIN + c->offset * size;
    }
    rc = fleet_par(f, fleet_all_reduce(f, set, in, (void *const *)out, c->count, c->dtype, c->algorithm), "all-reduce");
    return rc != 0 ? rc : compare(f, set, c, slot, out, 0);
}

/* --- graphs and order ------------------------------------------------------------------------ */

int fleet_capture_begin(fleet *f, int set)
{
    int h, rc = CODE_OK;

    for (h = 0; h < f->held && rc == 0; h++)
        if (owner_of(f, h) == h) {
            rc = on_device(f, h);
            if (rc == 0)
                rc = CUDA(cudaStreamBeginCapture((cudaStream_t)f->stream[set][h], cudaStreamCaptureModeRelaxed));
        }
    return rc;
}

int fleet_capture_end(fleet *f, int set, fleet_graph *out)
{
    int h, rc = CODE_OK, bad;

    memset(out, 0, sizeof(*out));
    for (h = 0; h < f->held; h++) {
        cudaGraph_t graph = NULL;
        if (owner_of(f, h) != h)
            continue;
        bad = on_device(f, h);
        if (bad == 0)
            bad = CUDA(cudaStreamEndCapture((cudaStream_t)f->stream[set][h], &graph));
        if (bad == 0)
            bad = CUDA(cudaGraphInstantiateWithFlags((cudaGraphExec_t *)&out->exec[h], graph, 0));
        if (graph != NULL)
            cudaGraphDestroy(graph);
        rc = rc != 0 ? rc : bad;
    }
    return rc;
}

int fleet_launch(fleet *f, int set, const fleet_graph *graph)
{
    int h, rc = CODE_OK;

    for (h = 0; h < f->held && rc == 0; h++)
        if (graph->exec[h] != NULL) {
            rc = on_device(f, h);
            if (rc == 0)
                rc = CUDA(cudaGraphLaunch((cudaGraphExec_t)graph->exec[h], (cudaStream_t)f->stream[set][h]));
        }
    return rc;
}

void fleet_graph_free(fleet *f, fleet_graph *graph)
{
    int h;

    for (h = 0; h < f->held; h++)
        if (graph->exec[h] != NULL)
            cudaGraphExecDestroy((cudaGraphExec_t)graph->exec[h]);
    memset(graph, 0, sizeof(*graph));
}

int fleet_order(fleet *f, int from, int to)
{
    int h, rc = CODE_OK;

    for (h = 0; h < f->held && rc == 0; h++) {
        if (from == to || owner_of(f, h) != h)
            continue;
        rc = on_device(f, h);
        if (rc == 0)
            rc = CUDA(cudaEventRecord((cudaEvent_t)f->event[h], (cudaStream_t)f->stream[from][h]));
        if (rc == 0)
            rc = CUDA(cudaStreamWaitEvent((cudaStream_t)f->stream[to][h], (cudaEvent_t)f->event[h], 0));
    }
    return rc;
}

int fleet_finish(fleet *f)
{
    int h, s, rc = CODE_OK;

    for (h = 0; h < f->held; h++)
        for (s = 0; s < FLEET_SETS && rc == 0; s++) {
            rc = on_device(f, h);
            if (rc == 0)
                rc = CUDA(cudaStreamSynchronize((cudaStream_t)f->stream[s][h]));
        }
    for (h = 0; h < f->held && rc == 0 && f->comm[h] != NULL; h++)
        rc = fleet_par(f, par_status(f->comm[h]), "status");
    return rc;
}

/* --- tallies --------------------------------------------------------------------------------- */

int fleet_tally_reset(fleet *f)
{
    int h, rc = CODE_OK;

    for (h = 0; h < f->held && rc == 0; h++) {
        rc = on_device(f, h);
        if (rc == 0)
            rc = CUDA(cudaMemset(f->tally[h], 0, FLEET_TALLIES * sizeof(check_tally)));
        if (rc == 0)
            rc = CUDA(cudaDeviceSynchronize());
    }
    return rc;
}

static void describe(const fleet *f, int h, const fleet_call *c, const check_tally *t)
{
    int digits = (int)size_of(c->dtype) * 2;

    rank_fail(CODE_WRONG,
              "rank %d of %d: %s %s count %zu shift %zu offset %zu %s: %llu wrong, %llu guard bytes; "
              "element %llu expected 0x%0*x seen 0x%0*x",
              f->first + h, f->world, par_algorithm_name(c->algorithm), par_dtype_name(c->dtype), c->count, c->shift,
              c->offset, c->in_place ? "in place" : "out of place", t->wrong, t->guard, t->sample[0].index, digits,
              t->sample[0].expected, digits, t->sample[0].seen);
}

int fleet_tally_read(fleet *f, const fleet_call *calls, int n, uint64_t *wrong, uint64_t *wrong_of)
{
    check_tally tally[FLEET_TALLIES];
    int h, i, rc = CODE_OK, result = CODE_OK;

    for (i = 0; i < n && wrong_of != NULL; i++)
        wrong_of[i] = 0;
    for (h = 0; h < f->held && rc == 0; h++) {
        rc = on_device(f, h);
        if (rc == 0)
            rc = CUDA(cudaMemcpy(tally, f->tally[h], (size_t)n * sizeof(tally[0]), cudaMemcpyDeviceToHost));
        for (i = 0; i < n && rc == 0; i++) {
            uint64_t bad = tally[i].wrong + tally[i].guard;
            if (bad == 0)
                continue;
            describe(f, h, &calls[i], &tally[i]);
            result = CODE_WRONG;
            *wrong += bad;
            if (wrong_of != NULL)
                wrong_of[i] += bad;
        }
    }
    return rc != 0 ? rc : result;
}
