/*
 * litmus.c: the emulator's memory against small programs whose outcomes the PTX memory model settles. What it forbids
 * must never be seen, what it allows must be seen: a memory that is too strong would let broken protocols pass.
 *
 * x, y are words in different GPUs; r[] are what was read. `weak` is the outcome in question.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "kernels/emulator/engine.h"

enum { RANKS = 4, THREADS = 2, SEEDS = 20000, KERNELS = 2 };

typedef void (*program)(void);

typedef struct {
    program run[RANKS][KERNELS]; /* both threads of a rank run it; the second kernel follows the first */
    int (*weak)(void);
} litmus;

static uint32_t *x, *y;
static uint32_t r[8];
static int kernel_of[RANKS];

static void start(const void *argument)
{
    const program *p = argument;
    (*p)();
}

static void launch(const litmus *l, int rank)
{
    int k = kernel_of[rank]++;
    if (k < KERNELS && l->run[rank][k])
        emu_launch(rank, 1, THREADS, start, &l->run[rank][k]);
}

static void ended(void *context, int rank) { launch(context, rank); }
static int idle(void *context) { (void)context; return 0; }
static void fault(void *context, int rank) { (void)context; (void)rank; }

static uint32_t *word(const char *name, int home)
{
    emu_region region = {.name = name, .words = 4, .home = (uint8_t)home, .readers = EMU_ALL, .writers = EMU_ALL};
    return emu_add(&region);
}

/* Runs under many seeds; how often the weak outcome was seen. */
static int weak(const litmus *l)
{
    const emu_events events = {.context = (void *)(uintptr_t)l, .ended = ended, .idle = idle, .fault = fault};
    int n = 0;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        emu_setup setup = {.mode = EMU_RANDOM, .seed = seed, .ranks = RANKS, .per_rank = THREADS,
                           .timeout_ns = 1000000, .most_steps = 100000};
        assert_int_equal(emu_begin(&setup), 0);
        x = word("x", 0);
        y = word("y", 1);
        memset(r, 0, sizeof r);
        memset(kernel_of, 0, sizeof kernel_of);
        for (int rank = 0; rank < RANKS; rank++)
            launch(l, rank);
        emu_run(&events);
        assert_null(emu_violation());
        n += l->weak() != 0;
    }
    return n;
}

static int first(void) { return par_thread() == 0; }

/* --- message passing ---------------------------------------------------------------------------------------------- */

static int flag_without_data(void) { return r[0] == 1 && r[1] == 0; }

static void data_flag(void)
{
    if (first()) {
        par_st(x, 1);
        par_st(y, 1);
    }
}

static void data_fence_flag(void)
{
    if (first()) {
        par_st(x, 1);
        par_fence();
        par_st(y, 1);
    }
}

static void relaxed_flag_data(void)
{
    if (first()) {
        r[0] = par_ld(y);
        r[1] = par_ld(x);
    }
}

static void acquire_flag_data(void)
{
    if (first()) {
        r[0] = par_ld_acquire(y);
        r[1] = par_ld(x);
    }
}

static void flag_fence_data(void)
{
    if (first()) {
        r[0] = par_ld(y);
        par_fence();
        r[1] = par_ld(x);
    }
}

#define MESSAGE(writer, reader) {{{writer, 0}, {reader, 0}, {0, 0}, {0, 0}}, flag_without_data}

static void message_needs_fence_and_acquire(void **state)
{
    static const litmus none = MESSAGE(data_flag, relaxed_flag_data), no_fence = MESSAGE(data_flag, acquire_flag_data),
                        no_acquire = MESSAGE(data_fence_flag, relaxed_flag_data),
                        both = MESSAGE(data_fence_flag, acquire_flag_data),
                        fences = MESSAGE(data_fence_flag, flag_fence_data);
    (void)state;
    assert_true(weak(&none) > 0);
    assert_true(weak(&no_fence) > 0);
    assert_true(weak(&no_acquire) > 0);
    assert_int_equal(weak(&both), 0);
    assert_int_equal(weak(&fences), 0);
}

