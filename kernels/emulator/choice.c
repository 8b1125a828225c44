/* choice.c: see choice.h. */
#include "choice.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FIBRES = 64 };

/* How a random run behaves; chances are of 256. */
typedef struct {
    uint32_t switch_chance; /* to leave a fibre that could go on */
    uint32_t stale_chance;  /* to read an old write */
    uint32_t behind_chance; /* to let a write land before writes that are there */
    uint32_t oldest;        /* the oldest, rather than any */
    uint32_t whole;         /* the words of 16 bytes travel together */
    uint32_t by_priority;   /* the fibre of highest priority goes on, and priorities change now and then */
    uint32_t change_chance; /* of 4096, for that */
    uint64_t starved;       /* fibres that go on only when nobody else can */
    int slow_from, slow_to; /* ranks: a link whose writes are seen as late as possible; -1: none, to 8: all */
    uint8_t rank[FIBRES];   /* place in the order of priority */
} strategy;

static struct {
    emu_mode mode;
    uint64_t random;
    strategy s;
    const emu_list *given;
    size_t next_of[FIBRES]; /* replay: first deviation of a fibre that is not behind it yet */
    size_t used;            /* explore: deviations met */
    emu_list *log;
    int ranks, per_rank;
    char text[200];
} C;

/* --- lists -------------------------------------------------------------------------------------------------------- */

void list_add(emu_list *list, emu_deviation d)
{
    if (list->n == list->room) {
        list->room = list->room ? 2 * list->room : 64;
        list->at = realloc(list->at, list->room * sizeof *list->at);
        if (!list->at)
            abort();
    }
    list->at[list->n++] = d;
}

void list_free(emu_list *list)
{
    free(list->at);
    memset(list, 0, sizeof *list);
}

/* --- random ------------------------------------------------------------------------------------------------------- */

