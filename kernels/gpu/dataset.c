#include "dataset.h"

#include "pattern.h"
#include "reference.h"

#include <pthread.h>
#include <string.h>
#include <unistd.h>

enum { WORKERS_MAX = 64 };

/* A thread's piece of the index range. */
typedef struct {
    dataset *d;
    uint64_t seed;
    size_t first, n;
    pthread_t thread;
    int running;
} piece;

static void *fill(void *argument)
{
    piece *p = argument;
    dataset *d = p->d;
    int i;

    for (i = 0; i < d->ranks; i++)
        pattern_fill(d->input[i], p->seed, i, d->dtype, p->first, p->n);
    for (i = 2; i <= PAR_MAX_WORLD; i++)
        if (d->expected[i] != NULL)
            reference_sum(d->expected[i], (const void *const *)d->input, i, d->dtype, p->first, p->n);
    return NULL;
}

static void fill_all(dataset *d, uint64_t seed)
{
    piece pieces[WORKERS_MAX];
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    size_t n = cores < 1 ? 1 : cores > WORKERS_MAX ? WORKERS_MAX : (size_t)cores, i, done = 0;

    for (i = 0; i < n; i++) {
        size_t end = d->count / n * (i + 1) + (i + 1 == n ? d->count % n : 0);
        pieces[i] = (piece){d, seed, done, end - done, 0, 0};
        done = end;
        pieces[i].running = pthread_create(&pieces[i].thread, NULL, fill, &pieces[i]) == 0;
        if (!pieces[i].running)
            fill(&pieces[i]);
    }
    for (i = 0; i < n; i++)
        if (pieces[i].running)
            pthread_join(pieces[i].thread, NULL);
}

int dataset_init(dataset *d, int dtype, size_t bytes, int world, unsigned worlds, uint64_t seed)
{
    int i, short_of_memory = 0;

    memset(d, 0, sizeof(*d));
    d->dtype = dtype;
    d->ranks = world;
    d->count = bytes / par_dtype_size(dtype);
    d->bytes = d->count * par_dtype_size(dtype);
    for (i = 0; i < world; i++)
        short_of_memory |= (d->input[i] = shared_alloc(d->bytes)) == NULL;
    for (i = 2; i <= world; i++)
        if (worlds >> i & 1u)
            short_of_memory |= (d->expected[i] = shared_alloc(d->bytes)) == NULL;
    if (short_of_memory)
        return rank_fail(CODE_CANNOT, "no memory for test data of %zu bytes per rank; try --max-bytes", bytes);
    fill_all(d, seed + (uint64_t)dtype);
    return CODE_OK;
}

void dataset_free(dataset *d)
{
    int i;

    for (i = 0; i <= PAR_MAX_WORLD; i++) {
        shared_free(d->expected[i], d->bytes);
        if (i < PAR_MAX_WORLD)
            shared_free(d->input[i], d->bytes);
    }
    memset(d, 0, sizeof(*d));
}