/* One thread of the block writes the data, the other fences and sets the flag. */
static void data_barrier_fence_flag(void)
{
    if (first())
        par_st(x, 1);
    par_barrier_or(0);
    if (!first()) {
        par_fence();
        par_st(y, 1);
    }
}

static void data_fence_barrier_flag(void)
{
    if (first()) {
        par_st(x, 1);
        par_fence();
    }
    par_barrier_or(0);
    if (!first())
        par_st(y, 1);
}

static void fence_before_the_barrier(void)
{
    if (first())
        par_st(x, 1);
    else
        par_fence();
    par_barrier_or(0);
    if (!first())
        par_st(y, 1);
}

static void acquire_barrier_data(void)
{
    if (first())
        r[0] = par_ld_acquire(y);
    par_barrier_or(0);
    if (!first())
        r[1] = par_ld(x);
}

static void relaxed_barrier_data(void)
{
    if (first())
        r[0] = par_ld(y);
    par_barrier_or(0);
    if (!first())
        r[1] = par_ld(x);
}

/* Half a barrier: the writer of the data signals, the other waits for it. */
static void data_signal_fence_flag(void)
{
    if (first()) {
        par_st(x, 1);
        par_signal(1);
    } else {
        par_wait_signals(1);
        par_fence();
        par_st(y, 1);
    }
}

static void signal_before_data(void)
{
    if (first()) {
        par_signal(1);
        par_st(x, 1);
    } else {
        par_wait_signals(1);
        par_fence();
        par_st(y, 1);
    }
}

static void a_signal_orders_what_came_before_it(void **state)
{
    static const litmus good = MESSAGE(data_signal_fence_flag, acquire_barrier_data),
                        early = MESSAGE(signal_before_data, acquire_barrier_data);
    (void)state;
    assert_int_equal(weak(&good), 0);
    assert_true(weak(&early) > 0);
}

static void fences_are_cumulative_through_the_block_barrier(void **state)
{
    static const litmus good = MESSAGE(data_barrier_fence_flag, acquire_barrier_data),
                        other_thread = MESSAGE(data_fence_barrier_flag, acquire_barrier_data),
                        early = MESSAGE(fence_before_the_barrier, acquire_barrier_data),
                        no_acquire = MESSAGE(data_barrier_fence_flag, relaxed_barrier_data);
    (void)state;
    assert_int_equal(weak(&good), 0);
    assert_true(weak(&other_thread) > 0); /* a release pattern is a fence and a store of one thread */
    assert_true(weak(&early) > 0);
    assert_true(weak(&no_acquire) > 0);
}

/* --- kernel boundary ---------------------------------------------------------------------------------------------- */

static void only_data(void)
{
    if (first())
        par_st(x, 1);
}

static void data_then_fence(void)
{
    if (first()) {
        par_st(x, 1);
        par_fence();
    }
}

static void only_flag(void)
{
    if (!first())
        par_st(y, 1);
}

static void read_flag(void)
{
    if (first())
        r[0] = par_ld(y);
}

static void read_data(void)
{
    if (!first())
        r[1] = par_ld(x);
}

static void a_kernel_boundary_drains_nothing_but_acquires(void **state)
{
    static const litmus no_fence = {{{only_data, only_flag}, {acquire_flag_data, 0}, {0, 0}, {0, 0}},
                                    flag_without_data},
                        fence = {{{data_then_fence, only_flag}, {acquire_flag_data, 0}, {0, 0}, {0, 0}},
                                 flag_without_data},
                        start = {{{data_fence_flag, 0}, {read_flag, read_data}, {0, 0}, {0, 0}}, flag_without_data};
    (void)state;
    assert_true(weak(&no_fence) > 0);
    assert_int_equal(weak(&fence), 0);
    assert_int_equal(weak(&start), 0);
}

/* --- one word ----------------------------------------------------------------------------------------------------- */

static void two_values(void)
{
    if (first()) {
        par_st(x, 1);
        par_st(x, 2);
    }
}

static void read_twice(void)
{
    if (first()) {
        r[0] = par_ld(x);
        r[1] = par_ld(x);
    }
}

