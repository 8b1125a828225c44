/* memory.c: see memory.h. */
#include "memory.h"

#include <stdlib.h>
#include <string.h>

enum {
    GAP = 64,            /* between the stamps of two writes, for writes that land between them */
    MAX_PLACES = 16384,
    MAX_STAMP = 0xffff - GAP
};

typedef struct {
    emu_stamp *floor;             /* by place */
    uint32_t published;           /* view at the last fence */
    uint32_t fresh;               /* floors have not risen since */
    uint32_t pending[EMU_PENDING]; /* views of writes read since the last fence */
    uint32_t n_pending;
} thread_state;

typedef struct { uint32_t at, n; } view; /* n stamps at an offset in `pool`; places behind have floor 0 */

static struct {
    uint16_t *place_of; /* by word of the arena; 0: none yet */
    emu_place *place;   /* from 1 */
    uint32_t n_places, words, without;
    thread_state thread[EMU_THREADS];
    view *views; /* from 1 */
    uint32_t n_views, room_views;
    emu_stamp *pool;
    size_t used, room;
} M;

/* Values that words of the arena start with; the engine's. */
extern void emu_describe(uint32_t word, uint32_t *value, emu_place *place);

static void *grown(void *old, size_t bytes)
{
    void *p = realloc(old, bytes);
    if (!p)
        abort();
    return p;
}

static int allocate(void)
{
    int bad = 0;
    M.place = calloc(MAX_PLACES + 1, sizeof *M.place);
    bad |= !M.place;
    for (int t = 0; t < EMU_THREADS; t++) {
        M.thread[t].floor = calloc(MAX_PLACES + 1, sizeof(emu_stamp));
        bad |= !M.thread[t].floor;
    }
    return bad ? -1 : 0;
}

int mem_reset(uint32_t words, uint32_t without)
{
    int bad = 0;
    if (!M.place)
        bad = allocate();
    for (uint32_t i = 1; i <= M.n_places; i++)
        M.place_of[M.place[i].word] = 0;
    for (int t = 0; t < EMU_THREADS && !bad; t++) {
        memset(M.thread[t].floor, 0, (M.n_places + 1) * sizeof(emu_stamp));
        M.thread[t].published = M.thread[t].n_pending = M.thread[t].fresh = 0;
    }
    if (words > M.words) {
        M.place_of = grown(M.place_of, words * sizeof *M.place_of);
        memset(M.place_of, 0, words * sizeof *M.place_of);
        M.words = words;
    }
    M.without = without;
    M.n_places = M.n_views = 0;
    M.used = 0;
    return bad;
}

void mem_free(void)
{
    for (int t = 0; t < EMU_THREADS; t++)
        free(M.thread[t].floor);
    free(M.place_of);
    free(M.place);
    free(M.views);
    free(M.pool);
    memset(&M, 0, sizeof M);
}

static emu_place *create(uint32_t word)
{
    emu_place *p;
    uint32_t value = 0;
    if (M.n_places == MAX_PLACES)
        abort();
    p = &M.place[++M.n_places];
    memset(p, 0, sizeof *p);
    p->word = word;
    emu_describe(word, &value, p);
    p->n = 1;
    p->kept[0] = (emu_write){value, 0, GAP, EMU_NOBODY};
    M.place_of[word] = (uint16_t)M.n_places;
    return p;
}

emu_place *mem_place(uint32_t word)
{
    uint32_t i = M.place_of[word];
    return i ? &M.place[i] : create(word);
}

const emu_place *mem_known(uint32_t word)
{
    return M.place_of[word] ? &M.place[M.place_of[word]] : 0;
}

uint32_t mem_index(const emu_place *place)
{
    return (uint32_t)(place - M.place);
}

/* --- views -------------------------------------------------------------------------------------------------------- */

static void raise_to(emu_stamp *restrict floor, const emu_stamp *restrict other, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        floor[i] = floor[i] > other[i] ? floor[i] : other[i];
}

static uint32_t view_new(uint32_t n)
{
    if (M.used + n > M.room) {
        M.room = 2 * (M.used + n) + 65536;
        M.pool = grown(M.pool, M.room * sizeof *M.pool);
    }
    if (M.n_views + 1 >= M.room_views) {
        M.room_views = 2 * M.room_views + 256;
        M.views = grown(M.views, M.room_views * sizeof *M.views);
    }
    M.views[++M.n_views] = (view){(uint32_t)M.used, n};
    M.used += n;
    return M.n_views;
}

/* What a thread knows, as a view. */
static uint32_t snapshot(const thread_state *t)
{
    uint32_t n = M.n_places + 1, id = view_new(n);
    memcpy(M.pool + M.views[id].at, t->floor, n * sizeof *M.pool);
    return id;
}

static uint32_t joined(uint32_t a, uint32_t b)
{
    uint32_t id = a ? a : b, n;
    if (a && b && a != b) {
        n = M.views[a].n > M.views[b].n ? M.views[a].n : M.views[b].n;
        id = view_new(n);
        memset(M.pool + M.views[id].at, 0, n * sizeof *M.pool);
        raise_to(M.pool + M.views[id].at, M.pool + M.views[a].at, M.views[a].n);
        raise_to(M.pool + M.views[id].at, M.pool + M.views[b].at, M.views[b].n);
    }
    return id;
}

static void learn(thread_state *t, uint32_t id)
{
    raise_to(t->floor, M.pool + M.views[id].at, M.views[id].n);
    t->fresh = 0;
}

