/* layout.c: geometry of the boxes and the cutting of messages; see call.h. */
#include "call.h"

enum {
    WORDS_PER_VEC = 4,
    BYTES_PER_VEC = 16,
    HOST_BULK_LANES = 64 /* more lanes through the host only poll in each other's way */
};

static const uint64_t default_sentinel_bytes = 1u << 20;

static uint64_t divide_up(uint64_t a, uint64_t b)
{
    return (a + b - 1) / b;
}

static uint64_t at_most(uint64_t a, uint64_t limit)
{
    return a < limit ? a : limit;
}

static uint64_t at_least(uint64_t a, uint64_t limit)
{
    return a > limit ? a : limit;
}

int par_is_chunked(int algorithm)
{
    return algorithm == PAR_HOST_ONE_SHOT_CHUNKED || algorithm == PAR_HOST_TWO_SHOT_CHUNKED ||
           algorithm == PAR_PUSH_ONE_SHOT_CHUNKED || algorithm == PAR_PUSH_TWO_SHOT_CHUNKED ||
           algorithm == PAR_PULL_ONE_SHOT || algorithm == PAR_PULL_TWO_SHOT;
}

int par_is_two_shot(int algorithm)
{
    return algorithm == PAR_HOST_TWO_SHOT || algorithm == PAR_HOST_TWO_SHOT_CHUNKED ||
           algorithm == PAR_PUSH_TWO_SHOT || algorithm == PAR_PUSH_TWO_SHOT_CHUNKED || algorithm == PAR_PULL_TWO_SHOT ||
           algorithm == PAR_HOST_TWO_SHOT_TAGGED;
}

int par_is_tagged(int algorithm)
{
    return algorithm == PAR_HOST_ONE_SHOT_TAGGED || algorithm == PAR_HOST_TWO_SHOT_TAGGED;
}

/* Items of a tagged part. */
static uint64_t items_of(uint64_t vecs)
{
    const uint64_t whole = PAR_STRIPE * PAR_ITEM_VECS;
    return vecs / whole * PAR_STRIPE + at_most(vecs % whole, PAR_STRIPE);
}

/* Most bytes of a sentinel message. A one-shot moves world times as much, so its limit falls with the world size;
 * resets in a GPU's own memory cost little, so a push pays for longer, in one shot where two move no less. */
static uint64_t sentinel_limit(int algorithm, int world, uint64_t sentinel_bytes)
{
    uint64_t limit = sentinel_bytes ? sentinel_bytes : default_sentinel_bytes;
    if (!par_is_two_shot(algorithm))
        limit = limit * 2 / (uint64_t)world;
    if (par_algorithm_transport(algorithm) == PAR_PUSH && (par_is_two_shot(algorithm) || world == 2))
        limit *= 4;
    return limit;
}

/* Bytes of a tile. Slots are used in turn, so all of them should fit the CPU's cache (host), or cost little memory. */
static uint32_t tile_for(int algorithm, int world)
{
    uint32_t bytes = 8192;
    if (par_algorithm_transport(algorithm) != PAR_HOST)
        bytes = par_is_two_shot(algorithm) ? 16384 : 16384 / (uint32_t)world;
    return bytes;
}

uint32_t par_room(int blocks, int processors, int sharing)
{
    const int used = processors - PAR_SPARE_PROCESSORS;
    return used > 0 ? (uint32_t)(blocks * used / sharing) : 0;
}

