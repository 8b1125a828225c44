/*
 * smoke: is the all-reduce right? Every algorithm, dtype and world size, as processes and inside one process, against
 * the CPU reference, bit by bit. One group of processes per mode and world size; inside it
 *   ladder    sizes grow, shrink and grow again, in-place and out-of-place, aligned and not, poison around the output
 *   mixed     algorithms in random order, eager, in batches without a host synchronisation
 *   graphs    several captured graphs, replayed on either stream, among eager calls on either stream
 *   life      a second communicator beside the first, made and closed again and again; no memory may be lost
 *   soak      (--soak) many small calls under random delays
 * A wrong element is reported and the test goes on; after an abort the communicator is made anew and the algorithm
 * that hung is left out.
 */
#include "cuda.h"
#include "fleet.h"
#include "options.h"
#include "pattern.h"
#include "probe.h"
#include "report.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    BATCH = 128,             /* calls between two host synchronisations */
    SLACK = 1 << 20,         /* bytes by which the dataset is longer than the longest message */
    SMALL = 262144,          /* longest message of the mixed and graph tests */
    GRAPHS = 6,
    GRAPH_CALLS = 8,
    LIVES = 4,
    SOAK_BATCH = 250,
    SOAK_REPLAYS = 8
};

/* What one process found, in shared memory. */
typedef struct {
    uint64_t calls[PAR_ALGORITHMS], wrong[PAR_ALGORITHMS], soaked, soak_wrong, replays;
    int hung[PAR_ALGORITHMS];
    double soak_seconds;
    char text[PAR_ALGORITHMS][512]; /* the first failure of each algorithm */
} findings;

typedef struct {
    const options *o;
    const dataset *data; /* per dtype */
    int world, local, device[PAR_MAX_WORLD];
    unsigned algorithms; /* to test, a bit each */
    unsigned with;
    findings *found;     /* per process */
} job;

/* State of a test inside a process. */
typedef struct {
    const job *j;
    fleet f;
    findings *found;
    dice d;
    fleet_call calls[FLEET_TALLIES];
    int n;
} test;

/* --- batches --------------------------------------------------------------------------------- */

static void blame(test *t, int algorithm, int hung)
{
    if (hung)
        t->found->hung[algorithm] = 1;
    if (t->found->text[algorithm][0] == '\0')
        snprintf(t->found->text[algorithm], sizeof(t->found->text[0]), "%s", rank_text());
}

/* The algorithm that waited in vain, the same on all ranks: as the first rank that has a report says. */
static int culprit(test *t, int guess)
{
    int mine = 0, all[RANKS_MAX] = {0}, r, h;
    par_report report;

    for (h = 0; h < t->f.held && mine == 0; h++)
        if (t->f.comm[h] != NULL && par_last_report(t->f.comm[h], &report) == 0 && report.error != 0)
            mine = report.algorithm;
    if (ranks_allgather(t->f.ranks, &mine, all, sizeof(mine)) != 0)
        return guess;
    for (r = t->f.ranks->world - 1; r >= 0; r--)
        guess = all[r] > 0 ? all[r] : guess;
    return guess;
}

/* After an abort: note whom to blame, and start again if that is possible. All ranks take the same way. */
static int recover(test *t, int guess, int code)
{
    if (code != CODE_HANG)
        return code;
    blame(t, culprit(t, guess), 1);
    rank_clear();
    t->n = 0;
    return fleet_reopen(&t->f);
}

/* Count what the batch found. */
static int account(test *t, int code)
{
    uint64_t wrong = 0, wrong_of[FLEET_TALLIES] = {0};
    int i, rc = code;

    if (rc == 0)
        rc = fleet_tally_read(&t->f, t->calls, t->n, &wrong, wrong_of);
    for (i = 0; i < t->n && (rc == 0 || rc == CODE_WRONG); i++) {
        t->found->calls[t->calls[i].algorithm]++;
        t->found->wrong[t->calls[i].algorithm] += wrong_of[i];
        if (wrong_of[i] != 0)
            blame(t, t->calls[i].algorithm, 0);
    }
    if (rc == CODE_WRONG) {
        rank_clear();
        rc = CODE_OK;
    }
    return rc;
}

