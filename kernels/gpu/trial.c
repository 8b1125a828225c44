#include "trial.h"

#include <stdio.h>
#include <string.h>

enum {
    BATCH = 128, /* calls between two host synchronisations */
    GRAPHS = 6,
    GRAPH_CALLS = 8,
    STEPS = 48 /* replays and eager calls of one graph trial */
};

/* --- batches --------------------------------------------------------------------------------- */

static void blame(trial *t, int algorithm, int hung)
{
    if (hung)
        t->found->hung[algorithm] = 1;
    if (t->found->text[algorithm][0] == '\0')
        snprintf(t->found->text[algorithm], sizeof(t->found->text[0]), "%s", rank_text());
}

/* The algorithm that waited in vain, the same on all ranks: as the first rank that has a report says. */
static int culprit(trial *t, int guess)
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
int trial_recover(trial *t, int guess, int code)
{
    if (code != CODE_HANG)
        return code;
    blame(t, culprit(t, guess), 1);
    rank_clear();
    t->n = 0;
    return fleet_reopen(&t->f);
}

/* Count what the batch found. */
static int account(trial *t, int code)
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
int trial_end_batch(trial *t, int code)
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

static int add(trial *t, int set, const fleet_call *c)
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
static size_t limit_of(const trial *t, int algorithm)
{
    size_t most = par_max_bytes(t->f.comm[0], (par_algorithm)algorithm);

    return most < t->o->max_bytes ? most : t->o->max_bytes;
}

/* Place and alignment of a call. */
static const struct {
    int in_place, odd_in, odd_out;
} variants[TRIAL_VARIANTS] = {{0, 0, 0}, {1, 0, 0}, {0, 1, 1}, {1, 1, 1}, {0, 1, 0}, {0, 0, 1}};

/* A call of that size; the dice choose the piece of the dataset. */
fleet_call trial_make_call(trial *t, int algorithm, size_t count, int variant)
{
    fleet_call c = {algorithm, t->f.data->dtype, count, 0, 0, variants[variant].in_place};
    size_t room = t->f.data->count - count, odd = 1 + dice_below(&t->d, 9);

    c.shift = dice_below(&t->d, room + 1);
    if (!variants[variant].odd_in)
        c.shift -= c.shift % 8;
    c.offset = variants[variant].odd_out ? odd : 0;
    return c;
}

static int rung(trial *t, int algorithm, size_t bytes, int pass)
{
    size_t size = par_dtype_size(t->f.data->dtype), count = bytes / size;
    int n = bytes > 4194304 ? 1 : bytes > 262144 ? 2 : TRIAL_VARIANTS, v, rc = CODE_OK;

    if (count == 0 || bytes > limit_of(t, algorithm))
        return CODE_OK;
    for (v = 0; v < n && rc == 0; v++) {
        fleet_call c = trial_make_call(t, algorithm, count, (v + pass * n) % TRIAL_VARIANTS);
        rc = add(t, 0, &c);
    }
    return rc;
}

int trial_ladder(trial *t, int algorithm)
{
    static const size_t bytes[] = {8,       2,       4,       12,      16,       18,       30,      64,
                                   100,     250,     512,     1000,    2048,     4098,     9216,    16384,
                                   16390,   30000,   43008,   65536,   65538,    131070,   262144,  524290,
                                   1048576, 1048580, 4194304, 4194298, 16777216, 16777226, 67108864};
    int steps = (int)(sizeof(bytes) / sizeof(bytes[0])), pass, i, rc = CODE_OK;

    for (pass = 0; pass < 3 && rc == 0; pass++)
        for (i = 0; i < steps && rc == 0; i++) {
            rc = rung(t, algorithm, bytes[pass == 1 ? steps - 1 - i : i], pass);
            if (rc != 0 || t->n > BATCH - 8 || (i == steps - 1 && t->n > 0))
                rc = trial_end_batch(t, rc);
        }
    return trial_recover(t, algorithm, rc);
}

/* A message over the limit must be refused before anything is enqueued. */
int trial_too_large(trial *t, int algorithm)
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

int trial_pick_algorithm(trial *t)
{
    int a;

    do
        a = 1 + (int)dice_below(&t->d, PAR_ALGORITHMS - 1);
    while (!(t->algorithms >> a & 1u) || t->found->hung[a]);
    return a;
}

int trial_any_left(const trial *t)
{
    int a;

    for (a = 1; a < PAR_ALGORITHMS; a++)
        if ((t->algorithms >> a & 1u) && !t->found->hung[a])
            return 1;
    return 0;
}

/* Sizes spread evenly over the powers of two up to `most` bytes. */
size_t trial_pick_count(trial *t, int algorithm, size_t most)
{
    size_t size = par_dtype_size(t->f.data->dtype), limit = limit_of(t, algorithm), bits = 2, bytes;

    most = most < limit ? most : limit;
    while ((size_t)1 << bits < most)
        bits++;
    bytes = dice_below(&t->d, (size_t)4 << dice_below(&t->d, bits - 1)) + size;
    bytes = bytes < most ? bytes : most;
    return bytes / size;
}

static int add_random(trial *t, int set)
{
    int algorithm = trial_pick_algorithm(t);
    size_t count = trial_pick_count(t, algorithm, TRIAL_SMALL);
    fleet_call c = trial_make_call(t, algorithm, count, (int)dice_below(&t->d, TRIAL_VARIANTS));

    return add(t, set, &c);
}

int trial_mixed(trial *t)
{
    int rc = CODE_OK, last = 1;

    while (t->n < BATCH && rc == 0) {
        rc = add_random(t, 0);
        last = t->calls[t->n - 1].algorithm;
    }
    return trial_recover(t, last, trial_end_batch(t, rc));
}

static int capture(trial *t, fleet_graph *graph, int set)
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
static int interleave(trial *t, const fleet_graph *graphs)
{
    int i, rc = CODE_OK;

    for (i = 0; i < STEPS && rc == 0; i++) {
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

int trial_graphs(trial *t)
{
    fleet_graph graph[GRAPHS];
    int i, made = 0, rc = CODE_OK, last = 1;

    memset(graph, 0, sizeof(graph));
    for (i = 0; i < GRAPHS && rc == 0; i++, made++)
        rc = capture(t, &graph[i], i % FLEET_SETS);
    if (rc == 0)
        rc = interleave(t, graph);
    last = t->n > 0 ? t->calls[t->n - 1].algorithm : 1;
    rc = trial_end_batch(t, rc);
    for (i = 0; i < made; i++)
        fleet_graph_free(&t->f, &graph[i]);
    return trial_recover(t, last, rc);
}
