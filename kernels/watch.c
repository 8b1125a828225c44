/*
 * watch.c: failure. A thread per communicator watches the peers' processes and the notes that waiting kernels leave in
 * host memory; reports are put together from both.
 *
 * A peer's process has two witnesses: its watcher's word (life.h), which ends first of all, and its pidfd, which comes
 * last but everywhere. A thread waits for one word only, that of the next rank which is still there; who is woken looks
 * at all of them and wakes the others.
 */
#include "comm.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "error.h"
#include "life.h"

#define ABORT_WORD(error, peer) ((uint32_t)-(error) | ((uint32_t)(peer) + 1u) << 8)

enum { TICK_MS = 100, ECHO_MS = 2 };

static uint32_t load(const uint32_t *p)
{
    return __atomic_load_n(p, __ATOMIC_ACQUIRE);
}

static void store(uint32_t *p, uint32_t v)
{
    __atomic_store_n(p, v, __ATOMIC_RELEASE);
}

void par_log(const struct par_comm *comm, const char *format, ...)
{
    char line[512];
    const size_t room = sizeof line - 1; /* the last is for the end of the line */
    va_list arguments;
    int used = snprintf(line, room, "sgl-pcie: rank %d of %d: ", comm->rank, comm->world);
    va_start(arguments, format);
    vsnprintf(line + used, room - (size_t)used, format, arguments);
    va_end(arguments);
    if (comm->options.log)
        comm->options.log(comm->options.log_context, line);
    else
        fputs(strcat(line, "\n"), stderr); /* in one piece: other ranks write there, too */
}

uint32_t par_abort_seen(const struct par_comm *comm)
{
    uint32_t word = 0;
    for (int r = 0; r < comm->world && word == 0; r++)
        word = load(&comm->control->abort_word[r]);
    return word;
}

/* Wake the watchers of all ranks. */
static void ring(struct par_comm *comm)
{
    for (int r = 0; r < comm->world; r++)
        par_life_ring(&comm->control->life[r]);
}

void par_abort_for(struct par_comm *comm, int error, int peer, const char *why)
{
    pthread_mutex_lock(&comm->cause_lock);
    if (comm->cause == 0) {
        comm->cause = error;
        comm->cause_peer = peer;
        snprintf(comm->why, sizeof comm->why, "%s", why ? why : "");
        if (load(&comm->control->abort_word[comm->rank]) == 0)
            store(&comm->control->abort_word[comm->rank], ABORT_WORD(error, peer));
        ring(comm);
    }
    pthread_mutex_unlock(&comm->cause_lock);
}

void par_abort(par_comm *comm, const char *why)
{
    if (comm)
        par_abort_for(comm, PAR_ERR_ABORTED, comm->rank, why ? why : "par_abort() was called");
}

int par_status(const par_comm *comm)
{
    return comm && par_abort_seen(comm) == 0 ? PAR_OK : PAR_ERR_ABORTED;
}

/* --- reports ------------------------------------------------------------------------------------------------------ */

static void report_from_note(par_report *out, const uint32_t *note)
{
    out->error = -(int)load(note + PAR_NOTE_ERROR);
    out->peer = (int)load(note + PAR_NOTE_PEER);
    out->algorithm = (int)load(note + PAR_NOTE_ALGORITHM);
    out->phase = (int)load(note + PAR_NOTE_PHASE);
    out->lane = (int)load(note + PAR_NOTE_LANE);
    out->epoch = load(note + PAR_NOTE_EPOCH);
    out->expected = load(note + PAR_NOTE_EXPECTED);
    out->seen = load(note + PAR_NOTE_SEEN);
    out->waited_ns = 1000000ull * load(note + PAR_NOTE_WAITED_MS);
}

static void describe(par_report *out, const char *why)
{
    char what[80], where[120] = "";
    if (out->error == PAR_ERR_TIMEOUT)
        snprintf(what, sizeof what, "rank %d did not come", out->peer);
    else if (out->error == PAR_ERR_PEER_DIED)
        snprintf(what, sizeof what, "the process of rank %d is gone", out->peer);
    else if (out->error == PAR_ERR_OVERLAP)
        snprintf(what, sizeof what, "two calls of rank %d ran at the same time", out->peer);
    else
        snprintf(what, sizeof what, "rank %d aborted", out->peer);
    if (out->phase)
        snprintf(where, sizeof where, "; waited %.1f s in %s, phase %d, lane %d, epoch %u, expected %u, seen %#x",
                 1e-9 * (double)out->waited_ns, par_algorithm_name(out->algorithm), out->phase, out->lane, out->epoch,
                 out->expected, out->seen);
    snprintf(out->text, sizeof out->text, "%s%s%s%s", what, *why ? ": " : "", why, where);
}

