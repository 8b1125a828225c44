/* parts.c: the parts of libpar.so that need no CUDA. */
#include <errno.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "call.h"
#include "device.h"
#include "numerics.h"
#include "segment.h"

static const int worlds[] = {2, 3, 4, 5, 6, 7, 8};
enum { WORLDS = sizeof worlds / sizeof worlds[0] };

/* --- layout ------------------------------------------------------------------------------------------------------- */

static void check_plan(const par_geometry *g, int algorithm, int world, uint64_t bytes, uint32_t lanes)
{
    par_plan plan;
    par_call call = {0};
    uint64_t vecs = (bytes + 15) / 16, least;
    if (par_plan_init(&plan, g, algorithm, world, bytes, lanes, 0, 0) != PAR_OK) {
        assert_true(bytes > g[algorithm].max_bytes);
        return;
    }
    call.world = (uint32_t)world;
    par_call_plan(&call, g, &plan);
    least = par_is_two_shot(plan.algorithm) && !par_is_chunked(plan.algorithm) ? (uint64_t)world : 1;
    assert_in_range(plan.lanes, 1, g[plan.algorithm].lanes);
    assert_in_range(plan.workers, 32, PAR_MAX_WORKERS);
    assert_int_equal(plan.workers % 32, 0);
    assert_int_equal((uint64_t)plan.share * plan.lanes + plan.longer, vecs);
    assert_true(plan.longer < plan.lanes);
    assert_true(plan.share >= least); /* every lane of every call hears from every peer */
    if (!par_is_chunked(plan.algorithm))
        assert_true(plan.share + (plan.longer > 0) <= g[plan.algorithm].lane_vecs);
    else
        assert_in_range(plan.tile, 1, g[plan.algorithm].lane_vecs);
    assert_true(call.teams * call.team <= call.workers);
}

static void every_lane_fits_and_hears_from_every_peer(void **state)
{
    (void)state;
    for (int w = 0; w < WORLDS; w++) {
        par_geometry g[PAR_ALGORITHMS];
        for (uint32_t room = 1; room <= PAR_LANES; room += 21) {
            static const uint64_t sizes[] = {0, 1, 300, 5000}; /* default, and far too small for so many lanes */
            for (int a = 1; a < PAR_ALGORITHMS; a++)
                par_geometry_init(&g[a], a, worlds[w], room, sizes[room % 4], 0);
            for (int a = 1; a < PAR_ALGORITHMS; a++)
                for (uint64_t bytes = 2; bytes < 80u << 20; bytes = bytes * 5 / 4 + 2)
                    for (uint32_t lanes = 0; lanes <= PAR_LANES; lanes += 16)
                        check_plan(g, a, worlds[w], bytes, lanes);
        }
    }
}

enum { CALLS = 2 };

/* Calls of two communicators at the same time, as a GPU places their lanes: in order, a call when the one before it in
 * the queue is placed. first, bit r: the call that rank r has in front. Do both end? */
static int both_end(uint32_t lanes, uint32_t slots, int world, uint32_t first)
{
    uint32_t placed[PAR_MAX_WORLD][CALLS] = {{0}}, ended[CALLS] = {0}, before;
    do {
        before = ended[0] + ended[1];
        for (int r = 0; r < world; r++)
            for (uint32_t turn = 0, call = first >> r & 1; turn < CALLS; turn++, call = 1 - call)
                while (placed[r][call] < lanes && (turn == 0 || placed[r][1 - call] == lanes) &&
                       placed[r][0] - ended[0] + placed[r][1] - ended[1] < slots)
                    placed[r][call]++;
        for (int call = 0; call < CALLS; call++) {
            uint32_t everywhere = lanes; /* so many lanes have all their peers */
            for (int r = 0; r < world; r++)
                everywhere = placed[r][call] < everywhere ? placed[r][call] : everywhere;
            ended[call] = everywhere;
        }
    } while (ended[0] + ended[1] > before);
    return ended[0] == lanes && ended[1] == lanes;
}