/* Wait for the batch on all ranks; `code` is what enqueuing it gave. */
static int end_batch(test *t, int code)
{
    int rc = code, finished;

    rank_note("waiting for a batch of %d calls that ends with %s count %zu", t->n,
              t->n > 0 ? par_algorithm_name(t->calls[t->n - 1].algorithm) : "nothing",
              t->n > 0 ? t->calls[t->n - 1].count : 0);
    finished = fleet_finish(&t->f);
    rc = account(t, code_worse(rc, finished));
    t->n = 0;
    rc = ranks_agree(t->f.ranks, rc);
    return rc != 0 ? rc : fleet_tally_reset(&t->f);
}

static int add(test *t, int set, const fleet_call *c)
{
    int rc;

    rank_note("%s %s count %zu shift %zu offset %zu %s", par_algorithm_name(c->algorithm), par_dtype_name(c->dtype),
              c->count, c->shift, c->offset, c->in_place ? "in place" : "out of place");
    t->calls[t->n] = *c;
    rc = fleet_enqueue(&t->f, set, c, t->n);
    t->n++;
    return rc;
}

/* --- ladder ---------------------------------------------------------------------------------- */

/* Longest message of this algorithm that the test may send. */
static size_t limit_of(const test *t, int algorithm)
{
    size_t most = par_max_bytes(t->f.comm[0], (par_algorithm)algorithm);

    return most < t->j->o->max_bytes ? most : t->j->o->max_bytes;
}

/* Place and alignment of a call. */
static const struct { int in_place, odd_in, odd_out; } variants[] = {
    {0, 0, 0}, {1, 0, 0}, {0, 1, 1}, {1, 1, 1}, {0, 1, 0}, {0, 0, 1}};

enum { VARIANTS = sizeof(variants) / sizeof(variants[0]) };

/* A call of that size; the dice choose the piece of the dataset. */
static fleet_call make_call(test *t, int algorithm, size_t count, int variant)
{
    fleet_call c = {algorithm, t->f.data->dtype, count, 0, 0, variants[variant].in_place};
    size_t room = t->f.data->count - count, odd = 1 + dice_below(&t->d, 9);

    c.shift = dice_below(&t->d, room + 1);
    if (!variants[variant].odd_in)
        c.shift -= c.shift % 8;
    c.offset = variants[variant].odd_out ? odd : 0;
    return c;
}

static int rung(test *t, int algorithm, size_t bytes, int pass)
{
    size_t size = par_dtype_size(t->f.data->dtype), count = bytes / size;
    int n = bytes > 4194304 ? 1 : bytes > 262144 ? 2 : VARIANTS, v, rc = CODE_OK;

    if (count == 0 || bytes > limit_of(t, algorithm))
        return CODE_OK;
    for (v = 0; v < n && rc == 0; v++) {
        fleet_call c = make_call(t, algorithm, count, (v + pass * n) % VARIANTS);
        rc = add(t, 0, &c);
    }
    return rc;
}

static int ladder(test *t, int algorithm)
{
    static const size_t bytes[] = {
        8, 2, 4, 12, 16, 18, 30, 64, 100, 250, 512, 1000, 2048, 4098, 9216, 16384, 16390, 30000, 43008, 65536, 65538,
        131070, 262144, 524290, 1048576, 1048580, 4194304, 4194298, 16777216, 16777226, 67108864};
    int steps = (int)(sizeof(bytes) / sizeof(bytes[0])), pass, i, rc = CODE_OK;

    for (pass = 0; pass < 3 && rc == 0; pass++)
        for (i = 0; i < steps && rc == 0; i++) {
            rc = rung(t, algorithm, bytes[pass == 1 ? steps - 1 - i : i], pass);
            if (rc != 0 || t->n > BATCH - 8 || (i == steps - 1 && t->n > 0))
                rc = end_batch(t, rc);
        }
    return recover(t, algorithm, rc);
}

