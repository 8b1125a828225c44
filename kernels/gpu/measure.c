#include "measure.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A rank at work. */
typedef struct {
    const measure_job *j;
    bench b;
    int has_nccl;
    link_rates links;
    measured *found; /* rank 0's; null elsewhere */
    pace pace;
} worker;

/* Slower than the fastest of their transport by more than this are not measured in full. */
static const double near_enough = 1.4;

/* Of the time that a point may take: what is left after capturing, synchronising and the like. */
static const double replaying = 0.5;

/* --- what it says ---------------------------------------------------------------------------- */

/* "[12/34 31s] world 2, bf16, 42 KiB: host-one-shot" for whoever shows progress. */
static void say(const worker *w, size_t bytes, const char *what)
{
    const measure_job *j = w->j;
    double now = seconds_now(), done = j->before + j->group->weight - w->pace.left, left = j->plan->seconds;

    rank_note("%s %zu bytes", what, bytes);
    if (w->found == NULL || !j->o->stream)
        return;
    if (done > PLAN_START_WEIGHT)
        left = (now - j->begin) / done * (j->all - done);
    fprintf(stderr, "[%d/%d %.0fs] world %d, %s, ", j->points_before + w->found->points + 1, j->points,
            left < 1e6 ? left : 0, j->group->world, par_dtype_name(w->b.dtype));
    if (bytes % 1048576 == 0)
        fprintf(stderr, "%zu MiB: %s\n", bytes >> 20, what);
    else
        fprintf(stderr, "%g KiB: %s\n", (double)bytes / 1024, what);
}

static void print_json(void (*write)(text *t, const void *what), const void *what)
{
    text line = {0};

    write(&line, what);
    if (line.data != NULL)
        puts(line.data);
    fflush(stdout);
    text_free(&line);
}

static void write_row(text *t, const void *r)
{
    row_json(t, r);
}

static void write_head(text *t, const void *h)
{
    group_json(t, h);
}

/* NCCL's row of the same point that goes the same way; null if there is none. */
static const row *rival_of(const worker *w, const row *r)
{
    int host = par_algorithm_transport(r->found.algorithm) == PAR_HOST, i;
    const measured *from = host && w->j->rivals != NULL && w->j->rivals->n > 0 ? w->j->rivals : w->found;
    const row *found = NULL;

    for (i = 0; i < from->n && r->by == BY_OURS; i++)
        if (from->rows[i].by != BY_OURS && from->rows[i].found.bytes == r->found.bytes &&
            from->rows[i].dtype == r->dtype)
            found = &from->rows[i];
    return found;
}

static void keep_row(worker *w, const findings *f, maker by, int shown)
{
    const measure_job *j = w->j;
    row r = {w->found != NULL ? w->found->head.group : 0, j->group->world, w->b.dtype, by, *f, 0};

    if (w->found == NULL)
        return;
    if (by == BY_OURS && j->window != NULL)
        r.model = model_us(&w->links, f->algorithm, j->group->world, (double)f->bytes);
    w->found->wrong += f->wrong_out + f->wrong_in;
    if (w->found->n < MEASURE_ROWS)
        w->found->rows[w->found->n++] = r;
    if (j->o->stream)
        print_json(write_row, &r);
    else if (!j->o->json && (shown || f->wrong_out + f->wrong_in != 0))
        row_table(&r, rival_of(w, &r));
}

/* --- a point --------------------------------------------------------------------------------- */

/* In all manners that are wanted, within so many seconds. */
static int in_full(worker *w, findings *f, double seconds)
{
    const plan *p = w->j->plan;
    const int wanted[TIMING_MANNERS] = {1, p->in_place, 1, p->eager};
    int m, rc = CODE_OK;

    for (m = 0; m < TIMING_MANNERS && rc == 0; m++)
        if (wanted[m])
            rc = timing_measure(&w->b, f->algorithm, f->bytes, (manner)m,
                                replaying * seconds / (2 + p->in_place + p->eager), &f->time[m]);
    return rc;
}

static int one_rival(worker *w, size_t bytes, double seconds)
{
    findings f = {.bytes = bytes};
    int rc;

    say(w, bytes, "NCCL");
    rc = in_full(w, &f, seconds);
    if (rc == 0)
        keep_row(w, &f, w->j->group->no_p2p ? BY_NCCL_NO_P2P : BY_NCCL, 1);
    return rc;
}

