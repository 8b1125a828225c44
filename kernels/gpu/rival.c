/*
 * nccl: does NCCL give right sums on these GPUs, as it comes, and without peer access? The control arm of verify: where
 * even NCCL errs through host memory, a failure of ours says nothing about peers, and the machine is what to look at.
 *
 * Sums of small whole numbers, exact in every type and order. Each arm in processes of its own with a time limit; an NCCL
 * that is not there, or cannot start, is skipped: that proves nothing.
 */
#include "cuda.h"
#include "nccl.h"
#include "options.h"
#include "probe.h"
#include "report.h"

#include <stdlib.h>
#include <string.h>

enum { LONGEST = 4 << 20, VALUES = 16 };

typedef struct {
    int dtype, rounds;
    size_t bytes;
} sums;

static const sums all_sums[] = {{PAR_BF16, 20, 64 << 10}, {PAR_FP32, 5, 64 << 10}, {PAR_BF16, 2, LONGEST}};

typedef struct {
    const options *o;
    const probe *p;
    int no_p2p;
} arm;

typedef struct {
    ranks *self;
    nccl rival;
    void *in, *out, *host, *stream;
} place;

/* --- data ------------------------------------------------------------------------------------ */

static int value(int rank, size_t index, int round)
{
    return (int)((index * 5 + (size_t)rank * 3 + (size_t)round * 7) % VALUES);
}

/* Up to 8 x 15 = 120: a whole number that bf16 holds. */
static int expected(int world, size_t index, int round)
{
    int rank, sum = 0;

    for (rank = 0; rank < world; rank++)
        sum += value(rank, index, round);
    return sum;
}

static void put(void *to, const sums *s, size_t index, int what)
{
    float number = (float)what;
    uint32_t bits;

    memcpy(&bits, &number, sizeof(bits));
    if (s->dtype == PAR_FP32)
        ((uint32_t *)to)[index] = bits;
    else
        ((uint16_t *)to)[index] = (uint16_t)(bits >> 16);
}

static float get(const void *from, const sums *s, size_t index)
{
    uint32_t bits =
        s->dtype == PAR_FP32 ? ((const uint32_t *)from)[index] : (uint32_t)((const uint16_t *)from)[index] << 16;
    float number;

    memcpy(&number, &bits, sizeof(number));
    return number;
}

/* --- one rank -------------------------------------------------------------------------------- */

static int finish(place *w)
{
    cudaError_t state;

    while ((state = cudaStreamQuery(w->stream)) == cudaErrorNotReady)
        seconds_sleep(0.0001); /* one that never ends is killed at the limit */
    return CUDA(state);
}

static int compare(const place *w, const sums *s, int round)
{
    size_t i, count = s->bytes / par_dtype_size(s->dtype);

    for (i = 0; i < count; i++) {
        float seen = get(w->host, s, i), right = (float)expected(w->self->world, i, round);

        if (!(seen == right))
            return rank_fail(CODE_WRONG, "rank %d: a sum of %zu bytes of %s: element %zu is %g, not %g", w->self->rank,
                             s->bytes, par_dtype_name(s->dtype), i, (double)seen, (double)right);
    }
    return CODE_OK;
}

static int one_sum(place *w, const sums *s, int round)
{
    size_t i, count = s->bytes / par_dtype_size(s->dtype);
    int rc;

    rank_note("NCCL, %zu bytes of %s, round %d", s->bytes, par_dtype_name(s->dtype), round);
    for (i = 0; i < count; i++)
        put(w->host, s, i, value(w->self->rank, i, round));
    rc = CUDA(cudaMemcpyAsync(w->in, w->host, s->bytes, cudaMemcpyHostToDevice, (cudaStream_t)w->stream));
    if (rc == 0)
        rc = CUDA(cudaMemsetAsync(w->out, 0xff, s->bytes, (cudaStream_t)w->stream));
    if (rc == 0)
        rc = nccl_all_reduce(&w->rival, w->in, w->out, count, s->dtype, w->stream);
    if (rc == 0)
        rc = finish(w);
    if (rc == 0)
        rc = CUDA(cudaMemcpy(w->host, w->out, s->bytes, cudaMemcpyDeviceToHost));
    return rc == 0 ? compare(w, s, round) : rc;
}

static int prepare(place *w, const arm *a)
{
    int rc = CUDA(cudaSetDevice(a->p->device[w->self->rank]));

    nccl_set_up(a->no_p2p);
    if (rc == 0)
        rc = CUDA(cudaMalloc(&w->in, LONGEST));
    if (rc == 0)
        rc = CUDA(cudaMalloc(&w->out, LONGEST));
    if (rc == 0)
        rc = CUDA(cudaStreamCreateWithFlags((cudaStream_t *)&w->stream, cudaStreamNonBlocking));
    w->host = malloc(LONGEST);
    return rc != 0 ? rc : w->host != NULL ? CODE_OK : rank_fail(CODE_CANNOT, "no memory");
}

/* All ranks end together: one that saw a wrong sum leaves none waiting. */
static int body(ranks *self, void *context)
{
    place w = {.self = self};
    const sums *s;
    int round, rc = ranks_agree(self, prepare(&w, context));

    if (rc == 0)
        rc = nccl_open(&w.rival, self, ((const arm *)context)->o->nccl_path);
    for (s = all_sums; s < all_sums + sizeof(all_sums) / sizeof(all_sums[0]) && rc == 0; s++)
        for (round = 0; round < s->rounds && rc == 0; round++)
            rc = ranks_agree(self, one_sum(&w, s, round));
    rank_note("closing NCCL");
    if (rc == 0)
        nccl_close(&w.rival); /* after an error it may wait for ever */
    free(w.host);
    return rc;
}

/* --- the parent ------------------------------------------------------------------------------ */

static void run_arm(const options *o, const probe *p, int no_p2p)
{
    const char *id = no_p2p ? "nccl.host" : "nccl.default";
    arm a = {o, p, no_p2p};
    ranks_outcome out;
    const int code = ranks_run(&out, p->gpus, o->limit_s, 0, body, &a);
    const char *why = ranks_failure(&out);

    if (code == CODE_OK)
        report_check(id, CHECK_PASS, code, out.seconds, "%d GPUs, every sum is right", p->gpus);
    else if (code == CODE_WRONG || code == CODE_HANG)
        report_check(id, CHECK_FAIL, code, out.seconds, "%s", why);
    else
        report_check(id, CHECK_SKIP, CODE_OK, out.seconds, "%s", why);
}

int rival_command(const options *o)
{
    probe p;
    int rc = probe_gpus(&p, o);

    if (rc == 0 && p.gpus < 2)
        rc = rank_fail(CODE_CANNOT, "NCCL needs two GPUs to send anything, there is %d", p.gpus);
    if (rc == 0) {
        run_arm(o, &p, 0);
        run_arm(o, &p, 1);
    }
    return rc;
}