/* A message over the limit must be refused before anything is enqueued. */
static int too_large(test *t, int algorithm)
{
    size_t most = par_max_bytes(t->f.comm[0], (par_algorithm)algorithm), size = par_dtype_size(t->f.data->dtype);
    const void *in[PAR_MAX_WORLD];
    void *out[PAR_MAX_WORLD];
    int h, rc;

    if (most > t->f.room - 64)
        return CODE_OK;
    for (h = 0; h < t->f.held; h++) {
        in[h] = t->f.input[h];
        out[h] = t->f.work[0][h];
    }
    rc = fleet_all_reduce(&t->f, 0, in, out, most / size + 1, t->f.data->dtype, algorithm);
    if (rc == PAR_ERR_UNSUPPORTED)
        return CODE_OK;
    return rank_fail(CODE_CHECK, "%s: %zu bytes over the limit %zu gave %s, not unsupported",
                     par_algorithm_name(algorithm), size, most, par_error_name(rc));
}

/* --- mixed and graphs ------------------------------------------------------------------------ */

static int pick_algorithm(test *t)
{
    int a;

    do
        a = 1 + (int)dice_below(&t->d, PAR_ALGORITHMS - 1);
    while (!(t->j->algorithms >> a & 1u) || t->found->hung[a]);
    return a;
}

static int any_left(const test *t)
{
    int a;

    for (a = 1; a < PAR_ALGORITHMS; a++)
        if ((t->j->algorithms >> a & 1u) && !t->found->hung[a])
            return 1;
    return 0;
}

/* Sizes spread evenly over the powers of two up to `most` bytes. */
static size_t pick_count(test *t, int algorithm, size_t most)
{
    size_t size = par_dtype_size(t->f.data->dtype), limit = limit_of(t, algorithm), bits = 2, bytes;

    most = most < limit ? most : limit;
    while ((size_t)1 << bits < most)
        bits++;
    bytes = dice_below(&t->d, (size_t)4 << dice_below(&t->d, bits - 1)) + size;
    bytes = bytes < most ? bytes : most;
    return bytes / size;
}

static int add_random(test *t, int set)
{
    int algorithm = pick_algorithm(t);
    size_t count = pick_count(t, algorithm, SMALL);
    fleet_call c = make_call(t, algorithm, count, (int)dice_below(&t->d, VARIANTS));

    return add(t, set, &c);
}

static int mixed(test *t)
{
    int rc = CODE_OK, last = 1;

    while (t->n < BATCH && rc == 0) {
        rc = add_random(t, 0);
        last = t->calls[t->n - 1].algorithm;
    }
    return recover(t, last, end_batch(t, rc));
}

static int capture(test *t, fleet_graph *graph, int set)
{
    int i, rc = fleet_capture_begin(&t->f, set), ended;

    for (i = 0; i < GRAPH_CALLS && rc == 0; i++)
        rc = add_random(t, set);
    ended = fleet_capture_end(&t->f, set, graph);
    return rc != 0 ? rc : ended;
}

/*
 * Replays and eager calls in random order on two sets of streams. A replay is ordered by events, as the caller of a
 * graph must; from one eager call to the next the library has to order the streams itself.
 */
