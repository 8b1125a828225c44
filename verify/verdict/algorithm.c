#include "verify/verdict/algorithm.h"

#include <string.h>

/* As in python/sgl_pcie/profile.py and docs/json-schema/profile.schema.json; the simpler one first, which decides
 * between equals. */
static const struct {
    const char *transport, *name;
} known[] = {
    {"push", "push-one-shot"},         {"push", "push-two-shot"},         {"pull", "pull-one-shot"},
    {"pull", "pull-two-shot"},         {"host", "host-one-shot"},         {"host", "host-two-shot"},
    {"host", "host-one-shot-tagged"},  {"host", "host-two-shot-tagged"},  {"push", "push-one-shot-chunked"},
    {"push", "push-two-shot-chunked"}, {"host", "host-one-shot-chunked"}, {"host", "host-two-shot-chunked"},
};

enum { KNOWN = sizeof known / sizeof *known };

int sp_algorithm_rank(const char *algorithm)
{
    int rank = 0;

    while (rank < KNOWN && strcmp(known[rank].name, algorithm) != 0)
        rank++;
    return rank < KNOWN ? rank : -1;
}

bool sp_algorithm_known(const char *algorithm)
{
    return sp_algorithm_rank(algorithm) >= 0;
}

const char *sp_algorithm_transport(const char *algorithm)
{
    const int rank = sp_algorithm_rank(algorithm);

    return rank < 0 ? "" : known[rank].transport;
}
