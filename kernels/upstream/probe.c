/*
 * upstream-probe: is SGLang's own all-reduce, as a checkout has it, right on these GPUs, and is it worth a build?
 *
 *     upstream-probe [--world N] [--bytes N] [--virtual] [--nccl PATH] [--limit SECONDS]
 *     upstream-probe --defect [--world N]      of an unpatched text: what does it do without full NVLink?
 *
 * One rank a process where there are as many GPUs as ranks; otherwise, and with --virtual, all ranks in one process,
 * several on a GPU: values are then as telling, times are not. One JSON object on standard output. Exit codes are those
 * of sgl-pcie: 0, 1 check failed, 2 usage, 5 could not, 7 wrong data, 8 hang.
 */
#include "gang.h"

#include "overlay.h"

#include "../gpu/cuda.h"
#include "../gpu/nccl.h"
#include "../gpu/probe.h"
#include "../gpu/report.h"
#include "../pcie_allreduce.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NAME = 32, WHY = 400, RIVALS = 4, UUID = 48, ROOM = 1 << 20 };

/* What came of one rival. Not tried: us is 0 and `why` says why not; wrong values: us is 0 and wrong is not. */
typedef struct {
    const char *name;
    char algorithm[NAME], why[WHY];
    double us;
    size_t wrong;
} rival;

typedef struct {
    rival one, two, nccl, ours;
    char refusal[WHY]; /* upstream's text where neither kernel is allowed */
    char uuid[RANKS_MAX][UUID];
    size_t elements, wrong, untouched; /* of all values of upstream's that were compared */
    int calls;
} findings;

typedef struct {
    int world, local, defect;
    int device[RANKS_MAX];
    size_t bytes;
    const char *nccl_path, *given; /* limits as the environment has them */
    findings *found;               /* rank 0's are the parent's, too */
} job;

/* What a timed call needs. */
typedef struct {
    const job *j;
    gang_kind kind;
    nccl *rival;
    par_comm **comm;
    int algorithm;
    size_t count;
} call;

/* --- right values ---------------------------------------------------------------------------- */

/* blamed: what is called wrong where a sum is; NULL for a rival, whose sums are no fault of upstream's. */
static int compare(gang *g, const job *j, size_t count, int dtype, unsigned seed, const char *blamed, size_t *wrong)
{
    size_t untouched = 0;
    int rc = gang_compare(g, count, dtype, seed, wrong, &untouched);

    if (blamed == NULL)
        return rc;
    j->found->elements += count * (size_t)g->world;
    j->found->wrong += *wrong;
    j->found->untouched += untouched;
    j->found->calls++;
    if (rc == 0 && *wrong != 0)
        rank_fail(CODE_WRONG,
                  "%s, %zu elements of type %d: %zu of %zu elements are wrong, %zu of them not even written", blamed,
                  count, dtype, *wrong, count * (size_t)g->world, untouched);
    return rc;
}

static int check_size(gang *g, const job *j, gang_kind kind, size_t bytes, int dtype, rival *out)
{
    static unsigned seed = 1;
    size_t count = bytes / (dtype == UPSTREAM_FP32 ? 4 : 2), wrong = 0;
    int rc = gang_load(g, count, dtype, ++seed);

    rank_note("%s, %zu bytes of type %d", out->name, bytes, dtype);
    if (rc == 0)
        rc = ranks_agree(g->ranks, gang_call(g, kind, count, dtype, 1));
    if (rc == 0)
        rc = compare(g, j, count, dtype, seed, out->name, &wrong);
    out->wrong += wrong;
    return rc;
}

/* Every type; one pack of 16 bytes, uneven shares, the size that is timed, and the longest. */
static int check_values(gang *g, const job *j, gang_kind kind, rival *out)
{
    const size_t sizes[] = {16, 16 * (3 * (size_t)g->world + 1), j->bytes, 65536 + 16, g->room};
    size_t i;
    int dtype, rc = CODE_OK;

    for (dtype = 0; dtype < 3; dtype++)
        for (i = 0; i < sizeof(sizes) / sizeof(sizes[0]) && rc == 0; i++)
            if (sizes[i] <= g->room)
                rc = check_size(g, j, kind, sizes[i], dtype, out);
    return rc;
}