static int interleave(test *t, const fleet_graph *graphs)
{
    int i, rc = CODE_OK;

    for (i = 0; i < 48 && rc == 0; i++) {
        int choice = (int)dice_below(&t->d, GRAPHS * 2), set = (int)dice_below(&t->d, FLEET_SETS);
        if (choice >= GRAPHS) {
            rc = add_random(t, set);
            continue;
        }
        rank_note("replaying graph %d on stream %d", choice, set);
        rc = fleet_order(&t->f, 1 - set, set); /* it uses the buffers of the set it was captured on */
        if (rc == 0)
            rc = fleet_launch(&t->f, set, &graphs[choice]);
        if (rc == 0)
            rc = fleet_order(&t->f, set, 1 - set);
        t->found->replays++;
    }
    return rc;
}

static int graphs(test *t)
{
    fleet_graph graph[GRAPHS];
    int i, made = 0, rc = CODE_OK, last = 1;

    memset(graph, 0, sizeof(graph));
    for (i = 0; i < GRAPHS && rc == 0; i++, made++)
        rc = capture(t, &graph[i], i % FLEET_SETS);
    if (rc == 0)
        rc = interleave(t, graph);
    last = t->n > 0 ? t->calls[t->n - 1].algorithm : 1;
    rc = end_batch(t, rc);
    for (i = 0; i < made; i++)
        fleet_graph_free(&t->f, &graph[i]);
    return recover(t, last, rc);
}

/* --- life ------------------------------------------------------------------------------------ */

static int free_memory(const test *t, double *bytes)
{
    size_t available = 0, total;
    int rc = CUDA(cudaSetDevice(t->f.device[t->f.first]));

    if (rc == 0)
        rc = CUDA(cudaMemGetInfo(&available, &total));
    *bytes = (double)available;
    return rc;
}

/* One life of a second communicator: calls on both in turn. taken: what it took of the GPU's memory. */
static int one_life(test *t, double *taken)
{
    fleet twin = {0};
    double before = 0, during = 0;
    int i, rc = free_memory(t, &before), last = 1;

    rc = ranks_agree(t->f.ranks, rc);
    if (rc == 0)
        rc = fleet_twin(&twin, &t->f);
    if (rc == 0)
        rc = ranks_agree(t->f.ranks, free_memory(t, &during));
    *taken = before - during;
    for (i = 0; i < 32 && rc == 0; i++) {
        fleet_call c = make_call(t, pick_algorithm(t), 0, i % VARIANTS);
        c.count = pick_count(t, c.algorithm, SMALL);
        c.shift = dice_below(&t->d, t->f.data->count - c.count + 1);
        last = c.algorithm;
        t->calls[t->n] = c;
        rc = fleet_enqueue(i % 2 == 0 ? &twin : &t->f, 0, &c, t->n);
        t->n++;
    }
    if (rc == 0)
        rc = fleet_finish(&twin);
    rc = end_batch(t, rc);
    fleet_twin_close(&twin);
    return recover(t, last, rc);
}

/* What a communicator takes is within the bound that the library states, and comes back. */
static int life(test *t)
{
    const double noise = 4 << 20;
    uint64_t device_bound = 0, host_bound = 0;
    double begin = 0, end = 0, taken = 0, most = 0;
    int i, rc = fleet_par(&t->f, par_memory_bound(t->j->world, &t->f.options, &device_bound, &host_bound), "memory bound");

    rc = ranks_agree(t->f.ranks, rc);
    for (i = 0; i < LIVES + 1 && rc == 0 && any_left(t); i++) {
        rc = one_life(t, &taken);
        most = i > 0 && taken > most ? taken : most;
        if (rc == 0)
            rc = ranks_agree(t->f.ranks, free_memory(t, i == 0 ? &begin : &end));
    }
    if (rc == 0 && !t->j->local && most > (double)device_bound + noise)
        rc = rank_fail(CODE_CHECK, "rank %d: a communicator took %.1f MiB of GPU memory, its bound is %.1f MiB",
                       t->f.first, most / 1048576, (double)device_bound / 1048576);
    if (rc == 0 && begin - end > noise && any_left(t))
        rc = rank_fail(CODE_CHECK, "rank %d: %d communicators left %.1f MiB of GPU memory behind", t->f.first, LIVES,
                       (begin - end) / 1048576);
    return ranks_agree(t->f.ranks, rc);
}

