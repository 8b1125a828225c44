/*
 * endure.c: the trials that look for what shows only in the long run: memory that is lost, a race that is rare.
 */
#include "cuda.h"
#include "trial.h"

#include <string.h>

enum { LIVES = 4, LIFE_CALLS = 32, SOAK_BATCH = 250, SOAK_REPLAYS = 8 };

/* --- life ------------------------------------------------------------------------------------ */

static int free_memory(const trial *t, double *bytes)
{
    size_t available = 0, total;
    int rc = CUDA(cudaSetDevice(t->f.device[t->f.first]));

    if (rc == 0)
        rc = CUDA(cudaMemGetInfo(&available, &total));
    *bytes = (double)available;
    return rc;
}

/* How many ranks the GPU of this one serves: what is free there is less by what each of them took. */
static int ranks_here(const trial *t)
{
    int r, n = 0;

    for (r = 0; r < t->f.world; r++)
        n += t->f.device[r] == t->f.device[t->f.first];
    return n;
}

/* One life of a second communicator: calls on both in turn. taken: what it took of the GPU's memory. */
static int one_life(trial *t, double *taken)
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
    for (i = 0; i < LIFE_CALLS && rc == 0; i++) {
        fleet_call c = trial_make_call(t, trial_pick_algorithm(t), 0, i % TRIAL_VARIANTS);
        c.count = trial_pick_count(t, c.algorithm, TRIAL_SMALL);
        c.shift = dice_below(&t->d, t->f.data->count - c.count + 1);
        last = c.algorithm;
        t->calls[t->n] = c;
        rc = fleet_enqueue(i % 2 == 0 ? &twin : &t->f, 0, &c, t->n);
        t->n++;
    }
    if (rc == 0)
        rc = fleet_finish(&twin);
    rc = trial_end_batch(t, rc);
    fleet_twin_close(&twin);
    return trial_recover(t, last, rc);
}

/* What a communicator takes is within the bound that the library states, and comes back. */
int trial_life(trial *t)
{
    const double noise = 4 << 20;
    uint64_t device_bound = 0, host_bound = 0;
    double begin = 0, end = 0, taken = 0, most = 0;
    int i,
        rc = fleet_par(&t->f, par_memory_bound(t->f.world, &t->f.options, &device_bound, &host_bound), "memory bound");

    rc = ranks_agree(t->f.ranks, rc);
    for (i = 0; i < LIVES + 1 && rc == 0 && trial_any_left(t); i++) {
        rc = one_life(t, &taken);
        most = i > 0 && taken > most ? taken : most;
        rc = ranks_agree(t->f.ranks, rc); /* all have closed theirs */
        if (rc == 0)
            rc = ranks_agree(t->f.ranks, free_memory(t, i == 0 ? &begin : &end));
    }
    if (rc == 0 && !t->f.local && most > (double)device_bound * ranks_here(t) + noise)
        rc = rank_fail(CODE_CHECK, "rank %d: %d communicators took %.1f MiB of GPU memory, each may take %.1f MiB",
                       t->f.first, ranks_here(t), most / 1048576, (double)device_bound / 1048576);
    if (rc == 0 && begin - end > noise && trial_any_left(t))
        rc = rank_fail(CODE_CHECK, "rank %d: %d communicators left %.1f MiB of GPU memory behind", t->f.first, LIVES,
                       (begin - end) / 1048576);
    return ranks_agree(t->f.ranks, rc);
}

/* --- soak ------------------------------------------------------------------------------------ */

/* Something that makes this rank late, different on every rank. */
static int stumble(trial *t, dice *own)
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

static int soak_calls(trial *t, dice *own, int n)
{
    int i, rc = CODE_OK;

    for (i = 0; i < n && rc == 0; i++) {
        int algorithm = trial_pick_algorithm(t);
        size_t most = dice_below(&t->d, 32) == 0 ? 131072 : 8192;
        fleet_call c =
            trial_make_call(t, algorithm, trial_pick_count(t, algorithm, most), (int)dice_below(&t->d, TRIAL_VARIANTS));
        c.in_place = 0;
        rc = stumble(t, own);
        t->calls[t->n] = c;
        if (rc == 0)
            rc = fleet_enqueue_bare(&t->f, 0, &c, t->n);
        t->n++;
    }
    return rc;
}

static int soak_graph(trial *t, dice *own)
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

/* By the first rank's clock: all must go on, or none. */
static int soak_more(trial *t, double begin, int *more)
{
    double mine = seconds_now() - begin, all[RANKS_MAX];
    int rc = ranks_allgather(t->f.ranks, &mine, all, sizeof(mine));

    *more = rc == 0 && (t->found->soaked < t->o->soak || all[0] < t->o->soak_s) && trial_any_left(t);
    return rc;
}

int trial_soak(trial *t)
{
    dice own = {t->d.state ^ ((uint64_t)t->f.first + 1) << 32};
    double begin = seconds_now();
    uint64_t before = 0, after = 0;
    int round, a, more, last = 1, rc = soak_more(t, begin, &more);

    for (a = 1; a < PAR_ALGORITHMS; a++)
        before += t->found->wrong[a];
    for (round = 0; rc == 0 && more; round++) {
        int as_graph = round % 4 == 3;
        rc = as_graph ? soak_graph(t, &own) : soak_calls(t, &own, SOAK_BATCH);
        last = t->n > 0 ? t->calls[t->n - 1].algorithm : last;
        t->found->soaked += (uint64_t)(as_graph ? SOAK_BATCH * SOAK_REPLAYS : SOAK_BATCH);
        rc = trial_end_batch(t, rc);
        rc = rc != 0 ? rc : soak_more(t, begin, &more);
    }
    for (a = 1; a < PAR_ALGORITHMS; a++)
        after += t->found->wrong[a];
    t->found->soak_wrong = after - before;
    t->found->soak_seconds = seconds_now() - begin;
    return trial_recover(t, last, rc);
}