/* Neither kernel allowed: upstream must say so, and launch nothing. */
static int check_refusal(gang *g, const job *j)
{
    size_t count = 1024, wrong, untouched = 0;
    int rc = gang_load(g, count, UPSTREAM_BF16, 3), refused;

    rank_note("neither kernel allowed");
    if (rc != 0)
        return rc;
    refused =
        gang_call(g, GANG_NONE, count, UPSTREAM_BF16, 1) != 0 && strstr(upstream_last_error(), GANG_LIMITS) != NULL;
    if (refused)
        snprintf(j->found->refusal, sizeof(j->found->refusal), "%s", upstream_last_error());
    rank_clear(); /* it was to fail */
    rc = gang_compare(g, count, UPSTREAM_BF16, 3, &wrong, &untouched);
    if (rc == 0 && (!refused || untouched != count * (size_t)g->world))
        rc = rank_fail(CODE_CHECK, "with neither kernel allowed it %s, and %zu of %zu elements are untouched",
                       refused ? "refuses" : "does not refuse", untouched, count * (size_t)g->world);
    return ranks_agree(g->ranks, rc);
}

/* --- times ----------------------------------------------------------------------------------- */

static int enqueue_upstream(gang *g, void *context)
{
    const call *c = context;

    return gang_call(g, c->kind, c->count, UPSTREAM_BF16, 0);
}

static int captured_upstream(gang *g, void *context)
{
    return gang_register(g, ((const call *)context)->kind);
}

static int enqueue_nccl(gang *g, void *context)
{
    const call *c = context;

    return nccl_all_reduce(c->rival, g->input[0], g->output[0], c->count, PAR_BF16, g->stream[0]);
}

static int par_failed(int error, const char *what)
{
    return rank_fail(CODE_CANNOT, "%s: %s: %s", what, par_error_name(error), par_last_error());
}

static int enqueue_ours(gang *g, void *context)
{
    const call *c = context;
    const void *in[RANKS_MAX];
    void *out[RANKS_MAX];
    int h, error;

    for (h = 0; h < g->held; h++) {
        in[h] = g->input[h];
        out[h] = g->output[h];
    }
    if (g->local)
        error = par_all_reduce_local(c->comm, in, out, c->count, PAR_BF16, (par_algorithm)c->algorithm, g->stream);
    else
        error =
            par_all_reduce(c->comm[0], in[0], out[0], c->count, PAR_BF16, (par_algorithm)c->algorithm, g->stream[0]);
    return error == 0 ? CODE_OK : par_failed(error, "all-reduce");
}

/* Time, then look at what the last call left. captured: for upstream, whose buffers are to be registered. */
static int measure(gang *g, call *c, gang_enqueue *enqueue, gang_enqueue *captured, const char *name, double *us,
                   size_t *wrong)
{
    const unsigned seed = 77;
    int rc = gang_load(g, c->count, UPSTREAM_BF16, seed);

    rank_note("timing %s", name);
    *us = 0;
    *wrong = 0;
    if (rc == 0 && g->local && captured != NULL) /* the registered buffers get their data */
        rc = gang_call(g, c->kind, c->count, UPSTREAM_BF16, 1);
    if (rc == 0 && g->local)
        rc = gang_finish(g);
    if (rc == 0)
        rc = gang_time(g, enqueue, captured, c, us);
    if (rc == 0)
        rc = compare(g, c->j, c->count, UPSTREAM_BF16, seed, captured != NULL ? name : NULL, wrong);
    if (rc == 0 && *wrong != 0)
        *us = 0;
    return rc;
}

static int time_upstream(gang *g, const job *j, gang_kind kind, rival *out)
{
    call c = {.j = j, .kind = kind, .count = j->bytes / 2};
    size_t wrong = 0;
    int rc = measure(g, &c, enqueue_upstream, captured_upstream, out->name, &out->us, &wrong);

    out->wrong += wrong;
    return rc;
}