uint64_t choice_random(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u; /* splitmix64 */
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

static uint32_t draw(void)
{
    return (uint32_t)(choice_random(&C.random) >> 32);
}

static uint32_t below(uint32_t n)
{
    return (uint32_t)((uint64_t)draw() * n >> 32);
}

static int chance(uint32_t of_256)
{
    return of_256 && (draw() & 255u) < of_256;
}

static void shuffle_priorities(strategy *s)
{
    for (uint32_t i = 0; i < FIBRES; i++)
        s->rank[i] = (uint8_t)i;
    for (uint32_t i = FIBRES - 1; i > 0; i--) {
        uint32_t j = below(i + 1);
        uint8_t swap = s->rank[i];
        s->rank[i] = s->rank[j];
        s->rank[j] = swap;
    }
}

static uint64_t fibres_of(int rank)
{
    uint64_t all = C.per_rank == FIBRES ? ~0ull : (1ull << C.per_rank) - 1;
    return all << rank * C.per_rank;
}

static void draw_strategy(strategy *s)
{
    static const uint32_t switches[] = {256, 96, 32, 8, 2}, stale[] = {0, 0, 32, 128, 224}, behind[] = {0, 64, 192};
    s->switch_chance = switches[below(5)];
    s->stale_chance = stale[below(5)];
    s->behind_chance = behind[below(3)];
    s->oldest = below(2);
    s->whole = below(3) == 0;
    s->by_priority = below(3) == 0;
    s->change_chance = 1u << below(8);
    s->starved = below(3) == 0 ? fibres_of((int)below((uint32_t)C.ranks)) : 0;
    s->slow_from = below(3) == 0 ? (int)below((uint32_t)C.ranks) : -1;
    s->slow_to = (int)below((uint32_t)C.ranks + 1);
    if (s->by_priority)
        shuffle_priorities(s);
}

const char *choice_text(void)
{
    const strategy *s = &C.s;
    snprintf(C.text, sizeof C.text,
             "switch %u/256, stale %u/256%s, behind %u/256, words %s, %s, %s, slow link %d to %d", s->switch_chance,
             s->stale_chance, s->oldest ? " (oldest)" : "", s->behind_chance, s->whole ? "together" : "apart",
             s->by_priority ? "by priority" : "at random", s->starved ? "a rank starves" : "no rank starves",
             s->slow_from, s->slow_to);
    return C.text;
}

/* --- replay ------------------------------------------------------------------------------------------------------- */

/* The deviation for this decision, or null. */
static const emu_deviation *given(const emu_turn *turn, emu_kind kind)
{
    const emu_deviation *found = 0;
    size_t i = C.next_of[turn->fibre];
    while (i < C.given->n &&
           (C.given->at[i].fibre != turn->fibre || C.given->at[i].op < turn->op))
        i++;
    C.next_of[turn->fibre] = i;
    for (; i < C.given->n && !found && (C.given->at[i].fibre != turn->fibre || C.given->at[i].op == turn->op); i++)
        if (C.given->at[i].fibre == turn->fibre && C.given->at[i].kind == kind)
            found = &C.given->at[i];
    C.used += found != 0;
    return found;
}

void choice_begin(emu_mode mode, uint64_t seed, const emu_list *list, emu_list *log, int ranks, int per_rank)
{
    static const emu_list none = {0, 0, 0};
    C.mode = mode;
    C.random = seed;
    C.given = list ? list : &none;
    C.log = log;
    C.ranks = ranks;
    C.per_rank = per_rank;
    C.used = 0;
    memset(C.next_of, 0, sizeof C.next_of);
    memset(&C.s, 0, sizeof C.s);
    if (mode == EMU_RANDOM)
        draw_strategy(&C.s);
}

static void note(const emu_turn *turn, emu_kind kind, uint32_t value)
{
    list_add(C.log, (emu_deviation){turn->op, (uint16_t)turn->fibre, (uint16_t)kind, value});
}

/* Explore: only what comes after the given deviations is open. */
static int is_open(void)
{
    return C.mode == EMU_EXPLORE && C.log && C.used == C.given->n;
}

/* --- which fibre -------------------------------------------------------------------------------------------------- */

/* The first of a set at or after `from`, cyclic. */
static int at_or_after(uint64_t set, uint32_t from)
{
    uint64_t high = from < 64 ? set & ~0ull << from : 0;
    return __builtin_ctzll(high ? high : set);
}

static int harmless(const emu_turn *turn)
{
    int stay = turn->active >> turn->fibre & 1u;
    return stay ? turn->fibre : at_or_after(turn->active, (uint32_t)turn->fibre + 1);
}

static int first_by_priority(uint64_t set)
{
    int i = 0;
    while (!(set >> C.s.rank[i] & 1u))
        i++;
    return C.s.rank[i];
}

static int at_random(const emu_turn *turn)
{
    uint64_t set = turn->active & ~C.s.starved;
    int stay, next = turn->fibre;
    if (!set)
        set = turn->active;
    stay = set >> next & 1u;
    if (C.s.by_priority) {
        if ((draw() & 4095u) < C.s.change_chance)
            shuffle_priorities(&C.s);
        next = first_by_priority(set);
    } else if (!stay || chance(C.s.switch_chance)) {
        next = at_or_after(set, below((uint32_t)(C.ranks * C.per_rank)));
    }
    return next;
}

static void note_others(const emu_turn *turn, int next)
{
    for (uint64_t set = turn->active & ~(1ull << next); set; set &= set - 1)
        note(turn, EMU_SWITCH, (uint32_t)__builtin_ctzll(set));
}

int choice_next(const emu_turn *turn)
{
    int next = harmless(turn);
    if (C.mode == EMU_RANDOM) {
        int other = at_random(turn);
        if (C.log && other != next)
            note(turn, EMU_SWITCH, (uint32_t)other);
        next = other;
    } else {
        int open = is_open();
        const emu_deviation *d = C.used < C.given->n ? given(turn, EMU_SWITCH) : 0;
        if (d && d->value < FIBRES && (turn->ready >> d->value & 1u))
            next = (int)d->value;
        if (open && turn->others_see)
            note_others(turn, next);
    }
    return next;
}

/* --- which age ---------------------------------------------------------------------------------------------------- */

/* Whether a write came over the slow link: from its rank, into the home of the place. */
static int is_slow(const emu_place *place)
{
    int by = mem_newest(place)->by;
    return C.s.slow_from >= 0 && by < C.ranks * C.per_rank && by / C.per_rank == C.s.slow_from &&
           (C.s.slow_to == C.ranks || place->home == C.s.slow_to);
}

static uint32_t random_age(uint32_t count)
{
    return C.s.oldest ? count - 1 : below(count);
}

static uint32_t random_ages(int n, const uint32_t *count, emu_place *const *place, int write)
{
    const uint32_t odds = write ? C.s.behind_chance : C.s.stale_chance;
    uint32_t ages = 0, one = 0;
    int all = C.s.whole && chance(odds);
    for (int i = 0; i < n; i++) {
        if (count[i] > 1 && !write && is_slow(place[i]))
            one = count[i] - 1;
        else if (count[i] > 1 && (C.s.whole ? all : chance(odds)))
            one = C.s.whole ? count[i] - 1 : random_age(count[i]);
        else
            one = 0;
        ages |= one << 8 * i;
    }
    return ages;
}

/* Every combination of ages but the harmless one. */
static void note_ages(const emu_turn *turn, int n, const uint32_t *count)
{
    uint32_t age[4] = {0, 0, 0, 0};
    int i = 0;
    while (i < n) {
        for (i = 0; i < n && ++age[i] == count[i]; i++)
            age[i] = 0;
        if (i < n)
            note(turn, EMU_AGE, age[0] | age[1] << 8 | age[2] << 16 | age[3] << 24);
    }
}

static uint32_t clamped(uint32_t ages, int n, const uint32_t *count)
{
    uint32_t result = 0;
    for (int i = 0; i < n; i++) {
        uint32_t one = ages >> 8 * i & 0xffu;
        result |= (one < count[i] ? one : count[i] - 1) << 8 * i;
    }
    return result;
}

uint32_t choice_ages(const emu_turn *turn, int n, const uint32_t *count, emu_place *const *place, int write, int calm)
{
    uint32_t ages = 0;
    if (C.mode == EMU_RANDOM) {
        if (!calm)
            ages = random_ages(n, count, place, write);
        if (C.log && ages)
            note(turn, EMU_AGE, ages);
    } else {
        int open = is_open();
        const emu_deviation *d = C.used < C.given->n ? given(turn, EMU_AGE) : 0;
        if (d)
            ages = clamped(d->value, n, count);
        if (open && !calm)
            note_ages(turn, n, count);
    }
    return ages;
}
