#include "base/err.h"
#include "verify/bench/bench_run.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

enum { KIB = 1 << 10, MIB = 1 << 20, LARGEST = 1 << 30, MOST = 32 }; /* the program for GPUs takes 32 */

bool sp_bench_add_size(uint64_t list[SP_BENCH_SIZES], size_t *count, uint64_t bytes)
{
    size_t at = 0;

    while (at < *count && list[at] < bytes)
        at++;
    if (at < *count && list[at] == bytes)
        return true;
    if (*count >= MOST)
        return false;
    memmove(&list[at + 1], &list[at], (*count - at) * sizeof *list);
    list[at] = bytes;
    (*count)++;
    return true;
}

/* As the program for GPUs has them by itself (kernels/gpu/README.md). */
size_t sp_bench_sizes(uint64_t out[SP_BENCH_SIZES], bool quick)
{
    static const uint64_t all[] = {2 * KIB,   4 * KIB,   8 * KIB, 16 * KIB, 42 * KIB, 64 * KIB, 128 * KIB,
                                   256 * KIB, 512 * KIB, MIB,     2 * MIB,  4 * MIB,  8 * MIB,  16 * MIB};
    static const uint64_t few[] = {4 * KIB, 16 * KIB, 42 * KIB, 128 * KIB, 512 * KIB, 2 * MIB};
    const size_t count = quick ? sizeof few / sizeof *few : sizeof all / sizeof *all;

    memcpy(out, quick ? few : all, count * sizeof *out);
    return count;
}

unsigned sp_bench_unit(char letter)
{
    return letter == 'K' ? 10 : letter == 'M' ? 20 : letter == 'G' ? 30 : 0;
}

static bool take(uint64_t *out, const char **at)
{
    char *end = NULL;

    *out = isdigit((unsigned char)**at) ? strtoull(*at, &end, 10) : 0;
    if (*out == 0 || *out > LARGEST)
        return false;
    *out <<= sp_bench_unit(*end);
    *at = sp_bench_unit(*end) > 0 ? end + 1 : end;
    return *out <= LARGEST;
}

int sp_bench_parse_sizes(uint64_t out[SP_BENCH_SIZES], size_t *count, const char *text)
{
    const char *at = text;
    bool good = true;

    *count = 0;
    while (good) {
        uint64_t bytes;

        good = take(&bytes, &at) && bytes % 4 == 0 && sp_bench_add_size(out, count, bytes);
        if (!good || *at != ',')
            break;
        at++;
    }
    if (good && *at == '\0')
        return SP_OK;
    return sp_err(SP_EUSAGE, "'%s' is no list of sizes: up to %d multiples of 4, to 1 GiB, like 2K,43008,1M", text,
                  (int)MOST);
}