static void not_timed(rival *out)
{
    snprintf(out->why, sizeof(out->why), "%s", rank_text());
    rank_clear();
}

/* NCCL is a rival, not what is tested: without it the probe goes on. */
static int time_nccl(gang *g, const job *j, rival *out)
{
    nccl n;
    call c = {.j = j, .rival = &n, .count = j->bytes / 2};
    int rc;

    if (g->local) {
        snprintf(out->why, sizeof(out->why), "NCCL wants a GPU for each rank");
        return CODE_OK;
    }
    rc = nccl_open(&n, g->ranks, j->nccl_path);
    if (rc == 0)
        rc = gang_load(g, c.count, UPSTREAM_BF16, 5);
    if (rc == 0)
        rc = ranks_agree(g->ranks, enqueue_nccl(g, &c)); /* it wants one eager call before a capture */
    if (rc == 0)
        rc = ranks_agree(g->ranks, gang_finish(g));
    if (rc == 0)
        rc = measure(g, &c, enqueue_nccl, NULL, "NCCL", &out->us, &out->wrong);
    if (rc == 0)
        snprintf(out->algorithm, sizeof(out->algorithm), "%d.%d.%d", n.version / 10000, n.version / 100 % 100,
                 n.version % 100);
    else
        not_timed(out);
    nccl_close(&n);
    return rc == CODE_HANG || g->ranks->broken ? CODE_HANG : CODE_OK;
}

/* Every algorithm of ours that takes this size; the fastest right one stands for all. */
static int time_algorithms(gang *g, call *c, rival *out)
{
    int a, rc = CODE_OK;

    for (a = 1; a < PAR_ALGORITHMS && rc == 0; a++) {
        double us = 0;
        size_t wrong = 0;
        if (par_max_bytes(c->comm[0], (par_algorithm)a) < c->j->bytes)
            continue;
        c->algorithm = a;
        rc = measure(g, c, enqueue_ours, NULL, par_algorithm_name(a), &us, &wrong);
        out->wrong += wrong;
        if (rc == 0 && us > 0 && (out->us <= 0 || us < out->us)) {
            out->us = us;
            snprintf(out->algorithm, sizeof(out->algorithm), "%s", par_algorithm_name(a));
        }
    }
    return rc;
}

static int time_ours(gang *g, const job *j, rival *out)
{
    par_options wanted = PAR_OPTIONS_INIT;
    par_comm *comm[RANKS_MAX] = {NULL};
    call c = {.j = j, .comm = comm, .count = j->bytes / 2};
    int h, error, rc;

    rank_note("creating our communicator");
    wanted.mode = PAR_MODE_STATUS;
    wanted.timeout_s = 10;
    if (g->local)
        error = par_create_local(comm, g->world, g->device, &wanted);
    else
        error = par_create(&comm[0], g->first, g->world, g->device[g->first], ranks_allgather, g->ranks, &wanted);
    rc = ranks_agree(g->ranks, error == 0 ? CODE_OK : par_failed(error, "create"));
    if (rc == 0)
        rc = time_algorithms(g, &c, out);
    if (rc != 0)
        not_timed(out);
    for (h = 0; h < g->held; h++)
        par_close(comm[h]);
    return rc == CODE_HANG || g->ranks->broken ? CODE_HANG : CODE_OK;
}

/* --- a rank ---------------------------------------------------------------------------------- */

/* An unpatched text, told that there is no full NVLink: what becomes of the output? Nothing is compared as wrong. */
static int show_defect(gang *g, const job *j)
{
    size_t count = j->bytes / 2, wrong = 0, untouched = 0;
    int rc = gang_make(g, GANG_GIVEN, NULL);

    if (rc == 0)
        rc = gang_load(g, count, UPSTREAM_BF16, 9);
    if (rc == 0)
        rc = ranks_agree(g->ranks, gang_call(g, GANG_GIVEN, count, UPSTREAM_BF16, 1));
    if (rc == 0)
        rc = gang_compare(g, count, UPSTREAM_BF16, 9, &wrong, &untouched);
    j->found->elements = count * (size_t)g->world;
    j->found->wrong = wrong;
    j->found->untouched = untouched;
    j->found->calls = 1;
    return rc;
}