void par_geometry_init(par_geometry *out, int algorithm, int world, uint32_t lanes, uint64_t sentinel_bytes,
                       uint32_t tile_bytes)
{
    const int two = par_is_two_shot(algorithm), push = par_algorithm_transport(algorithm) == PAR_PUSH;
    const uint32_t n = (uint32_t)world;
    uint32_t scatter, gather;

    out->lanes = lanes ? (uint32_t)at_most(lanes, PAR_LANES) : PAR_LANES;
    if (par_is_tagged(algorithm) || (par_is_chunked(algorithm) && par_algorithm_transport(algorithm) == PAR_HOST))
        out->lanes = (uint32_t)at_most(out->lanes, HOST_BULK_LANES);
    if (par_is_chunked(algorithm)) {
        out->lane_vecs = (uint32_t)divide_up(tile_bytes ? tile_bytes : tile_for(algorithm, world), BYTES_PER_VEC);
        out->max_bytes = UINT64_MAX;
        out->flag_bytes = (uint64_t)out->lanes * PAR_MAX_WORLD * PAR_FLAG_WORDS * 4;
    } else {
        uint64_t vecs = divide_up(sentinel_limit(algorithm, world, sentinel_bytes), BYTES_PER_VEC);
        out->lane_vecs = (uint32_t)divide_up(vecs, out->lanes);
        /* Two-shot: a message that needs several lanes then leaves none with fewer vecs than ranks. One-shot: takes
         * what is too small for a two-shot. */
        out->lane_vecs = (uint32_t)at_least(out->lane_vecs, two ? 2 * n : n);
        out->max_bytes = (uint64_t)out->lane_vecs * out->lanes * BYTES_PER_VEC;
        out->flag_bytes = 0;
    }
    /* An inbox holds my part from each sender, an outbox all parts; the gather area holds one part. */
    gather = two ? (uint32_t)divide_up(out->lane_vecs, n) : 0;
    scatter = two && push ? gather : out->lane_vecs;
    out->gather_words = scatter * WORDS_PER_VEC;
    out->sender_words = (scatter + gather) * WORDS_PER_VEC;
    out->part_words = out->tag_words = 0;
    if (par_is_tagged(algorithm)) { /* whole parts, each followed by its items' words */
        const uint32_t part = two ? gather : scatter;
        out->tag_words = part * WORDS_PER_VEC;
        out->part_words = out->tag_words + (uint32_t)divide_up(part, PAR_STRIPE * PAR_ITEM_VECS) * PAR_STRIPE;
        out->gather_words = out->part_words * (two ? n : 1);
        out->sender_words = out->gather_words + (two ? out->part_words : 0);
    }
    out->slot_words = out->sender_words * (push ? n : 1);
    out->lane_words = (uint32_t)divide_up(out->slot_words * PAR_SLOTS, PAR_FLAG_WORDS) * PAR_FLAG_WORDS;
    out->box_bytes = (uint64_t)out->lane_words * out->lanes * 4;
}

/*
 * Bytes of a lane below which another lane does not pay, as measured. A two-shot has two phases one after the other, so
 * it gains most from threads that have one vec each; tagged, from items that are full.
 */
static uint64_t grain(int algorithm, int world)
{
    uint64_t bytes = par_is_two_shot(algorithm) ? 640 : 2048;
    if (par_is_chunked(algorithm))
        bytes = 4096;
    else if (par_is_tagged(algorithm) && par_is_two_shot(algorithm))
        bytes = (uint64_t)world * PAR_STRIPE * PAR_ITEM_VECS * BYTES_PER_VEC;
    return bytes;
}

static uint32_t lanes_for(const par_geometry *g, int algorithm, int world, uint64_t vecs, uint64_t least)
{
    uint64_t lanes = at_most(divide_up(vecs * BYTES_PER_VEC, grain(algorithm, world)), g->lanes);
    return (uint32_t)at_least(at_most(lanes, vecs / least), 1);
}

/* Workers for so many vecs of a lane. */
static uint32_t workers_for(int algorithm, int world, uint64_t vecs)
{
    const int two = par_is_two_shot(algorithm);
    uint64_t workers = 512;
    if (par_is_chunked(algorithm))
        workers = vecs <= 256 ? 128 : par_algorithm_transport(algorithm) == PAR_HOST ? 512 : 256;
    else if (par_is_tagged(algorithm)) {
        uint64_t teams = two ? (uint64_t)world - 1 : 1, items = items_of(two ? divide_up(vecs, (uint64_t)world) : vecs);
        workers = at_most(teams * 32 * divide_up(items, two ? 128 : 64), PAR_TAGGED_WORKERS);
    } else if (two && vecs <= 48)
        workers = 64;
    else if (vecs <= 128)
        workers = 128;
    else if (vecs <= (two ? 256 : 512))
        workers = 256;
    return (uint32_t)workers;
}

