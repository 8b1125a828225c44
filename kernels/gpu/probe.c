#include "probe.h"

#include "cuda.h"

#include <stdio.h>
#include <string.h>

int cuda_ok(cudaError_t error, const char *call)
{
    int length = (int)strcspn(call, "(");

    if (error == cudaSuccess)
        return CODE_OK;
    (void)cudaGetLastError(); /* a sticky error stays, any other must not leak into the next call */
    return rank_fail(CODE_CANNOT, "%.*s: %s (%s)", length, call, cudaGetErrorString(error), cudaGetErrorName(error));
}

typedef struct {
    const options *o;
    probe *out;
} question;

static int choose(probe *p, const options *o, int present)
{
    int i;

    if (o->gpus == 0) {
        p->gpus = present < RANKS_MAX ? present : RANKS_MAX;
        for (i = 0; i < p->gpus; i++)
            p->device[i] = i;
        return CODE_OK;
    }
    p->gpus = o->gpus;
    for (i = 0; i < p->gpus; i++) {
        p->device[i] = o->gpu[i];
        if (o->gpu[i] >= present)
            return rank_fail(CODE_CANNOT, "no GPU %d: there are %d; nvidia-smi -L lists them", o->gpu[i], present);
    }
    return CODE_OK;
}

/* As nvidia-smi writes it. */
static void write_uuid(char out[48], const unsigned char *bytes)
{
    int i, used = snprintf(out, 48, "GPU-");

    for (i = 0; i < 16; i++)
        used += snprintf(out + used, 48 - (size_t)used, "%s%02x", i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "",
                         (unsigned)bytes[i]);
}

static int describe(probe *p, int i)
{
    struct cudaDeviceProp properties;
    size_t total, available;
    int rc = CUDA(cudaSetDevice(p->device[i]));

    if (rc == 0)
        rc = CUDA(cudaGetDeviceProperties(&properties, p->device[i]));
    if (rc == 0)
        rc = CUDA(cudaDeviceGetPCIBusId(p->bus[i], sizeof(p->bus[i]), p->device[i]));
    if (rc == 0)
        rc = CUDA(cudaMemGetInfo(&available, &total));
    if (rc == 0) {
        snprintf(p->name[i], sizeof(p->name[i]), "%.*s", (int)sizeof(p->name[i]) - 1, properties.name);
        write_uuid(p->uuid[i], (const unsigned char *)properties.uuid.bytes);
        p->free_bytes[i] = available;
    }
    return rc;
}

int probe_reaches(int *can, int a, int b)
{
    *can = 1;
    return a == b ? CODE_OK : CUDA(cudaDeviceCanAccessPeer(can, a, b));
}

static int ask_p2p(probe *p)
{
    int i, j, can = 0, rc = CODE_OK;

    p->p2p = 1;
    for (i = 0; i < p->gpus; i++)
        for (j = 0; j < p->gpus && rc == 0; j++) {
            rc = probe_reaches(&can, p->device[i], p->device[j]);
            p->p2p = p->p2p && can;
        }
    return rc;
}

static int body(ranks *self, void *context)
{
    question *q = context;
    int present = 0, i, rc;
    cudaError_t error = cudaGetDeviceCount(&present);

    (void)self;
    (void)cudaRuntimeGetVersion(&q->out->runtime);
    (void)cudaDriverGetVersion(&q->out->driver);
    if (q->out->driver == 0)
        return rank_fail(CODE_CANNOT, "no usable GPU: there is no NVIDIA driver; nvidia-smi must list the GPUs");
    if (error != cudaSuccess || present == 0)
        return rank_fail(CODE_CANNOT,
                         "no usable GPU: %s (driver supports CUDA %d.%d, this program needs %d.%d); "
                         "run nvidia-smi: it must list the GPUs",
                         error != cudaSuccess ? cudaGetErrorString(error) : "none present", q->out->driver / 1000,
                         q->out->driver % 1000 / 10, q->out->runtime / 1000, q->out->runtime % 1000 / 10);
    rc = choose(q->out, q->o, present);
    for (i = 0; i < q->out->gpus && rc == 0; i++)
        rc = describe(q->out, i);
    return rc != 0 ? rc : ask_p2p(q->out);
}

int probe_gpus(probe *out, const options *o)
{
    probe *shared = shared_alloc(sizeof(*shared));
    question q = {o, shared};
    ranks_outcome outcome;
    int rc = CODE_CANNOT;

    memset(out, 0, sizeof(*out));
    if (shared != NULL) {
        rc = ranks_run(&outcome, 1, 60, 0, body, &q);
        *out = *shared;
        if (rc != 0)
            rank_fail(rc, "%s", outcome.rank[0].text);
    }
    shared_free(shared, sizeof(*shared));
    return rc;
}

unsigned probe_algorithms(const probe *p, const options *o)
{
    const unsigned transports = o->transports & (p->p2p ? ~0u : 1u << PAR_HOST);
    unsigned bits = 0;
    int a;

    for (a = 1; a < PAR_ALGORITHMS; a++)
        if (transports >> par_algorithm_transport(a) & 1u)
            bits |= o->algorithms & 1u << a;
    return bits;
}