static int test_upstream(gang *g, const job *j)
{
    rival given = {.name = "as the environment has it"};
    findings *f = j->found;
    int rc = gang_make(g, GANG_ONE, NULL);

    rc = rc != 0 ? rc : check_values(g, j, GANG_ONE, &f->one);
    if (rc == 0 && g->world > 2) {
        rc = gang_make(g, GANG_TWO, NULL);
        rc = rc != 0 ? rc : check_values(g, j, GANG_TWO, &f->two);
        rc = rc != 0 ? rc : gang_make(g, GANG_NONE, NULL);
        rc = rc != 0 ? rc : check_refusal(g, j);
    } else if (rc == 0) {
        snprintf(f->two.why, WHY, "of two ranks upstream always takes one-stage");
    }
    rc = rc != 0 ? rc : gang_make(g, GANG_GIVEN, j->given);
    return rc != 0 ? rc : check_values(g, j, GANG_GIVEN, &given);
}

static int work(gang *g, const job *j)
{
    findings *f = j->found;
    int rc;

    if (j->defect)
        return show_defect(g, j);
    rc = test_upstream(g, j);
    rc = rc != 0 ? rc : time_nccl(g, j, &f->nccl);
    rc = rc != 0 ? rc : time_ours(g, j, &f->ours);
    rc = rc != 0 ? rc : time_upstream(g, j, GANG_ONE, &f->one);
    if (rc == 0 && g->world > 2)
        rc = time_upstream(g, j, GANG_TWO, &f->two);
    return rc == 0 && f->wrong != 0 ? CODE_WRONG : rc;
}

static void name_rivals(findings *f)
{
    f->nccl.name = "nccl";
    f->one.name = "one-stage";
    f->two.name = "two-stage";
    f->ours.name = "ours";
}

static int body(ranks *self, void *context)
{
    job j = *(const job *)context;
    gang *g = calloc(1, sizeof(*g));
    int rc;

    if (self->rank != 0)
        j.found = calloc(1, sizeof(*j.found));
    if (g == NULL || j.found == NULL)
        return rank_fail(CODE_CANNOT, "no memory");
    name_rivals(j.found);
    setenv("CUDA_MODULE_LOADING", "EAGER", 1);
    rc = gang_open(g, self, j.world, j.local, j.device, j.bytes > ROOM ? j.bytes : ROOM);
    rc = rc != 0 ? rc : work(g, &j);
    rank_note("closing");
    gang_close(g);
    free(g);
    return rc;
}

/* --- what it says ---------------------------------------------------------------------------- */

static const rival *winner(const findings *f)
{
    const rival *all[RIVALS] = {&f->nccl, &f->ours, &f->one, &f->two}, *best = NULL;
    int i;

    for (i = 0; i < RIVALS; i++)
        if (all[i]->us > 0 && (best == NULL || all[i]->us < best->us))
            best = all[i];
    return best;
}

static void add_text(text *t, const char *name, const char *value)
{
    text_add(t, "\"%s\":", name);
    if (value != NULL && *value != '\0')
        text_add_quoted(t, value);
    else
        text_add(t, "null");
}

static void add_rival(text *t, const rival *r, const char *between)
{
    text_add(t, "%s{", between);
    add_text(t, "algorithm", r->algorithm);
    text_add(t, ",\"name\":\"%s\",", r->name);
    if (r->us > 0)
        text_add(t, "\"us\":%.3f,", r->us);
    else
        text_add(t, "\"us\":null,");
    add_text(t, "why", r->why);
    text_add(t, ",\"wrong\":%zu}", r->wrong);
}