static void two_communicators_may_meet_in_any_order(void **state)
{
    (void)state;
    for (int w = 0; w < WORLDS; w++)
        for (int blocks = 1; blocks <= 3; blocks++)
            for (int processors = 8; processors <= 200; processors += 3) {
                const uint32_t room = par_room(blocks, processors, 1), slots = (uint32_t)(blocks * processors);
                assert_in_range(room, 1, slots - 1);
                for (uint32_t first = 0; first < 1u << worlds[w]; first++)
                    assert_true(both_end(room, slots, worlds[w], first));
                assert_true(both_end(slots, slots, worlds[w], 0));
                assert_false(both_end(slots, slots, worlds[w], 1)); /* what it is for */
            }
}

static void ranks_of_a_gpu_share_its_room(void **state)
{
    (void)state;
    for (int sharing = 1; sharing <= PAR_MAX_WORLD; sharing++)
        assert_in_range(par_room(1, 132, sharing) * (uint32_t)sharing, 120, 132 - PAR_SPARE_PROCESSORS);
    assert_int_equal(par_room(1, 20, 8), 2);
    assert_int_equal(par_room(1, 8, 8), 0); /* no place for all: refused */
    assert_int_equal(par_room(2, PAR_SPARE_PROCESSORS, 1), 0);
}

/* Drivers before 530, and GPUs before Volta with any, take no more. */
static void a_launch_is_no_larger_than_every_driver_takes(void **state)
{
    (void)state;
    assert_in_range(sizeof(par_launch), PAR_MAX_WORLD * sizeof(par_call), 4096);
}

static void areas_of_a_lane_do_not_overlap(void **state)
{
    (void)state;
    for (int w = 0; w < WORLDS; w++) {
        for (int a = 1; a < PAR_ALGORITHMS; a++) {
            par_geometry g;
            uint32_t senders = par_algorithm_transport(a) == PAR_PUSH ? (uint32_t)worlds[w] : 1;
            uint32_t part;
            par_geometry_init(&g, a, worlds[w], 0, 0, 0);
            part = (g.lane_vecs + (uint32_t)worlds[w] - 1) / (uint32_t)worlds[w];
            assert_true(g.sender_words >= g.gather_words + (par_is_two_shot(a) ? 4 * part : 0));
            assert_true(g.gather_words >= 4 * (par_is_two_shot(a) && senders > 1 ? part : g.lane_vecs));
            assert_true(g.slot_words >= senders * g.sender_words);
            assert_true(g.lane_words >= PAR_SLOTS * g.slot_words);
            assert_true(g.box_bytes >= 4ull * g.lanes * g.lane_words);
        }
    }
}

static void multiplication_divides(void **state)
{
    (void)state;
    for (uint32_t divisor = 2; divisor <= PAR_MAX_WORKERS; divisor++) {
        uint64_t inverse = par_inverse(divisor), limit = 0xffffffffull / divisor;
        for (uint64_t n = 0; n < limit; n += n < 2000 ? 1 : limit / 997)
            assert_int_equal(n * inverse >> 32, n / divisor);
    }
}

/* --- numerics ----------------------------------------------------------------------------------------------------- */

static void fp16_survives_fp32_and_back(void **state)
{
    (void)state;
    for (uint32_t h = 0; h < 0x10000; h++) {
        uint32_t back = par_float_to_half(par_half_to_float(h));
        if ((h & 0x7fffu) > 0x7c00u)
            assert_true((back & 0x7fffu) > 0x7c00u);
        else
            assert_int_equal(back, h);
    }
}

/* Between two neighbours of fp16 the middle goes to the even one, all else to the nearer one. */
static void fp16_rounds_to_nearest_even(void **state)
{
    (void)state;
    for (uint32_t h = 0; h < 0x7bff; h++) {
        float low = par_half_to_float(h), high = par_half_to_float(h + 1), middle = low + (high - low) / 2;
        uint32_t bits = par_as_bits(middle);
        assert_int_equal(par_float_to_half(middle), h + (h & 1));
        assert_int_equal(par_float_to_half(par_as_float(bits - 1)), h);
        assert_int_equal(par_float_to_half(par_as_float(bits + 1)), h + 1);
        assert_int_equal(par_float_to_half(-middle), 0x8000u | (h + (h & 1)));
    }
    assert_int_equal(par_float_to_half(65519.996f), 0x7bff);
    assert_int_equal(par_float_to_half(65520.0f), 0x7c00);
}