static int backwards(void) { return r[0] > r[1]; }
static int first_value_stays(void) { return emu_value(x) == 1; }
static int old_value(void) { return r[0] == 1; }

static void one_word_is_coherent(void **state)
{
    static const litmus reads = {{{two_values, 0}, {read_twice, 0}, {0, 0}, {0, 0}}, backwards},
                        writes = {{{two_values, 0}, {0, 0}, {0, 0}, {0, 0}}, first_value_stays},
                        old = {{{two_values, 0}, {read_twice, 0}, {0, 0}, {0, 0}}, old_value};
    (void)state;
    assert_int_equal(weak(&reads), 0);
    assert_int_equal(weak(&writes), 0);
    assert_true(weak(&old) > 0);
}

/* A slot is reset, its owner says so, the peer writes: may the reset still land after the peer's data? */
static void reset_flag(void)
{
    if (first()) {
        par_st(x, 7);
        par_st(y, 1);
    }
}

static void reset_fence_flag(void)
{
    if (first()) {
        par_st(x, 7);
        par_fence();
        par_st(y, 1);
    }
}

static void write_when_told(void)
{
    if (first() && par_ld_acquire(y) == 1)
        par_st(x, (r[0] = 2));
}

static int data_lost(void) { return r[0] == 2 && emu_value(x) == 7; }

static void a_reset_without_a_fence_may_land_after_the_next_data(void **state)
{
    static const litmus no_fence = {{{reset_flag, 0}, {write_when_told, 0}, {0, 0}, {0, 0}}, data_lost},
                        fence = {{{reset_fence_flag, 0}, {write_when_told, 0}, {0, 0}, {0, 0}}, data_lost};
    (void)state;
    assert_true(weak(&no_fence) > 0);
    assert_int_equal(weak(&fence), 0);
}

static void four_words(void)
{
    const par_vec v = {{1, 1, 1, 1}};
    if (first())
        par_st4(x, v);
}

static void read_four(void)
{
    if (first()) {
        par_vec v = par_ld4(x);
        memcpy(r, v.w, sizeof v.w);
    }
}

static int head_first(void) { return r[0] == 1 && r[3] == 0; }
static int tail_first(void) { return r[0] == 0 && r[3] == 1; }
static int inside_out(void) { return r[0] == 0 && r[1] == 1 && r[2] == 1 && r[3] == 0; }
static int halves(void) { return r[0] == 1 && r[1] == 1 && r[2] == 0 && r[3] == 0; }

static void sixteen_bytes_are_four_words(void **state)
{
    static const litmus torn[] = {{{{four_words, 0}, {read_four, 0}, {0, 0}, {0, 0}}, head_first},
                                  {{{four_words, 0}, {read_four, 0}, {0, 0}, {0, 0}}, tail_first},
                                  {{{four_words, 0}, {read_four, 0}, {0, 0}, {0, 0}}, inside_out},
                                  {{{four_words, 0}, {read_four, 0}, {0, 0}, {0, 0}}, halves}};
    (void)state;
    for (size_t i = 0; i < sizeof torn / sizeof torn[0]; i++)
        assert_true(weak(&torn[i]) > 0);
}

/* --- several writers ---------------------------------------------------------------------------------------------- */

static void store_x_load_y(void)
{
    if (first()) {
        par_st(x, 1);
        par_fence();
        r[0] = par_ld(y);
    }
}

static void store_y_load_x(void)
{
    if (first()) {
        par_st(y, 1);
        par_fence();
        r[1] = par_ld(x);
    }
}

static int both_old(void) { return r[0] == 0 && r[1] == 0; }

static void store_x(void) { if (first()) par_st(x, 1); }
static void store_y(void) { if (first()) par_st(y, 1); }

static void read_x_then_y(void)
{
    if (first()) {
        r[0] = par_ld_acquire(x);
        r[1] = par_ld(y);
    }
}

static void read_y_then_x(void)
{
    if (first()) {
        r[2] = par_ld_acquire(y);
        r[3] = par_ld(x);
    }
}

static int order_disputed(void) { return r[0] == 1 && r[1] == 0 && r[2] == 1 && r[3] == 0; }