static int serves(const worker *w, int algorithm, size_t bytes)
{
    return (w->j->algorithms >> algorithm & 1u) && par_max_bytes(w->b.f.comm[0], (par_algorithm)algorithm) >= bytes;
}

/* Each algorithm screened and shortly timed; how many there are. */
static int try_all(worker *w, findings *all, size_t bytes, double seconds)
{
    int a, n = 0, rc = CODE_OK;

    for (a = 1; a < PAR_ALGORITHMS; a++)
        n += serves(w, a, bytes);
    for (a = 1; a < PAR_ALGORITHMS && rc == 0; a++) {
        all[a].bytes = bytes;
        all[a].algorithm = a;
        if (serves(w, a, bytes)) {
            say(w, bytes, par_algorithm_name(a));
            rc = timing_tune(&w->b, &all[a], replaying * seconds / n);
        }
    }
    return rc;
}

/* The fastest so far, of a transport or (-1) of all; 0 if there is none. */
static int fastest_of(const findings *all, int transport)
{
    int a, best = 0;

    for (a = 1; a < PAR_ALGORITHMS; a++)
        if (all[a].time[TIMING_GRAPH].n > 0 && (transport < 0 || par_algorithm_transport(a) == transport) &&
            (best == 0 || all[a].time[TIMING_GRAPH].us < all[best].time[TIMING_GRAPH].us))
            best = a;
    return best;
}

static int is_near(const worker *w, const findings *all, int a)
{
    const findings *best = &all[fastest_of(all, par_algorithm_transport(a))];

    return all[a].time[TIMING_GRAPH].n > 0 &&
           (w->j->o->each || all[a].time[TIMING_GRAPH].us <= near_enough * best->time[TIMING_GRAPH].us);
}

static int finish_all(worker *w, findings *all, double seconds)
{
    int near[PAR_ALGORITHMS] = {0}, a, best = fastest_of(all, -1), n = 0, rc = CODE_OK;

    for (a = 1; a < PAR_ALGORITHMS; a++)
        n += near[a] = is_near(w, all, a);
    for (a = 1; a < PAR_ALGORITHMS && rc == 0; a++) {
        if (near[a]) {
            rc = ranks_agree(w->b.f.ranks, timing_cut(&w->b, &all[a].cut));
            rc = rc != 0 ? rc : in_full(w, &all[a], seconds / n);
        }
        if (rc == 0 && (all[a].time[TIMING_GRAPH].n > 0 || all[a].wrong_out + all[a].wrong_in != 0))
            keep_row(w, &all[a], BY_OURS, a == best || w->j->o->each);
    }
    return rc;
}

static int one_point(worker *w, size_t bytes, double seconds)
{
    findings all[PAR_ALGORITHMS];
    int ours = w->j->algorithms != 0 && !w->j->group->no_p2p, rc = CODE_OK;

    memset(all, 0, sizeof(all));
    w->b.layer_bytes = 0;
    if (w->has_nccl)
        rc = one_rival(w, bytes, seconds * (ours ? 0.2 : 1));
    if (rc == 0 && ours)
        rc = try_all(w, all, bytes, seconds * 0.3);
    if (rc == 0 && ours)
        rc = finish_all(w, all, seconds * 0.5);
    return rc;
}

/* --- all points ------------------------------------------------------------------------------ */

/* Seconds for a point, by rank 0's clock; 0: none are left. */
static int agree_on_time(worker *w, double weight, double *seconds)
{
    double mine = pace_share(&w->pace, seconds_now(), weight), all[RANKS_MAX];
    int rc = ranks_allgather(w->b.f.ranks, &mine, all, sizeof(mine));

    *seconds = rc == 0 ? all[0] : 0;
    return rc;
}

static int load(worker *w, int dtype)
{
    const dataset *d = &w->j->data[dtype];
    int rc = CODE_OK;

    if (w->b.f.data != d) {
        w->b.dtype = dtype;
        rc = fleet_load(&w->b.f, d, d->bytes - MEASURE_SLACK);
    }
    return rc;
}

