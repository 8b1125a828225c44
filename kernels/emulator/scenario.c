/* scenario.c: see scenario.h. */
#include "scenario.h"

#include <stdio.h>
#include <string.h>

#include "engine.h"

uint32_t run_without;

static uint32_t pick(uint64_t *random, uint32_t low, uint32_t high)
{
    return low + (uint32_t)(choice_random(random) >> 33) % (high - low + 1);
}

static void draw_call(run_scenario *s, run_call *k, uint64_t *random)
{
    const uint32_t two = (uint32_t)par_is_two_shot(s->algorithm), chunked = (uint32_t)par_is_chunked(s->algorithm);
    const uint32_t size = (uint32_t)par_dtype_size(s->dtype), least = two && !chunked ? (uint32_t)s->world : 1;
    uint32_t vecs, threads = (uint32_t)EMU_FIBRES / (uint32_t)s->world;
    k->algorithm = s->algorithm;
    k->lanes = pick(random, 1, s->room_lanes);
    k->tile_bytes = 16 * pick(random, 1, s->room_vecs);
    vecs = chunked ? pick(random, 1, 3 * k->tile_bytes / 16 + 1) : pick(random, least, s->room_vecs * s->room_lanes);
    if (pick(random, 0, 7) == 0) /* a two-shot that is too small becomes a one-shot */
        vecs = 1;
    k->bytes = 16 * vecs - (pick(random, 0, 3) == 0 ? size * pick(random, 0, 16 / size - 1) : 0);
    k->workers = pick(random, 1, threads / s->room_lanes > 5 ? 4 : threads / s->room_lanes - 1);
    if (pick(random, 0, 1))
        k->workers = 1;
    k->idle = s->room_lanes * (k->workers + 2) <= threads && pick(random, 0, 3) == 0;
    k->in_place = pick(random, 0, 1);
    k->shift = pick(random, 0, 7) == 0 ? pick(random, 1, 16 / size - 1) : 0;
}

void run_draw(run_scenario *s, const emu_subject *subject, int algorithm, int world, uint64_t seed, int faults)
{
    static const uint32_t epochs[] = {0, 0, 0, 0xfffffffdu, 0xfffffffbu, 0x7ffffffcu};
    uint64_t random = seed ^ 0x5ca1ab1e;
    const uint32_t two = (uint32_t)par_is_two_shot(algorithm), chunked = (uint32_t)par_is_chunked(algorithm);
    memset(s, 0, sizeof *s);
    s->seed = seed;
    s->without = run_without;
    s->subject = subject;
    s->algorithm = algorithm;
    s->world = world;
    s->dtype = (int)pick(&random, 0, 2);
    s->room_lanes = pick(&random, 1, 2);
    s->room_vecs = two ? (chunked ? pick(&random, 1, (uint32_t)world + 1) : (uint32_t)world + pick(&random, 0, 1))
                       : pick(&random, 1, par_is_tagged(algorithm) ? 5 : 3); /* tagged: 3 leave before the first wait */
    s->n_calls = chunked ? pick(&random, 2, 4) : pick(&random, 4, 7);
    if (par_is_tagged(algorithm)) /* a slot is used three times, or the last use but one would not show */
        s->n_calls += pick(&random, 2, 7);
    s->epoch = epochs[pick(&random, 0, 5)];
    s->special = pick(&random, 0, 1) * 32;
    for (uint32_t i = 0; i < s->n_calls; i++) {
        draw_call(s, &s->call[i], &random);
        if (i > 0 && par_is_tagged(algorithm) && pick(&random, 0, 1))
            s->call[i] = s->call[i - 1]; /* sizes that stay are what tags are for */
    }
    s->fault = faults ? (run_fault)pick(&random, RUN_LATE, RUN_ABORT) : RUN_PLAIN;
    s->fault_rank = (int)pick(&random, 0, (uint32_t)world - 1);
    s->fault_by = (s->fault_rank + 1) % world;
    s->fault_call = pick(&random, 0, s->n_calls - 1);
    s->fault_op = pick(&random, 1, 400);
    s->delay = pick(&random, 0, 7) == 0 && s->fault != RUN_LATE ? pick(&random, 1, 30) : 0;
    s->trap = faults && pick(&random, 0, 3) == 0;
}

void run_small(run_scenario *s, const emu_subject *subject, int algorithm, int world)
{
    const uint32_t vecs = par_is_two_shot(algorithm) ? (uint32_t)world : 1, tiles = par_is_chunked(algorithm) ? 2 : 1;
    memset(s, 0, sizeof *s);
    s->seed = 1;
    s->subject = subject;
    s->algorithm = algorithm;
    s->world = world;
    s->dtype = PAR_FP32;
    s->room_lanes = 1;
    s->room_vecs = vecs;
    s->n_calls = par_is_chunked(algorithm) ? 3 : par_is_tagged(algorithm) ? 10 : 6;
    for (uint32_t i = 0; i < s->n_calls; i++)
        s->call[i] = (run_call){algorithm, 16 * vecs * tiles, 1, 1, 16 * vecs, 0, 0, 0};
}

const char *run_fault_name(run_fault fault)
{
    static const char *const names[] = {"nothing goes wrong", "a rank is late", "a rank is lost",
                                        "a rank is lost and a host notices", "a host aborts"};
    return names[fault];
}

void run_print(const run_scenario *s)
{
    printf("%s, %s, world %d, %s, seed %llu: %u calls from epoch %u; %s", s->subject->name,
           par_algorithm_name(s->algorithm), s->world, par_dtype_name(s->dtype), (unsigned long long)s->seed,
           s->n_calls, s->epoch, run_fault_name(s->fault));
    if (s->fault == RUN_LATE)
        printf(" (rank %d, call %u)", s->fault_rank, s->fault_call);
    else if (s->fault != RUN_PLAIN)
        printf(" (rank %d, at its operation %u)", s->fault_rank, s->fault_op);
    if (s->delay)
        printf("; rank %d dawdles for %u ns", s->fault_rank, s->delay);
    printf("%s\n", s->trap ? ", engine mode" : "");
    for (uint32_t i = 0; i < s->n_calls; i++) {
        const run_call *k = &s->call[i];
        printf("  call %u: %-22s %4u bytes, lanes %u, workers %u, idle %u, tile %u bytes%s%s\n", i,
               par_algorithm_name(k->algorithm), k->bytes, k->lanes, k->workers, k->idle, k->tile_bytes,
               k->in_place ? ", in place" : "", k->shift ? ", not aligned" : "");
    }
}