int par_plan_init(par_plan *out, const par_geometry *geometry, int algorithm, int world, uint64_t bytes,
                  uint32_t lanes, uint32_t workers, uint32_t tile_bytes)
{
    const uint64_t vecs = divide_up(bytes, BYTES_PER_VEC);
    const par_geometry *g;
    uint64_t least;

    /* Every rank must get a word from every peer: too small for a two-shot is the one-shot before it in the list. */
    if (par_is_two_shot(algorithm) && !par_is_chunked(algorithm) && vecs < (uint64_t)world)
        algorithm -= 1;
    g = &geometry[algorithm];
    if (bytes == 0 || bytes > g->max_bytes)
        return PAR_ERR_UNSUPPORTED;
    least = par_is_two_shot(algorithm) ? (uint64_t)world : 1; /* vecs of a lane */
    out->algorithm = algorithm;
    out->lanes = lanes ? (uint32_t)at_least(at_most(at_most(lanes, g->lanes), vecs / least), 1)
                       : lanes_for(g, algorithm, world, vecs, least);
    if (!par_is_chunked(algorithm) && divide_up(vecs, out->lanes) > g->lane_vecs)
        out->lanes = (uint32_t)divide_up(vecs, g->lane_vecs);
    out->workers = workers ? workers : workers_for(algorithm, world, divide_up(vecs, out->lanes));
    out->workers = (uint32_t)at_most(out->workers, par_is_tagged(algorithm) ? PAR_TAGGED_WORKERS : PAR_MAX_WORKERS);
    out->tile = g->lane_vecs;
    if (par_is_chunked(algorithm) && tile_bytes)
        out->tile = (uint32_t)at_least(at_most(divide_up(tile_bytes, BYTES_PER_VEC), g->lane_vecs), 1);
    out->share = (uint32_t)(vecs / out->lanes);
    out->longer = (uint32_t)(vecs % out->lanes);
    return PAR_OK;
}

void par_call_routes(par_call *call, const par_geometry *geometry, int algorithm)
{
    const uint64_t sender = geometry[algorithm].sender_words;
    const uint32_t me = call->rank;
    const int push = par_algorithm_transport(algorithm) == PAR_PUSH;
    call->transport = (uint32_t)par_algorithm_transport(algorithm);
    call->targets = push ? call->world - 1 : 1;
    for (uint32_t p = 0; p < call->world; p++)
        call->from[p] = push ? call->box[me] + p * sender : call->box[p];
    for (uint32_t k = 1; k < call->world; k++) {
        const uint32_t p = (me + k) % call->world;
        call->to[k - 1] = push ? call->box[p] + me * sender : call->box[me];
        call->mine[k - 1] = call->box[me] + (push ? p * sender : 0);
    }
    call->after = call->from[(me + 1) % call->world];
}

void par_call_message(par_call *call, const void *in, void *out, uint64_t bytes)
{
    call->in = in;
    call->out = out;
    call->bytes = bytes;
    call->whole_in = (uintptr_t)in % BYTES_PER_VEC == 0 ? (uint32_t)(bytes / BYTES_PER_VEC) : 0;
    call->whole_out = (uintptr_t)out % BYTES_PER_VEC == 0 ? (uint32_t)(bytes / BYTES_PER_VEC) : 0;
}

void par_call_plan(par_call *call, const par_geometry *geometry, const par_plan *plan)
{
    const par_geometry *g = &geometry[plan->algorithm];
    call->algorithm = (uint32_t)plan->algorithm;
    call->lanes = plan->lanes;
    call->workers = plan->workers;
    call->tile = plan->tile;
    call->share = plan->share;
    call->longer = plan->longer;
    call->world_inverse = par_inverse(call->world);
    call->team = (uint32_t)at_least(plan->workers / (call->world - 1), 1);
    call->teams = plan->workers / call->team;
    call->team_inverse = call->team > 1 ? par_inverse(call->team) : 0;
    call->lane_words = g->lane_words;
    call->slot_words = g->slot_words;
    call->gather_words = g->gather_words;
    call->tagged = (uint32_t)par_is_tagged(plan->algorithm);
    call->part_words = g->part_words;
    call->tag_words = g->tag_words;
}
