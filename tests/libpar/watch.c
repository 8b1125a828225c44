/*
 * watch.c: ranks that end. Real processes, each with a watcher on a shared control page as par_create() would give it;
 * what the watchers say, and how long after the kill, they leave in shared memory.
 */
#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "comm.h"
#include "life.h"

enum { WORLD = 4, COMMS = 2, LARGE = 256 << 20, THREADS = 8, PATIENCE_MS = 5000 };

static const double at_once_ms = 50, by_pidfd_ms = 1000;

typedef struct {
    double told_at_ms[COMMS];
    int told; /* lines, of all communicators */
    int status[COMMS];
    par_report report[COMMS];
    char line[COMMS][512]; /* the last */
} account;

/* What the processes of a test share. */
typedef struct {
    par_control control[COMMS];
    pid_t pid[WORLD], seen_as[WORLD]; /* of the process; what the others take it for */
    pid_t heir;
    int go, ready[WORLD], close[WORLD];
    int abort; /* rank 0 is to call par_abort() */
    account of[WORLD];
} stage;

static stage *s;

static double now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return 1e3 * (double)t.tv_sec + 1e-6 * (double)t.tv_nsec;
}

static void pause_ms(int ms)
{
    const struct timespec t = {ms / 1000, ms % 1000 * 1000000L};
    nanosleep(&t, NULL);
}

static int wait_for(const int *word)
{
    double end = now_ms() + PATIENCE_MS;
    while (!__atomic_load_n(word, __ATOMIC_ACQUIRE) && now_ms() < end)
        pause_ms(1);
    return __atomic_load_n(word, __ATOMIC_ACQUIRE);
}

/* --- a rank ------------------------------------------------------------------------------------------------------- */

typedef struct {
    account *account;
    int comm;
} ear;

static void hear(void *context, const char *line)
{
    ear *e = context;
    e->account->told_at_ms[e->comm] = now_ms();
    snprintf(e->account->line[e->comm], sizeof e->account->line[0], "%s", line);
    __atomic_add_fetch(&e->account->told, 1, __ATOMIC_RELEASE);
}

static struct par_comm *open_comm(int rank, int number, ear *e)
{
    struct par_comm *comm = calloc(1, sizeof *comm);
    assert_non_null(comm);
    comm->rank = rank;
    comm->world = WORLD;
    comm->control = &s->control[number];
    comm->options.log = e ? hear : NULL;
    comm->options.log_context = e;
    memcpy(comm->pid, s->seen_as, sizeof s->seen_as);
    pthread_mutex_init(&comm->cause_lock, NULL);
    if (par_watch_start(comm) != PAR_OK || !wait_for((const int *)&comm->control->life[rank]))
        _exit(10);
    return comm;
}

static void close_comm(struct par_comm *comm)
{
    __atomic_store_n(&comm->control->closing[comm->rank], 1, __ATOMIC_RELEASE);
    par_watch_stop(comm);
    pthread_mutex_destroy(&comm->cause_lock);
    free(comm);
}

/* Until its turn to close has come, or until it is killed. */
static void be_rank(int rank, int comms)
{
    struct par_comm *comm[COMMS];
    ear e[COMMS];
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (!wait_for(&s->go))
        _exit(11);
    for (int c = 0; c < comms; c++) {
        e[c] = (ear){&s->of[rank], c};
        comm[c] = open_comm(rank, c, &e[c]);
    }
    __atomic_store_n(&s->ready[rank], 1, __ATOMIC_RELEASE);
    while (!__atomic_load_n(&s->close[rank], __ATOMIC_ACQUIRE)) {
        if (rank == 0 && __atomic_exchange_n(&s->abort, 0, __ATOMIC_ACQ_REL))
            par_abort(comm[0], "for the test");
        pause_ms(1);
    }
    for (int c = 0; c < comms; c++) {
        s->of[rank].status[c] = par_status(comm[c]);
        par_last_report(comm[c], &s->of[rank].report[c]);
        close_comm(comm[c]);
    }
    _exit(0);
}

static void *idle(void *argument)
{
    for (;;)
        pause();
    return argument;
}

/* Much memory and many threads: an end that takes its time. */
static void grow(void)
{
    pthread_t thread;
    char *memory = mmap(NULL, LARGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(memory != MAP_FAILED);
    memset(memory, 1, LARGE);
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&thread, NULL, idle, NULL), 0);
}

static void leave_a_child(void)
{
    pid_t heir = fork();
    if (heir == 0)
        for (;;)
            pause();
    s->heir = heir;
}

/* --- the test ----------------------------------------------------------------------------------------------------- */