/* --- soak ------------------------------------------------------------------------------------ */

/* Something that makes this rank late, different on every rank. */
static int stumble(test *t, dice *own)
{
    size_t roll = dice_below(own, 400);
    int h = (int)dice_below(own, (size_t)t->f.held), rc = CODE_OK;

    if (roll == 0)
        seconds_sleep(1e-6 * (double)dice_below(own, 300));
    else if (roll < 24) {
        rc = CUDA(cudaSetDevice(t->f.device[t->f.first + h]));
        if (rc == 0)
            rc = CUDA(check_delay(dice_below(own, 20000), t->f.stream[0][h]));
    } else if (roll < 32)
        rc = fleet_par(&t->f, par_debug(t->f.comm[h], PAR_DEBUG_JITTER_NS, dice_below(own, 2) * 5000), "jitter");
    return rc;
}

static int soak_calls(test *t, dice *own, int n)
{
    int i, rc = CODE_OK;

    for (i = 0; i < n && rc == 0; i++) {
        int algorithm = pick_algorithm(t);
        size_t most = dice_below(&t->d, 32) == 0 ? 131072 : 8192;
        fleet_call c = make_call(t, algorithm, pick_count(t, algorithm, most), (int)dice_below(&t->d, VARIANTS));
        c.in_place = 0;
        rc = stumble(t, own);
        t->calls[t->n] = c;
        if (rc == 0)
            rc = fleet_enqueue_bare(&t->f, 0, &c, t->n);
        t->n++;
    }
    return rc;
}

static int soak_graph(test *t, dice *own)
{
    fleet_graph graph;
    int i, rc, ended;

    memset(&graph, 0, sizeof(graph));
    rc = fleet_capture_begin(&t->f, 0);
    if (rc == 0)
        rc = soak_calls(t, own, SOAK_BATCH);
    ended = fleet_capture_end(&t->f, 0, &graph);
    rc = rc != 0 ? rc : ended;
    for (i = 0; i < SOAK_REPLAYS && rc == 0; i++) {
        rc = fleet_launch(&t->f, 0, &graph);
        seconds_sleep(1e-6 * (double)dice_below(own, 200));
    }
    if (rc == 0)
        rc = fleet_finish(&t->f);
    fleet_graph_free(&t->f, &graph);
    return rc;
}

static int soak(test *t)
{
    dice own = {t->d.state ^ ((uint64_t)t->f.first + 1) << 32};
    double begin = seconds_now();
    uint64_t before = 0, after = 0;
    int round, a, rc = CODE_OK, last = 1;

    for (a = 1; a < PAR_ALGORITHMS; a++)
        before += t->found->wrong[a];
    for (round = 0; t->found->soaked < t->j->o->soak && rc == 0 && any_left(t); round++) {
        int as_graph = round % 4 == 3;
        rc = as_graph ? soak_graph(t, &own) : soak_calls(t, &own, SOAK_BATCH);
        last = t->n > 0 ? t->calls[t->n - 1].algorithm : last;
        t->found->soaked += (uint64_t)(as_graph ? SOAK_BATCH * SOAK_REPLAYS : SOAK_BATCH);
        rc = end_batch(t, rc);
    }
    for (a = 1; a < PAR_ALGORITHMS; a++)
        after += t->found->wrong[a];
    t->found->soak_wrong = after - before;
    t->found->soak_seconds = seconds_now() - begin;
    return recover(t, last, rc);
}

/* --- one process ----------------------------------------------------------------------------- */

/* The inputs must be as they were. */
static int inputs_untouched(test *t)
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

