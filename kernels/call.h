/*
 * call.h: what one kernel launch knows, and the geometry of the memory it works on. Free of CUDA; used by the host
 * side, by the device code and by the emulator.
 *
 * Vocabulary. A message is cut into `lanes`; lane = block. Every lane of every algorithm has its own slots, its own
 * epoch and its own bookkeeping, and never looks at another lane: what is shown for one lane holds for the kernel, and
 * the number of lanes may change from call to call. All lengths inside a lane are counted in par_vec (16 bytes).
 *
 * Each rank owns one `box` per algorithm: memory that several ranks see.
 *   host   box in host memory; written by its owner (outbox), read by all
 *   push   box in the owner's GPU; written by the peers (inbox, an area per sender), read by the owner
 *   pull   box in the owner's GPU; written by its owner (outbox), read by the peers
 * Inside a box: lane, then slot, then (push only) sender, then the scatter area and, behind it, the gather area.
 */
#ifndef PAR_CALL_H
#define PAR_CALL_H

#include <stddef.h>
#include <stdint.h>

#include "pcie_allreduce.h"
#include "primitives.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    PAR_LANES = 128,     /* most lanes of a call */
    PAR_SLOTS = 4,       /* slots of a sentinel lane; see protocol/plain.h for why four */
    PAR_FLAG_WORDS = 32, /* a flag has 128 bytes to itself */
    PAR_MAX_WORKERS = 512,
    PAR_TAGGED_WORKERS = 256, /* tagged: more registers a thread */
    PAR_SPARE_PROCESSORS = 4  /* multiprocessors that no call takes; see par_room() */
};

#define PAR_EMPTY 0xffffffffu /* the sentinel: a word that has not arrived */

/* A lane's bookkeeping in the rank's own memory, one per algorithm and lane. Starts as zero. */
typedef struct {
    uint32_t epoch;             /* sentinel: calls so far; chunked: steps so far */
    uint32_t extent[PAR_SLOTS]; /* sentinel: vecs of the lane when it last used the slot; tagged: see PAR_MIXED */
    uint32_t spare[3];
} par_lane;

/* A tagged slot whose last two uses differ in size, and must be emptied; the larger of the two sizes besides. */
#define PAR_MIXED 0x80000000u

/* A tagged part is written by items: an item is up to four vecs, 32 apart, and a word for their displaced bits. */
enum { PAR_ITEM_VECS = 4, PAR_STRIPE = 32 };

/* Words in a rank's own memory that all its lanes share: relaxed accesses and exchanges. */
enum {
    PAR_CLAIM_FAILED, /* somebody has taken it on himself to write the note of the failure */
    PAR_CLAIM_LATE,   /* likewise the note of a long wait: time of the last */
    PAR_CLAIM_LOOK,   /* time of the last look at the abort words */
    PAR_CLAIM_DEAD,   /* this rank has failed or seen an abort: leave at once */
    PAR_CLAIM_WORDS = 8
};

/* What a waiting thread leaves in host memory; words, in this order. */
enum {
    PAR_NOTE_STATE, /* 0 empty, 1 filled (written last) */
    PAR_NOTE_ERROR, /* -PAR_ERR_ */
    PAR_NOTE_PEER,
    PAR_NOTE_ALGORITHM,
    PAR_NOTE_PHASE,
    PAR_NOTE_LANE,
    PAR_NOTE_EPOCH,
    PAR_NOTE_EXPECTED,
    PAR_NOTE_SEEN,
    PAR_NOTE_WAITED_MS,
    PAR_NOTE_WORDS = 16
};

/*
 * Arguments of a kernel for one rank. Pointers are valid where the kernel runs. Each line that a kernel reads costs a
 * miss of the constant cache, one after the other: what every thread needs before its first word leaves comes first
 * (the kernel's arguments begin 16 bytes into a line of 64), then what a short call needs to its end, then the rest.
 */