static void start(int comms, int victim, void (*burden)(void), pid_t disguise)
{
    memset(s, 0, sizeof *s);
    fflush(NULL);
    for (int r = 0; r < WORLD; r++) {
        pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0) {
            if (burden && r == victim)
                burden();
            be_rank(r, comms);
        }
        s->pid[r] = child;
        s->seen_as[r] = r == victim && disguise ? disguise : s->pid[r];
    }
    __atomic_store_n(&s->go, 1, __ATOMIC_RELEASE);
    for (int r = 0; r < WORLD; r++)
        assert_true(wait_for(&s->ready[r]));
}

static double strike(int victim)
{
    double at = now_ms();
    assert_int_equal(kill(s->pid[victim], SIGKILL), 0);
    return at;
}

/* The rank has said as many lines as it has communicators, which name the victim and its process; 1 if in time. */
static int knows(int rank, int victim, int comms, double struck_at, double limit_ms)
{
    account *a = &s->of[rank];
    char wanted[80];
    int in_time = 1;
    for (double end = now_ms() + PATIENCE_MS; __atomic_load_n(&a->told, __ATOMIC_ACQUIRE) < comms && now_ms() < end;)
        pause_ms(1);
    assert_int_equal(a->told, comms);
    snprintf(wanted, sizeof wanted, "rank %d is gone: process %d", victim, (int)s->seen_as[victim]);
    for (int c = 0; c < comms; c++) {
        if (!strstr(a->line[c], wanted))
            fail_msg("rank %d said \"%s\", not \"%s\"", rank, a->line[c], wanted);
        if (a->told_at_ms[c] - struck_at > limit_ms) {
            print_message("rank %d knew after %.1f ms\n", rank, a->told_at_ms[c] - struck_at);
            in_time = 0;
        }
    }
    return in_time;
}

static void end_rank(int rank, int wanted)
{
    int status = -1;
    __atomic_store_n(&s->close[rank], 1, __ATOMIC_RELEASE);
    assert_int_equal(waitpid(s->pid[rank], &status, 0), s->pid[rank]);
    s->pid[rank] = 0;
    assert_int_equal(WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status), wanted);
}

/* The survivors close, and their reports are about the victim. */
static void finish(int victim, int closer, int comms)
{
    end_rank(victim, -SIGKILL);
    for (int r = 0; r < WORLD; r++) {
        if (r == victim || r == closer)
            continue;
        end_rank(r, 0);
        for (int c = 0; c < comms; c++) {
            assert_int_equal(s->of[r].status[c], PAR_ERR_ABORTED);
            assert_int_equal(s->of[r].report[c].error, PAR_ERR_PEER_DIED);
            assert_int_equal(s->of[r].report[c].peer, victim);
        }
        assert_int_equal(s->of[r].told, comms); /* closing in order says nothing more */
    }
}

/* closer: a rank that closes before, and says nothing; -1: none */
static int named_in_time(int victim, int closer, int comms, void (*burden)(void), pid_t disguise, double limit_ms)
{
    double struck_at;
    int good = 1;
    start(comms, victim, burden, disguise);
    if (closer >= 0) {
        end_rank(closer, 0);
        pause_ms(300);
        for (int r = 0; r < WORLD; r++)
            assert_int_equal(s->of[r].told, 0);
    }
    if (limit_ms > at_once_ms)
        s->control[0].life[victim] = 0; /* a system without robust futexes */
    struck_at = strike(victim);
    for (int r = 0; r < WORLD; r++)
        if (r != victim && r != closer)
            good &= knows(r, victim, comms, struck_at, limit_ms);
    finish(victim, closer, comms);
    return good;
}

/* A busy machine may let a thread that was woken wait; three times in a row it does not. */
static void kill_one(int victim, int closer, int comms, void (*burden)(void), pid_t disguise, double limit_ms)
{
    int good = 0;
    for (int attempt = 0; attempt < 3 && !good; attempt++) {
        good = named_in_time(victim, closer, comms, burden, disguise, limit_ms);
        if (s->heir)
            kill(s->heir, SIGKILL);
    }
    assert_true(good);
}

static void a_killed_rank_is_named_at_once(void **state)
{
    (void)state;
    for (int victim = 0; victim < WORLD; victim++)
        kill_one(victim, -1, 1, NULL, 0, at_once_ms);
}

/* As far as its pidfd goes it is alive for ever: its end must be seen before the process is gone. */
static void it_is_named_before_its_process_is_gone(void **state)
{
    (void)state;
    kill_one(1, -1, 1, grow, getpid(), at_once_ms);
}

static void its_child_does_not_stand_in_for_it(void **state)
{
    (void)state;
    kill_one(2, -1, 1, leave_a_child, getpid(), at_once_ms);
}