static void acquire_and_release_are_not_sequential_consistency(void **state)
{
    static const litmus buffering = {{{store_x_load_y, 0}, {store_y_load_x, 0}, {0, 0}, {0, 0}}, both_old},
                        iriw = {{{store_x, 0}, {store_y, 0}, {read_x_then_y, 0}, {read_y_then_x, 0}}, order_disputed};
    (void)state;
    assert_true(weak(&buffering) > 0);
    assert_true(weak(&iriw) > 0);
}

/* Rank 1 sees rank 0's word and says so to rank 2. */
static void pass_on(void)
{
    if (first() && par_ld(x) == 1)
        par_st(y, 1);
}

static void pass_on_fenced(void)
{
    if (first() && par_ld(x) == 1) {
        par_fence();
        par_st(y, 1);
    }
}

static void what_was_seen_is_passed_on_by_a_fence(void **state)
{
    static const litmus no_fence = {{{store_x, 0}, {pass_on, 0}, {acquire_flag_data, 0}, {0, 0}}, flag_without_data},
                        fence = {{{store_x, 0}, {pass_on_fenced, 0}, {acquire_flag_data, 0}, {0, 0}},
                                 flag_without_data};
    (void)state;
    assert_true(weak(&no_fence) > 0);
    assert_int_equal(weak(&fence), 0);
}

/* --- the engine --------------------------------------------------------------------------------------------------- */

static void one_rank(program p, const emu_region *region, char *violation, size_t size)
{
    const litmus l = {{{p, 0}, {0, 0}, {0, 0}, {0, 0}}, 0};
    const emu_events events = {.context = (void *)(uintptr_t)&l, .ended = ended, .idle = idle, .fault = fault};
    emu_setup setup = {.mode = EMU_RANDOM, .seed = 1, .ranks = RANKS, .per_rank = THREADS,
                       .timeout_ns = 1000000, .most_steps = 100000};
    assert_int_equal(emu_begin(&setup), 0);
    x = emu_add(region);
    memset(kernel_of, 0, sizeof kernel_of);
    launch(&l, 0);
    emu_run(&events);
    snprintf(violation, size, "%s", emu_violation() ? emu_violation() : "");
}

static void wait_for_ever(void)
{
    while (par_ld(x) == 0)
        ;
}

static void signals_twice(void)
{
    if (first()) {
        par_signal(1);
        par_signal(1);
    }
}

static void half_a_barrier(void)
{
    if (first())
        par_barrier_or(0);
}

static void what_can_go_wrong_in_a_kernel_is_seen(void **state)
{
    const emu_region open = {.name = "x", .words = 4, .readers = EMU_ALL, .writers = EMU_ALL},
                     closed = {.name = "x", .words = 4, .readers = 2, .writers = EMU_ALL};
    char text[200];
    (void)state;
    one_rank(wait_for_ever, &open, text, sizeof text);
    assert_non_null(strstr(text, "wait without bound"));
    one_rank(half_a_barrier, &open, text, sizeof text);
    assert_non_null(strstr(text, "barrier"));
    one_rank(signals_twice, &open, text, sizeof text);
    assert_non_null(strstr(text, "signals again"));
    one_rank(read_twice, &closed, text, sizeof text);
    assert_non_null(strstr(text, "may not read"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(message_needs_fence_and_acquire),
        cmocka_unit_test(fences_are_cumulative_through_the_block_barrier),
        cmocka_unit_test(a_signal_orders_what_came_before_it),
        cmocka_unit_test(a_kernel_boundary_drains_nothing_but_acquires),
        cmocka_unit_test(one_word_is_coherent),
        cmocka_unit_test(a_reset_without_a_fence_may_land_after_the_next_data),
        cmocka_unit_test(sixteen_bytes_are_four_words),
        cmocka_unit_test(acquire_and_release_are_not_sequential_consistency),
        cmocka_unit_test(what_was_seen_is_passed_on_by_a_fence),
        cmocka_unit_test(what_can_go_wrong_in_a_kernel_is_seen),
    };
    return cmocka_run_group_tests(tests, 0, 0);
}