static void bf16_rounds_to_nearest_even(void **state)
{
    (void)state;
    assert_int_equal(par_bf16_pair(par_as_float(0x3f808000u), par_as_float(0x3f818000u)), 0x3f823f80u);
    assert_int_equal(par_bf16_pair(par_as_float(0x3f808001u), par_as_float(0x3f807fffu)), 0x3f803f81u);
    assert_int_equal(par_bf16_pair(par_as_float(0x7f7fffffu), par_as_float(0x80000001u)), 0x80007f80u);
}

static void nothing_clean_is_the_sentinel(void **state)
{
    const par_vec worst = {{0xffffffffu, 0x7fffffffu, 0xffff0000u, 0x7fc1ffffu}};
    (void)state;
    for (int dtype = 0; dtype < PAR_DTYPES; dtype++) {
        par_vec v = par_clean(worst, dtype);
        for (int i = 0; i < 4; i++)
            assert_true(v.w[i] != PAR_EMPTY);
    }
    assert_int_equal(par_clean(worst, PAR_BF16).w[0], 0x7fff7fffu);
    assert_int_equal(par_clean(worst, PAR_FP16).w[0], 0x7fff7fffu);
    assert_int_equal(par_clean(worst, PAR_FP32).w[0], 0x7fffffffu);
}

/* 2^24 + 1 - 2^24 + ...: each tree gives another sum. */
static void the_tree_is_the_one_that_is_documented(void **state)
{
    const float big = 16777216.0f;
    par_vec part[PAR_MAX_WORLD];
    (void)state;
    memset(part, 0, sizeof part);
    for (int i = 0; i < PAR_MAX_WORLD; i++)
        part[i].w[0] = par_as_bits(i == 0 ? big : i == 3 ? -big : 1.0f);
    assert_true(par_as_float(par_sum(part, 4, PAR_FP32).w[0]) == 0.0f);     /* ((B + 1) + 1) - B */
    assert_true(par_as_float(par_sum(part, 5, PAR_FP32).w[0]) == 1.0f);     /* (B + 1 + 1) + (-B + 1) */
    assert_true(par_as_float(par_sum(part, 8, PAR_FP32).w[0]) == 4.0f);     /* (B + 1 + 1 - B) + (1 + 1 + 1 + 1) */
}

static void minus_zero_stays(void **state)
{
    par_vec part[PAR_MAX_WORLD];
    (void)state;
    for (int i = 0; i < PAR_MAX_WORLD; i++)
        for (int k = 0; k < 4; k++)
            part[i].w[k] = 0x80008000u;
    for (int w = 0; w < WORLDS; w++) {
        assert_int_equal(par_sum(part, (uint32_t)worlds[w], PAR_BF16).w[0], 0x80008000u);
        assert_int_equal(par_sum(part, (uint32_t)worlds[w], PAR_FP16).w[0], 0x80008000u);
    }
}

/* --- segment ------------------------------------------------------------------------------------------------------ */

static void the_segment_reaches_another_process(void **state)
{
    par_segment s = PAR_SEGMENT_INIT;
    char name[PAR_SOCKET_NAME];
    pid_t child;
    int status = -1;
    (void)state;
    assert_int_equal(par_segment_offer(&s, 8192, name), PAR_OK);
    child = fork();
    if (child == 0) {
        par_segment mine = PAR_SEGMENT_INIT;
        int bad = par_segment_fetch(&mine, name, 5) != PAR_OK || par_segment_map(&mine, 8192) != PAR_OK;
        if (!bad)
            memcpy(mine.base + 4096, "here", 5);
        par_segment_free(&mine);
        _exit(bad);
    }
    assert_int_equal(par_segment_serve(&s, 1, 5), PAR_OK);
    assert_int_equal(par_segment_map(&s, 8192), PAR_OK);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_string_equal(s.base + 4096, "here");
    par_segment_free(&s);
}

