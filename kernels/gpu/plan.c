#include "plan.h"

#include <math.h>
#include <string.h>

enum { FEWEST_CALLS = 10, FEWEST_REPLAYS = 3 };

static const size_t all_sizes[] = {2048,   4096,    8192,    16384,   43008,   65536,   131072,
                                   262144, 524288, 1048576, 2097152, 4194304, 8388608, 16777216};
static const size_t quick_sizes[] = {4096, 16384, 43008, 131072, 524288, 2097152};
static const size_t spot_sizes[] = {4096, 43008, 1048576};

/* --- points ---------------------------------------------------------------------------------- */

static void add_point(plan *p, int dtype, size_t bytes)
{
    bytes -= bytes % par_dtype_size(dtype);
    if (bytes > 0 && p->points < PLAN_POINTS)
        p->point[p->points++] = (plan_point){dtype, bytes};
}

static void add_points(plan *p, int dtype, const size_t *sizes, size_t n)
{
    size_t i;

    for (i = 0; i < n; i++)
        add_point(p, dtype, sizes[i]);
}

static void add_type(plan *p, const options *o, int dtype)
{
    if (o->sizes.n > 0)
        add_points(p, dtype, o->sizes.value, (size_t)o->sizes.n);
    else if (o->quick)
        add_points(p, dtype, quick_sizes, sizeof(quick_sizes) / sizeof(quick_sizes[0]));
    else
        add_points(p, dtype, all_sizes, sizeof(all_sizes) / sizeof(all_sizes[0]));
}

/* bf16 is what models use, so it comes first. */
static void make_points(plan *p, const options *o)
{
    static const int order[] = {PAR_BF16, PAR_FP16, PAR_FP32};
    unsigned types = o->dtypes != 0 ? o->dtypes : 1u << PAR_BF16;
    int i, spot = o->dtypes == 0 && o->budget_s > 0 && !o->quick && o->sizes.n == 0;

    for (i = 0; i < PAR_DTYPES; i++)
        if (types >> order[i] & 1u)
            add_type(p, o, order[i]);
        else if (spot)
            add_points(p, order[i], spot_sizes, sizeof(spot_sizes) / sizeof(spot_sizes[0]));
}

/* --- groups ---------------------------------------------------------------------------------- */

static void add_group(plan *p, int world, int no_p2p)
{
    double names = no_p2p ? 1 : 4; /* NCCL alone, or also our algorithms, most of them seen only shortly */
    plan_group *g = &p->group[p->groups++];
    int i;

    *g = (plan_group){world, no_p2p, PLAN_START_WEIGHT};
    for (i = 0; i < p->points; i++)
        g->weight += names * plan_weight(p->point[i].bytes);
}

int plan_make(plan *out, const options *o, int gpus, int p2p, int no_p2p_already)
{
    unsigned worlds = o->worlds != 0 ? o->worlds : 1u << gpus | (o->budget_s > 0 ? 1u << 2 : 0);
    int world, apart = o->nccl && p2p && !no_p2p_already && !o->quick;

    memset(out, 0, sizeof(*out));
    out->seconds = o->budget_s > 0 ? o->budget_s : INFINITY;
    out->calls = o->calls;
    out->iterations = o->iterations;
    out->eager = !o->quick;
    out->in_place = o->budget_s <= 0;
    make_points(out, o);
    for (world = gpus; world >= 2; world--)
        if (worlds >> world & 1u) {
            if (apart)
                add_group(out, world, 1);
            add_group(out, world, 0);
        }
    if (out->groups == 0 || out->points == 0)
        return rank_fail(CODE_CANNOT, "nothing to measure: %d GPUs, and no world or size of those asked for", gpus);
    return CODE_OK;
}

/* --- how much of everything ------------------------------------------------------------------ */

double plan_weight(size_t bytes)
{
    return bytes <= 65536 ? 1 : bytes <= 1048576 ? 2 : 4;
}

int plan_calls(int calls, size_t bytes)
{
    double fewer = bytes <= 262144 ? calls : (double)calls * 262144 / (double)bytes;

    return fewer >= FEWEST_CALLS || calls < FEWEST_CALLS ? (int)fewer + (fewer < 1) : FEWEST_CALLS;
}

int plan_replays(double seconds, double us, int most)
{
    double fit = us > 0 ? seconds * 1e6 / us : most;

    return fit >= most ? most : fit <= FEWEST_REPLAYS ? FEWEST_REPLAYS : (int)fit;
}

void pace_begin(pace *p, double now, double seconds, double weight)
{
    p->end = now + seconds;
    p->left = weight;
}

double pace_share(const pace *p, double now, double weight)
{
    double left = p->end - now;

    return left <= 0 ? 0 : p->left <= weight ? left : left * weight / p->left;
}

void pace_spend(pace *p, double weight)
{
    p->left -= weight;
}