static void print(const job *j, const findings *f, int code, double seconds, const char *message)
{
    const rival *best = code == CODE_OK && !j->defect ? winner(f) : NULL;
    text t = {0};
    int r;

    text_add(&t, "{\"bytes\":%zu,\"calls\":%d,\"code\":%d,\"elements\":%zu,\"gpus\":[", j->bytes, f->calls, code,
             f->elements);
    for (r = 0; r < j->world; r++) {
        text_add(&t, r > 0 ? "," : "");
        text_add_quoted(&t, f->uuid[r]);
    }
    text_add(&t, "],");
    add_text(&t, "message", message);
    text_add(&t, ",\"mode\":\"%s\",", j->local ? "virtual" : "process");
    add_text(&t, "refusal", f->refusal);
    text_add(&t, ",\"rivals\":[");
    add_rival(&t, &f->nccl, "");
    add_rival(&t, &f->one, ",");
    add_rival(&t, &f->two, ",");
    add_rival(&t, &f->ours, ",");
    text_add(&t, "],\"seconds\":%.1f,\"untouched\":%zu,", seconds, f->untouched);
    add_text(&t, "winner", best != NULL ? best->name : NULL);
    text_add(&t, ",\"world\":%d,\"wrong\":%zu}", j->world, f->wrong);
    puts(t.data != NULL ? t.data : "{}");
    text_free(&t);
}

/* Processes where every rank can have a GPU. What is found out about them is for everybody. */
static int place(job *j, int virtual_ranks)
{
    options o = {0};
    probe p;
    int r, rc = probe_gpus(&p, &o);

    if (rc != 0)
        return rc;
    if (j->world == 0)
        j->world = p.gpus >= 8 ? 8 : p.gpus >= 6 ? 6 : p.gpus >= 4 ? 4 : 2;
    j->local = virtual_ranks || p.gpus < j->world;
    if (!p.p2p)
        return rank_fail(CODE_CANNOT, "upstream's all-reduce needs P2P, and not every pair of these GPUs has it");
    for (r = 0; r < j->world; r++) {
        int i = j->local ? r % p.gpus : r;
        j->device[r] = p.device[i];
        memcpy(j->found->uuid[r], p.uuid[i], UUID);
    }
    return CODE_OK;
}

static int run(job *j, int virtual_ranks, double limit)
{
    findings *f = shared_alloc(sizeof(*f));
    ranks_outcome outcome = {0};
    const char *message;
    int rc;

    if (f == NULL)
        return rank_fail(CODE_CANNOT, "no shared memory");
    j->found = f;
    name_rivals(f);
    rc = place(j, virtual_ranks);
    message = rank_text();
    if (rc == 0) {
        rc = ranks_run(&outcome, j->local ? 1 : j->world, limit, 0, body, j);
        message = ranks_failure(&outcome);
    }
    print(j, f, rc, outcome.seconds, message);
    shared_free(f, sizeof(*f));
    return rc;
}

static int usage(void)
{
    fputs(
        "usage: upstream-probe [--world 2|4|6|8] [--bytes N] [--virtual] [--defect] [--nccl PATH] [--limit SECONDS]\n",
        stderr);
    return CODE_USAGE;
}

int main(int argc, char **argv)
{
    static const struct option known[] = {
        {"world", required_argument, NULL, 'w'},
        {"bytes", required_argument, NULL, 'b'},
        {"virtual", no_argument, NULL, 'v'},
        {"defect", no_argument, NULL, 'd'},
        {"nccl", required_argument, NULL, 'n'},
        {"limit", required_argument, NULL, 'l'},
        {NULL, 0, NULL, 0},
    };
    job j = {.bytes = 43008, .given = getenv(GANG_LIMITS)};
    double limit = 45;
    int virtual_ranks = 0, letter;

    while ((letter = getopt_long(argc, argv, "", known, NULL)) != -1) {
        if (letter == 'w')
            j.world = atoi(optarg);
        else if (letter == 'b')
            j.bytes = (size_t)strtoull(optarg, NULL, 10) / 16 * 16;
        else if (letter == 'v')
            virtual_ranks = 1;
        else if (letter == 'd')
            j.defect = 1;
        else if (letter == 'n')
            j.nccl_path = optarg;
        else if (letter == 'l')
            limit = atof(optarg);
        else
            return usage();
    }
    if (optind < argc || j.world < 0 || j.world > 8 || j.world % 2 != 0 || j.bytes < 16 || j.bytes > 256u << 20 ||
        limit < 1)
        return usage();
    return run(&j, virtual_ranks, limit);
}