int par_last_report(const par_comm *comm, par_report *out)
{
    pthread_mutex_t *lock;
    const uint32_t *note;
    uint32_t word;
    if (!comm || !out)
        return par_error(PAR_ERR_ARGUMENT, "comm and out must not be null");
    lock = (pthread_mutex_t *)&comm->cause_lock; /* const is what the caller sees of it */
    pthread_mutex_lock(lock);
    memset(out, 0, sizeof *out);
    note = comm->control->note[comm->rank].failed;
    word = par_abort_seen(comm);
    out->rank = comm->rank;
    out->peer = -1;
    if (load(note + PAR_NOTE_STATE)) {
        report_from_note(out, note);
    } else if (comm->cause) {
        out->error = comm->cause;
        out->peer = comm->cause_peer;
    } else if (word) {
        out->error = -(int)(word & 0xffu);
        out->peer = (int)(word >> 8) - 1;
    }
    if (out->error)
        describe(out, comm->why);
    pthread_mutex_unlock(lock);
    return PAR_OK;
}

/* --- the watcher -------------------------------------------------------------------------------------------------- */

static void log_late(struct par_comm *comm)
{
    uint32_t *note = comm->control->note[comm->rank].late;
    par_report r = {0};
    if (load(note + PAR_NOTE_STATE)) {
        report_from_note(&r, note);
        store(note + PAR_NOTE_STATE, 0);
        par_log(comm, "waiting for rank %d for %.0f s (%s, phase %d, lane %d); giving up after %.0f s", r.peer,
                1e-9 * (double)r.waited_ns, par_algorithm_name(r.algorithm), r.phase, r.lane, comm->options.timeout_s);
    }
}

/* 1 if there was one to be logged. */
static int log_failure(const struct par_comm *comm)
{
    par_report r;
    if (!par_abort_seen(comm))
        return 0;
    par_last_report(comm, &r);
    par_log(comm, "all-reduce aborted: %s", r.text);
    return 1;
}

/* A peer's process has ended, or is about to: a failure unless it had closed before. */
static void peer_ended(struct par_comm *comm, int peer)
{
    char why[64];
    if (load(&comm->control->closing[peer]))
        return;
    snprintf(why, sizeof why, "process %d", (int)comm->pid[peer]);
    par_abort_for(comm, PAR_ERR_PEER_DIED, peer, why);
}

static void open_peers(struct par_comm *comm, struct pollfd *fds)
{
    for (int r = 0; r < comm->world; r++) {
        fds[r].fd = r == comm->rank ? -1 : (int)syscall(SYS_pidfd_open, comm->pid[r], 0);
        fds[r].events = POLLIN;
        fds[r].revents = 0;
        if (r != comm->rank && fds[r].fd < 0 && errno == ESRCH)
            peer_ended(comm, r);
    }
}

static void look_at_peers(struct par_comm *comm, struct pollfd *fds)
{
    int ready = poll(fds, (nfds_t)comm->world, 0);
    for (int r = 0; r < comm->world; r++) {
        int gone = ready > 0 && fds[r].fd >= 0 && fds[r].revents;
        if (r != comm->rank && (gone || par_life_ended(&comm->control->life[r])))
            peer_ended(comm, r);
        if (gone) {
            close(fds[r].fd);
            fds[r].fd = -1;
        }
    }
}

/* The rank whose end this one is to be woken by: the next that is there; itself if there is none. */
static int neighbour(const struct par_comm *comm)
{
    int r = comm->rank;
    do
        r = (r + 1) % comm->world;
    while (r != comm->rank && (load(&comm->control->closing[r]) || par_life_ended(&comm->control->life[r])));
    return r;
}

static void *watch(void *argument)
{
    struct par_comm *comm = argument;
    struct pollfd fds[PAR_MAX_WORLD];
    uint32_t *own = &comm->control->life[comm->rank];
    par_life life;
    int logged = 0, news;
    par_life_hold(&life, own);
    open_peers(comm, fds);
    while (!__atomic_load_n(&comm->stop, __ATOMIC_ACQUIRE)) {
        uint32_t *word = &comm->control->life[neighbour(comm)], seen = load(word);
        look_at_peers(comm, fds);
        log_late(comm);
        news = !logged && log_failure(comm);
        par_life_wait(word, seen, news ? ECHO_MS : TICK_MS);
        if (news) /* once more, for one that was about to sleep when it was rung */
            ring(comm);
        logged |= news;
    }
    if (!logged)
        log_failure(comm);
    for (int r = 0; r < comm->world; r++)
        if (fds[r].fd >= 0)
            close(fds[r].fd);
    par_life_leave(&life, own);
    return NULL;
}

int par_watch_start(struct par_comm *comm)
{
    sigset_t all, before;
    int error;
    if (comm->options.no_watcher || comm->local)
        return PAR_OK;
    comm->stop = 0;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before); /* inherited: signals are for the program's own threads */
    error = pthread_create(&comm->watcher, NULL, watch, comm);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (error)
        return par_error(PAR_ERR_SYSTEM, "cannot start the watcher thread: %s", strerror(error));
    comm->watching = 1;
    return PAR_OK;
}

void par_watch_stop(struct par_comm *comm)
{
    const struct timespec pause = {0, 1000 * 1000};
    __atomic_store_n(&comm->stop, 1, __ATOMIC_RELEASE);
    while (comm->watching && pthread_tryjoin_np(comm->watcher, NULL) == EBUSY) { /* rung before it slept: once more */
        ring(comm);
        nanosleep(&pause, NULL);
    }
    comm->watching = 0;
}