static void every_communicator_says_so(void **state)
{
    (void)state;
    kill_one(3, -1, COMMS, NULL, 0, at_once_ms);
}

static void the_pidfd_is_the_second_witness(void **state)
{
    (void)state;
    kill_one(1, -1, 1, NULL, 0, by_pidfd_ms);
}

/* Rank 0 would have been woken by rank 1, which is not there any more. */
static void closing_is_no_failure_and_the_next_one_is_watched(void **state)
{
    (void)state;
    kill_one(2, 1, 1, NULL, 0, at_once_ms);
}

static void two_that_end_together_are_noticed_too(void **state)
{
    (void)state;
    start(1, -1, NULL, 0);
    strike(1);
    strike(2);
    for (int r = 0; r < WORLD; r += 3) {
        assert_true(wait_for(&s->of[r].told));
        assert_true(strstr(s->of[r].line[0], "rank 1 is gone") || strstr(s->of[r].line[0], "rank 2 is gone"));
    }
    for (int r = 0; r < WORLD; r++)
        end_rank(r, r % 3 ? -SIGKILL : 0);
}

static int hear_of_an_abort(void)
{
    double at;
    int in_20_ms = 1;
    start(1, -1, NULL, 0);
    at = now_ms();
    __atomic_store_n(&s->abort, 1, __ATOMIC_RELEASE);
    for (int r = 0; r < WORLD; r++) {
        assert_true(wait_for(&s->of[r].told));
        assert_non_null(strstr(s->of[r].line[0], r == 0 ? "rank 0 aborted: for the test" : "rank 0 aborted"));
        in_20_ms = in_20_ms && s->of[r].told_at_ms[0] - at <= 20;
    }
    for (int r = 0; r < WORLD; r++)
        end_rank(r, 0);
    return in_20_ms;
}

/* By chance in one of five, when watchers look every 100 ms only. */
static void an_abort_is_heard_at_once(void **state)
{
    int in_time = 0;
    (void)state;
    for (int i = 0; i < 5; i++)
        in_time += hear_of_an_abort();
    assert_true(in_time >= 3);
}

/*
 * As in an engine: rank 0 is killed by its parent as soon as the end of rank 3's socket is seen anywhere. Its line must
 * be out by then.
 */
static void the_line_is_out_before_a_socket_has_closed(void **state)
{
    int ends[2], lines[2], status;
    char text[1024], byte;
    ssize_t got;
    (void)state;
    memset(s, 0, sizeof *s);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    assert_int_equal(pipe(lines), 0);
    for (int r = 0; r < WORLD; r++) {
        pid_t child = fork();
        assert_true(child >= 0);
        if (r == 3 && child == 0) {
            close(ends[0]);
            grow();
            be_rank(r, 1);
        } else if (r == 0 && child == 0) {
            dup2(lines[1], STDERR_FILENO);
            wait_for(&s->go);
            open_comm(r, 0, NULL);
            close(ends[0]);
            close(ends[1]);
            __atomic_store_n(&s->ready[r], 1, __ATOMIC_RELEASE);
            idle(NULL);
        } else if (child == 0) {
            close(ends[0]);
            close(ends[1]);
            be_rank(r, 1);
        }
        s->seen_as[r] = s->pid[r] = child;
    }
    close(ends[1]);
    close(lines[1]);
    __atomic_store_n(&s->go, 1, __ATOMIC_RELEASE);
    for (int r = 0; r < WORLD; r++)
        assert_true(wait_for(&s->ready[r]));
    strike(3);
    assert_int_equal(read(ends[0], &byte, 1), 0);
    assert_int_equal(kill(s->pid[0], SIGKILL), 0);
    assert_int_equal(waitpid(s->pid[0], &status, 0), s->pid[0]);
    s->pid[0] = 0;
    got = read(lines[0], text, sizeof text - 1);
    assert_true(got > 0);
    text[got] = 0;
    assert_non_null(strstr(text, "sgl-pcie: rank 0 of 4: all-reduce aborted: the process of rank 3 is gone"));
    close(ends[0]);
    close(lines[0]);
    end_rank(3, -SIGKILL);
    end_rank(1, 0);
    end_rank(2, 0);
}

/* --- one process -------------------------------------------------------------------------------------------------- */

static int entries(const char *folder)
{
    DIR *dir = opendir(folder);
    int n = 0;
    assert_non_null(dir);
    while (readdir(dir))
        n++;
    closedir(dir);
    return n;
}