typedef struct {
    const void *in;
    par_lane *lane;                /* own bookkeeping of this algorithm */
    uint64_t bytes;                /* of the message */
    uint32_t share, longer;        /* vecs of a lane; so many first lanes have one more */
    uint32_t workers;              /* threads 0..workers-1 move data, thread `workers` keeps house, others idle */
    uint32_t whole_in;             /* vecs of in that one access moves: all but a tail, none if misaligned */
    uint32_t dawdle;               /* tests: delay_ns or jitter_ns is set */
    uint32_t rank;

    uint32_t lane_words, slot_words; /* strides in a box, in 32-bit words */
    uint32_t targets;                /* so many of to[] are different: all (push), or one, the outbox */
    uint32_t transport;              /* par_transport: which box a word goes to and comes from */
    uint32_t *to[PAR_MAX_WORLD - 1]; /* [k - 1]: where words for the k-th rank after this go, for offset 0 of a box */
    const uint32_t *after;           /* from[] of the rank after this: of two ranks, the other one */
    void *out;
    uint32_t whole_out;              /* as whole_in */
    uint32_t world;
    uint32_t *busy;                  /* own memory, one word per lane, shared by all algorithms */
    uint32_t *claim;                 /* own memory: PAR_CLAIM_WORDS, shared by all algorithms */
    uint32_t *mine[PAR_MAX_WORLD - 1]; /* [k - 1]: what this rank resets: what the k-th after it wrote, or its outbox */
    const uint32_t *from[PAR_MAX_WORLD]; /* [p]: where words of rank p are, for offset 0 of a box */
    uint32_t gather_words;           /* offset in a box */

    uint32_t tagged;               /* words carry tags */
    uint32_t *box[PAR_MAX_WORLD];  /* rank p's box of this algorithm */
    uint32_t *flag[PAR_MAX_WORLD]; /* rank p's flags of this algorithm (chunked): [lane][rank] of PAR_FLAG_WORDS */
    uint32_t *abort_word;          /* host memory, seen by all ranks: [rank] set by that rank; 32-byte aligned */
    uint32_t *failed;              /* host memory: own note of the failure */
    uint32_t *late;                /* host memory: own note of a wait that is long but not over */
    uint64_t timeout_ns;
    uint64_t late_ns;
    uint64_t delay_ns;             /* tests: wait before sending */
    uint64_t jitter_ns;            /* tests: likewise, pseudo-random below this */
    uint32_t algorithm;            /* par_algorithm, for the notes */
    uint32_t trap;                 /* engine mode */
    uint32_t lanes;                /* blocks of this rank */
    uint32_t tile;                 /* chunked: vecs per step */
    uint32_t part_words, tag_words;/* tagged: words of a part in a box, and where in it the displaced bits are */
    uint32_t world_inverse;        /* par_inverse(world) */
    uint32_t team, teams;          /* workers per team, one team per peer; see par_my_team() */
    uint32_t team_inverse;         /* par_inverse(team); 0 if team is 1 */
} par_call;

/* Geometry of one algorithm's boxes, flags and bookkeeping for one rank. */
typedef struct {
    uint32_t lanes;       /* lanes it has room for */
    uint32_t lane_vecs;   /* sentinel: most vecs of one lane; chunked: most vecs of one tile */
    uint32_t lane_words, slot_words, sender_words, gather_words;
    uint32_t part_words, tag_words; /* tagged; as in par_call */
    uint64_t box_bytes;   /* multiple of 128 */
    uint64_t flag_bytes;  /* 0 for the sentinel algorithms */
    uint64_t max_bytes;   /* largest message; UINT64_MAX: no limit */
} par_geometry;

/* How a call is cut. A pure function of its arguments, so all ranks agree. */
typedef struct {
    int algorithm; /* may differ from what was asked: a two-shot of fewer vecs than ranks becomes a one-shot */
    uint32_t lanes, workers, tile, share, longer; /* as in par_call */
} par_plan;

/* n * inverse >> 32 is n / divisor, for divisors from 2 and n * divisor < 2^32: no division on the GPU. */
static inline uint32_t par_inverse(uint32_t divisor) { return (uint32_t)((0x100000000ull + divisor - 1) / divisor); }

/* Which family an algorithm belongs to. */
int par_is_chunked(int algorithm);
int par_is_two_shot(int algorithm);
int par_is_tagged(int algorithm);

/*
 * Most lanes of a call by each of `sharing` ranks on a GPU of so many multiprocessors that hold `blocks` blocks each. A
 * lane that waits for a place would keep its peers waiting, so all must fit; and some place stays free. Two
 * communicators may have a call under way at the same time, in one order on this rank and in the other on that: then
 * each fills a GPU that the other one waits for. Lanes are placed in order, and a lane needs nothing but the same lane
 * of its peers, so what finds the place that is left ends, and makes place for the next. Not so on a GPU that ranks
 * share: one of them may take the place that others of the same call need, too.
 */
uint32_t par_room(int blocks, int processors, int sharing);

/* Geometry for an algorithm and world size; lanes <= PAR_LANES, sentinel_bytes and tile_bytes as configured (0: the
 * library's). Small values make small boxes, for the emulator. */
void par_geometry_init(par_geometry *out, int algorithm, int world, uint32_t lanes, uint64_t sentinel_bytes,
                       uint32_t tile_bytes);

/* Cut a message of `bytes`; 0 in lanes, workers, tile_bytes: by the rule. The result fits the geometries (indexed by
 * algorithm). Returns PAR_ERR_UNSUPPORTED if the message is too large. */
int par_plan_init(par_plan *out, const par_geometry *geometry, int algorithm, int world, uint64_t bytes,
                  uint32_t lanes, uint32_t workers, uint32_t tile_bytes);

/* Fill what follows from an algorithm's boxes, rank and world: where words go and come from. Once per communicator. */
void par_call_routes(par_call *call, const par_geometry *geometry, int algorithm);

/* Fill what follows from geometry, plan and call->world (strides, lanes, workers, tile, algorithm). */
void par_call_plan(par_call *call, const par_geometry *geometry, const par_plan *plan);

/* Fill the message in. Other pointers, rank, world and limits are the caller's. */
void par_call_message(par_call *call, const void *in, void *out, uint64_t bytes);

#ifdef __cplusplus
}
#endif
#endif
