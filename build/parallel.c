#include "build/parallel.h"
#include "base/err.h"

#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { THREADS_MAX = 64 };

struct shared {
    sp_job *job;
    void *context;
    size_t count, next, failed; /* failed: index of the first error, count without one */
    int rc;
    char *message, *hint; /* messages are a thread's own: this one is handed over */
    pthread_mutex_t lock;
};

/* count when there is nothing left to do. */
static size_t take(struct shared *shared)
{
    size_t index;

    pthread_mutex_lock(&shared->lock);
    index = shared->rc < 0 ? shared->count : shared->next;
    if (index < shared->count)
        shared->next++;
    pthread_mutex_unlock(&shared->lock);
    return index;
}

static void fail(struct shared *shared, size_t index, int rc)
{
    pthread_mutex_lock(&shared->lock);
    if (index < shared->failed) {
        free(shared->message);
        free(shared->hint);
        shared->failed = index;
        shared->rc = rc;
        shared->message = strdup(sp_err_message());
        shared->hint = strdup(sp_err_hint_text());
    }
    pthread_mutex_unlock(&shared->lock);
}

static void *work(void *argument)
{
    struct shared *shared = argument;

    for (size_t index; (index = take(shared)) < shared->count;) {
        int rc = shared->job(shared->context, index);

        if (rc < 0)
            fail(shared, index, rc);
    }
    return NULL;
}

static size_t cpus(void)
{
    cpu_set_t set;
    int count = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;

    return count > 0 ? (size_t)count : 1;
}

int sp_parallel(sp_job *job, void *context, size_t count, size_t limit)
{
    struct shared shared = {
        .job = job, .context = context, .count = count, .failed = count, .lock = PTHREAD_MUTEX_INITIALIZER};
    pthread_t thread[THREADS_MAX];
    size_t wanted = cpus(), started = 0;

    wanted = wanted < limit ? wanted : limit;
    wanted = wanted < count ? wanted : count;
    while (started + 1 < wanted && started < THREADS_MAX && pthread_create(&thread[started], NULL, work, &shared) == 0)
        started++;
    (void)work(&shared); /* this thread is one of them, and the only one where no other could be had */
    for (size_t i = 0; i < started; i++)
        pthread_join(thread[i], NULL);
    if (shared.rc < 0) {
        sp_err(shared.rc, "%s", shared.message ? shared.message : "out of memory");
        sp_err_hint(shared.rc, "%s", shared.hint ? shared.hint : "");
    }
    free(shared.message);
    free(shared.hint);
    return shared.rc;
}