static int all_points(worker *w)
{
    const plan *p = w->j->plan;
    double seconds = 0;
    int i, rc = CODE_OK;

    for (i = 0; i < p->points && rc == 0; i++) {
        double weight = (w->j->group->no_p2p ? 1 : 4) * plan_weight(p->point[i].bytes);
        rc = agree_on_time(w, weight, &seconds);
        if (rc == 0 && seconds > 0) {
            rc = load(w, p->point[i].dtype);
            rc = rc != 0 ? rc : one_point(w, p->point[i].bytes, seconds);
            if (w->found != NULL && rc == 0)
                w->found->points++;
        }
        pace_spend(&w->pace, weight);
    }
    return rc;
}

/* --- one process ----------------------------------------------------------------------------- */

/* NCCL needs one eager call before it can be captured; it also tells the number of channels. Only one that was named
 * must be there. */
static int open_rival(worker *w)
{
    fleet *f = &w->b.f;
    int rc = nccl_open(&w->b.rival, f->ranks, w->j->o->nccl_path);

    if (rc == 0)
        rc = ranks_agree(f->ranks, nccl_all_reduce(&w->b.rival, f->input[0], f->work[0][0] + FLEET_MARGIN, 1024,
                                                   w->b.dtype, f->stream[0][0]));
    if (rc == 0)
        rc = ranks_agree(f->ranks, fleet_finish(f));
    w->has_nccl = rc == 0;
    if (rc == CODE_CANNOT && w->j->o->nccl_path == NULL && !f->ranks->broken) {
        if (w->found != NULL)
            snprintf(w->found->no_nccl, sizeof(w->found->no_nccl), "%s",
                     rank_text()[0] != '\0' ? rank_text() : "it failed on another rank");
        rank_clear();
        rc = CODE_OK;
    }
    return rc;
}

static void show_head(worker *w)
{
    group_head *h = &w->found->head;

    h->has_nccl = w->has_nccl;
    h->rival = w->b.rival;
    h->links = w->links;
    h->has_links = w->j->window != NULL && !h->no_p2p;
    nccl_environment(h->environment, sizeof(h->environment));
    if (w->j->o->stream)
        print_json(write_head, h);
    else if (!w->j->o->json)
        row_table_head(h, w->j->o);
}

static int prepare(worker *w)
{
    const measure_job *j = w->j;
    int peer = (j->transports & ~(1u << PAR_HOST)) != 0, rc = load(w, j->plan->point[0].dtype);

    if (rc == 0 && j->o->nccl)
        rc = open_rival(w);
    if (rc == 0 && j->window != NULL && !j->group->no_p2p)
        rc = model_measure(&w->links, &w->b.f, j->window, peer);
    if (rc == 0 && w->found != NULL)
        show_head(w);
    pace_begin(&w->pace, seconds_now(), j->end - seconds_now(), j->group->weight - PLAN_START_WEIGHT);
    return rc;
}

static void set_up(worker *w, ranks *self, const measure_job *j)
{
    w->j = j;
    w->found = self->rank == 0 ? j->found : NULL;
    w->b.o = j->o;
    w->b.talks = self->rank == 0;
    w->b.calls = j->plan->calls;
    w->b.iterations = j->plan->iterations;
    w->b.d.state = j->o->seed;
    w->pace.left = j->group->weight;
}

int measure_body(ranks *self, void *context)
{
    const measure_job *j = context;
    par_options wanted = PAR_OPTIONS_INIT;
    worker *w = calloc(1, sizeof(*w));
    int alone = j->group->no_p2p || j->algorithms == 0, rc;

    if (w == NULL)
        return rank_fail(CODE_CANNOT, "no memory");
    set_up(w, self, j);
    nccl_set_up(j->group->no_p2p);
    wanted.with = (j->transports >> PAR_HOST & 1u ? PAR_WITH_HOST : 0) |
                  ((j->transports & ~(1u << PAR_HOST)) != 0 ? PAR_WITH_PEER : 0);
    wanted.mode = PAR_MODE_STATUS;
    wanted.timeout_s = 20;
    rc = fleet_open(&w->b.f, self, j->group->world, j->device, 0, alone ? NULL : &wanted);
    rc = rc != 0 ? rc : prepare(w);
    rc = rc != 0 ? rc : all_points(w);
    rank_note("closing");
    nccl_close(&w->b.rival);
    fleet_close(&w->b.f);
    free(w);
    return rc;
}