static void learn_pending(thread_state *t)
{
    for (uint32_t i = 0; i < t->n_pending; i++)
        learn(t, t->pending[i]);
    t->n_pending = 0;
}

/* Keep a view for the next fence. */
static void put_off(thread_state *t, uint32_t id)
{
    uint32_t i = 0;
    while (i < t->n_pending && t->pending[i] != id)
        i++;
    if (i == EMU_PENDING) {
        t->pending[0] = joined(t->pending[0], t->pending[--t->n_pending]);
        i = t->n_pending;
    }
    if (i == t->n_pending)
        t->pending[t->n_pending++] = id;
}

/* --- accesses ----------------------------------------------------------------------------------------------------- */

/* Kept writes with a stamp of at least `floor`. */
static uint32_t at_or_above(const emu_place *place, uint32_t floor)
{
    uint32_t n = place->n;
    while (n > 0 && place->kept[n - 1].stamp >= floor)
        n--;
    return place->n - n;
}

uint32_t mem_read_ages(int thread, const emu_place *place)
{
    return at_or_above(place, M.thread[thread].floor[mem_index(place)]);
}

uint32_t mem_write_ages(int thread, const emu_place *place)
{
    return at_or_above(place, M.thread[thread].floor[mem_index(place)] + 1u) + 1;
}

emu_write mem_read(int thread, emu_place *place, uint32_t age, int acquire, int *again)
{
    thread_state *t = &M.thread[thread];
    emu_stamp *floor = &t->floor[mem_index(place)];
    const emu_write w = place->kept[place->n - 1 - age];
    *again = *floor == w.stamp;
    if (!*again) {
        *floor = w.stamp;
        t->fresh = 0;
    }
    if (w.published && acquire)
        learn(t, w.published);
    else if (w.published)
        put_off(t, w.published);
    return w;
}

/* Stamp for a write that goes before the newest `age`; 0: there is no room. */
static uint32_t stamp_between(const emu_place *place, uint32_t age)
{
    uint32_t below = place->kept[place->n - 1 - age].stamp, above;
    if (age == 0)
        return below + GAP;
    above = place->kept[place->n - age].stamp;
    return above - below > 1 ? (below + above) / 2 : 0;
}

void mem_write(int thread, emu_place *place, uint32_t age, uint32_t value)
{
    thread_state *t = &M.thread[thread];
    emu_stamp *floor = &t->floor[mem_index(place)];
    uint32_t at, stamp;
    if (age >= place->n) /* before everything that is kept: as good as never seen, but for its own thread */
        age = place->n - 1;
    stamp = stamp_between(place, age);
    if (stamp == 0 || stamp <= *floor) {
        age = 0;
        stamp = stamp_between(place, 0);
    }
    if (stamp > MAX_STAMP)
        abort();
    if (place->n == EMU_KEPT) {
        memmove(place->kept, place->kept + 1, (EMU_KEPT - 1) * sizeof place->kept[0]);
        place->n--;
    }
    at = place->n - age;
    memmove(place->kept + at + 1, place->kept + at, age * sizeof place->kept[0]);
    place->kept[at] = (emu_write){value, t->published, (emu_stamp)stamp, (uint16_t)thread};
    place->n++;
    *floor = (emu_stamp)stamp;
    t->fresh = 0;
}

uint32_t mem_exchange(int thread, emu_place *place, uint32_t value)
{
    int again;
    emu_write old = mem_read(thread, place, 0, 0, &again);
    mem_write(thread, place, 0, value);
    return old.value;
}

/* --- order -------------------------------------------------------------------------------------------------------- */

void mem_fence(int thread)
{
    thread_state *t = &M.thread[thread];
    learn_pending(t);
    if (!t->fresh) {
        t->published = snapshot(t);
        t->fresh = 1;
    }
}

int mem_is_performed(const emu_place *place)
{
    const emu_write *w = mem_newest(place);
    const uint32_t i = mem_index(place);
    uint32_t id = w->by < EMU_THREADS ? M.thread[w->by].published : 0;
    return id && i < M.views[id].n && M.pool[M.views[id].at + i] >= w->stamp;
}

void mem_barrier(int first, int n)
{
    emu_stamp *all = M.thread[first].floor;
    uint32_t places = M.n_places + 1;
    for (int i = 1; i < n; i++)
        raise_to(all, M.thread[first + i].floor, places);
    for (int i = 1; i < n; i++)
        memcpy(M.thread[first + i].floor, all, places * sizeof *all);
    for (int i = 0; i < n; i++)
        M.thread[first + i].fresh = 0;
}

uint32_t mem_tell(int thread)
{
    return snapshot(&M.thread[thread]);
}

void mem_learn(int thread, uint32_t told)
{
    learn(&M.thread[thread], told);
}

void mem_end(int thread, int sum)
{
    thread_state *t = &M.thread[thread], *s = &M.thread[sum];
    if (!(M.without & EMU_WITHOUT_A7))
        learn_pending(t);
    raise_to(s->floor, t->floor, M.n_places + 1);
    s->published = joined(s->published, t->published);
}

void mem_begin(int thread, int from)
{
    thread_state *t = &M.thread[thread];
    t->n_pending = t->fresh = 0;
    t->published = 0;
    if (from >= 0) {
        memcpy(t->floor, M.thread[from].floor, (M.n_places + 1) * sizeof *t->floor);
        t->published = M.without & EMU_WITHOUT_A15 ? 0 : M.thread[from].published;
    }
}