static void closing_is_quick_and_leaves_nothing(void **state)
{
    int descriptors = entries("/proc/self/fd"), threads = entries("/proc/self/task");
    double begin = now_ms();
    ear e = {&s->of[0], 0};
    (void)state;
    memset(s, 0, sizeof *s);
    for (int r = 0; r < WORLD; r++)
        s->seen_as[r] = getpid();
    for (int i = 0; i < 100; i++) {
        struct par_comm *comm = open_comm(0, 0, &e);
        pause_ms(i % 3);
        close_comm(comm);
        assert_int_equal(s->control[0].life[0], 0);
        s->control[0].closing[0] = 0;
    }
    assert_true(now_ms() - begin < 5000); /* waiting for the watcher's next look would take 10 s */
    assert_int_equal(entries("/proc/self/fd"), descriptors);
    assert_int_equal(entries("/proc/self/task"), threads);
    assert_int_equal(s->of[0].told, 0);
}

/* SIGUSR1 would end the process if the watcher took it. */
static void signals_are_for_the_programs_own_threads(void **state)
{
    sigset_t one, before, pending;
    int number;
    struct par_comm *comm;
    (void)state;
    memset(s, 0, sizeof *s);
    for (int r = 0; r < WORLD; r++)
        s->seen_as[r] = getpid();
    sigemptyset(&one);
    sigaddset(&one, SIGUSR1);
    comm = open_comm(0, 0, NULL);
    pthread_sigmask(SIG_BLOCK, &one, &before);
    assert_int_equal(sigismember(&before, SIGUSR1), 0); /* the caller's mask is as it was */
    kill(getpid(), SIGUSR1);
    pause_ms(20);
    sigpending(&pending);
    assert_int_equal(sigismember(&pending, SIGUSR1), 1);
    sigwait(&one, &number);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    close_comm(comm);
}

typedef struct {
    uint32_t word;
    int leaves;
    pthread_mutex_t *mutex;
} holder;

static void *hold(void *argument)
{
    holder *h = argument;
    static _Thread_local par_life life;
    par_life_hold(&life, &h->word);
    if (h->leaves)
        par_life_leave(&life, &h->word);
    if (h->mutex)
        pthread_mutex_lock(h->mutex);
    return NULL;
}

static void a_word_tells_an_end_from_leaving(void **state)
{
    pthread_mutexattr_t robust;
    pthread_mutex_t mutex;
    holder h = {0, 0, NULL};
    pthread_t thread;
    (void)state;
    assert_int_equal(pthread_create(&thread, NULL, hold, &h), 0);
    pthread_join(thread, NULL);
    assert_true(par_life_ended(&h.word));

    pthread_mutexattr_init(&robust);
    pthread_mutexattr_setrobust(&robust, PTHREAD_MUTEX_ROBUST);
    pthread_mutex_init(&mutex, &robust);
    h = (holder){0, 1, &mutex};
    assert_int_equal(pthread_create(&thread, NULL, hold, &h), 0);
    pthread_join(thread, NULL);
    assert_int_equal(h.word, 0);
    assert_int_equal(pthread_mutex_trylock(&mutex), EOWNERDEAD); /* the C library's own list is back in place */
    pthread_mutex_unlock(&mutex);
    pthread_mutex_destroy(&mutex);
    pthread_mutexattr_destroy(&robust);
}

/* What a test that failed has left. */
static int sweep(void **state)
{
    (void)state;
    if (s->heir)
        kill(s->heir, SIGKILL);
    for (int r = 0; r < WORLD; r++)
        if (s->pid[r] > 0) {
            kill(s->pid[r], SIGKILL);
            waitpid(s->pid[r], NULL, 0);
        }
    memset(s, 0, sizeof *s);
    return 0;
}

static int setup(void **state)
{
    (void)state;
    s = mmap(NULL, sizeof *s, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return s == MAP_FAILED;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(a_killed_rank_is_named_at_once, sweep),
        cmocka_unit_test_teardown(it_is_named_before_its_process_is_gone, sweep),
        cmocka_unit_test_teardown(its_child_does_not_stand_in_for_it, sweep),
        cmocka_unit_test_teardown(every_communicator_says_so, sweep),
        cmocka_unit_test_teardown(the_pidfd_is_the_second_witness, sweep),
        cmocka_unit_test_teardown(closing_is_no_failure_and_the_next_one_is_watched, sweep),
        cmocka_unit_test_teardown(two_that_end_together_are_noticed_too, sweep),
        cmocka_unit_test_teardown(an_abort_is_heard_at_once, sweep),
        cmocka_unit_test_teardown(the_line_is_out_before_a_socket_has_closed, sweep),
        cmocka_unit_test_teardown(closing_is_quick_and_leaves_nothing, sweep),
        cmocka_unit_test_teardown(signals_are_for_the_programs_own_threads, sweep),
        cmocka_unit_test_teardown(a_word_tells_an_end_from_leaving, sweep),
    };
    return cmocka_run_group_tests(tests, setup, NULL);
}