static int one_dtype(test *t, int dtype)
{
    const dataset *d = &t->j->data[dtype];
    int a, i, rc = fleet_load(&t->f, d, t->j->o->max_bytes);

    if (rc == 0)
        rc = ranks_agree(t->f.ranks, fleet_tally_reset(&t->f));
    for (a = 1; a < PAR_ALGORITHMS && rc == 0; a++) {
        if (!(t->j->algorithms >> a & 1u) || t->found->hung[a])
            continue;
        rc = ladder(t, a);
        if (rc == 0 && !t->found->hung[a])
            rc = ranks_agree(t->f.ranks, too_large(t, a));
    }
    for (i = 0; i < 3 && rc == 0 && any_left(t); i++)
        rc = mixed(t);
    for (i = 0; i < 3 && rc == 0 && any_left(t); i++)
        rc = graphs(t);
    if (rc == 0)
        rc = ranks_agree(t->f.ranks, inputs_untouched(t));
    return rc;
}

static int body(ranks *self, void *context)
{
    const job *j = context;
    par_options wanted = PAR_OPTIONS_INIT;
    test *t = calloc(1, sizeof(*t));
    int dtype, last = -1, rc;

    if (t == NULL)
        return rank_fail(CODE_CANNOT, "no memory");
    t->j = j;
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
            rc = one_dtype(t, dtype);
            last = dtype;
        }
    if (rc == 0 && last >= 0)
        rc = life(t);
    if (rc == 0 && last >= 0 && j->o->soak > 0)
        rc = soak(t);
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
                 wrong != 0 ? CODE_WRONG : hung ? CODE_HANG : outcome->code, outcome->seconds,
                 "%llu calls, %llu wrong elements%s%s", (unsigned long long)calls, (unsigned long long)wrong,
                 why[0] != '\0' ? ": " : "", why);
}

static void report_soak(const job *j, const ranks_outcome *outcome, const char *prefix)
{
    const findings *f = &j->found[0];
    uint64_t wrong = 0;
    char id[64];
    int p;

    for (p = 0; p < (j->local ? 1 : j->world); p++)
        wrong += j->found[p].soak_wrong;
    snprintf(id, sizeof(id), "%s/soak", prefix);
    report_check(id, wrong != 0 || f->soaked < j->o->soak ? CHECK_FAIL : CHECK_PASS,
                 wrong != 0 ? CODE_WRONG : f->soaked < j->o->soak ? code_worse(outcome->code, CODE_CHECK) : 0,
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
    if (j->o->soak > 0)
        report_soak(j, &outcome, prefix);
    shared_free(j->found, bytes);
    j->found = NULL;
}

/* The algorithms to test: those asked for whose transport can work here. */
static unsigned algorithms_for(const options *o, unsigned transports)
{
    unsigned bits = 0;
    int a;

    for (a = 1; a < PAR_ALGORITHMS; a++)
        if ((o->algorithms >> a & 1u) && (transports >> par_algorithm_transport(a) & 1u))
            bits |= 1u << a;
    return bits;
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
    j.algorithms = algorithms_for(o, probe_transports(&p, o));
    j.with = (j.algorithms >> PAR_PUSH_ONE_SHOT ? PAR_WITH_PEER : 0u) |
             (j.algorithms & ((1u << PAR_PUSH_ONE_SHOT) - 1) ? PAR_WITH_HOST : 0u);
    if (j.algorithms == 0)
        return rank_fail(CODE_CANNOT, "nothing to test: push and pull need P2P between all GPUs, which is not there");
    report_line("# %d x %s, P2P %s, %s", p.gpus, p.name[0], p.p2p ? "yes" : "no", par_version());
    process = o->process ? all_worlds(p.gpus) & (o->worlds != 0 ? o->worlds : ~0u) : 0;
    local = o->local ? o->worlds != 0 ? o->worlds : all_worlds(p.gpus > 3 ? 8 : 2 * p.gpus) : 0;
    if (process == 0 && local == 0)
        return rank_fail(CODE_CANNOT, "nothing to test: %d GPU does for in-process mode only (--mode local)", p.gpus);
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