/* A child that takes the segment, as another user if uid is not 0; it ends with the error. */
static pid_t start_taker(const char *name, uid_t uid)
{
    pid_t child = fork();
    if (child == 0) {
        par_segment mine = PAR_SEGMENT_INIT;
        int error = uid && setuid(uid) != 0 ? 1 : par_segment_fetch(&mine, name, 5);
        par_segment_free(&mine);
        _exit(-error);
    }
    return child;
}

static int end_of(pid_t child)
{
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    return -WEXITSTATUS(status);
}

static void a_stranger_is_turned_away_and_the_next_one_served(void **state)
{
    par_segment s = PAR_SEGMENT_INIT;
    struct pollfd queued = {.events = POLLIN};
    char name[PAR_SOCKET_NAME];
    pid_t stranger, rank;
    (void)state;
    if (geteuid() != 0)
        skip();
    assert_int_equal(par_segment_offer(&s, 4096, name), PAR_OK);
    stranger = start_taker(name, 65534);
    queued.fd = s.listener;
    assert_int_equal(poll(&queued, 1, 5000), 1);
    rank = start_taker(name, 0);
    assert_int_equal(par_segment_serve(&s, 1, 5), PAR_OK);
    assert_int_equal(end_of(stranger), PAR_ERR_BOOTSTRAP);
    assert_int_equal(end_of(rank), PAR_OK);
    par_segment_free(&s);
}

static void a_rank_that_does_not_come_is_a_timeout(void **state)
{
    par_segment s = PAR_SEGMENT_INIT;
    char name[PAR_SOCKET_NAME];
    (void)state;
    assert_int_equal(par_segment_offer(&s, 4096, name), PAR_OK);
    assert_int_equal(par_segment_serve(&s, 1, 0.05), PAR_ERR_BOOTSTRAP);
    assert_non_null(strstr(par_last_error(), "in time"));
    par_segment_free(&s);
}

static void nobody_offers(void **state)
{
    par_segment s = PAR_SEGMENT_INIT;
    (void)state;
    assert_int_equal(par_segment_fetch(&s, "sgl-pcie-nobody", 1), PAR_ERR_SYSTEM);
    assert_non_null(strstr(par_last_error(), "network namespace"));
    par_segment_free(&s);
    par_segment_free(&s); /* any state, again too */
}

/* --- names -------------------------------------------------------------------------------------------------------- */

static void names_lead_back(void **state)
{
    (void)state;
    for (int a = 0; a < PAR_ALGORITHMS; a++)
        assert_int_equal(par_algorithm_by_name(par_algorithm_name(a)), a);
    assert_int_equal(par_algorithm_by_name("ring"), -1);
    assert_int_equal(par_algorithm_by_name(NULL), -1);
    assert_null(par_algorithm_name(PAR_ALGORITHMS));
    assert_string_equal(par_error_name(PAR_ERR_OVERLAP), "overlap");
    assert_string_equal(par_error_name(-99), "unknown");
    assert_string_equal(par_error_name(1), "unknown");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_lane_fits_and_hears_from_every_peer),
        cmocka_unit_test(two_communicators_may_meet_in_any_order),
        cmocka_unit_test(ranks_of_a_gpu_share_its_room),
        cmocka_unit_test(a_launch_is_no_larger_than_every_driver_takes),
        cmocka_unit_test(areas_of_a_lane_do_not_overlap),
        cmocka_unit_test(multiplication_divides),
        cmocka_unit_test(fp16_survives_fp32_and_back),
        cmocka_unit_test(fp16_rounds_to_nearest_even),
        cmocka_unit_test(bf16_rounds_to_nearest_even),
        cmocka_unit_test(nothing_clean_is_the_sentinel),
        cmocka_unit_test(the_tree_is_the_one_that_is_documented),
        cmocka_unit_test(minus_zero_stays),
        cmocka_unit_test(the_segment_reaches_another_process),
        cmocka_unit_test(a_stranger_is_turned_away_and_the_next_one_served),
        cmocka_unit_test(a_rank_that_does_not_come_is_a_timeout),
        cmocka_unit_test(nobody_offers),
        cmocka_unit_test(names_lead_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
