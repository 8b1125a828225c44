#include "verify/ladder/rates.h"
#include "verify/machine/topology.h"
#include "verify/verdict/verdict.h"

#include <stdio.h>
#include <string.h>

static const double slow = 0.5;   /* of what links carry: 0.8 to 0.9 is usual */
static const double staged = 0.2; /* of the rate of stores: loads that take a way round through system memory */

struct rate {
    char kind[SP_CHECK_ID];
    size_t gpu[2], count; /* NVML's numbers */
    double gbs;
};

static bool is_rate(struct rate *out, const struct sp_check *check)
{
    int parts;

    if ((check->status != SP_CHECK_PASS && check->status != SP_CHECK_WARN) || !check->unit ||
        strcmp(check->unit, "GB/s") != 0)
        return false;
    parts = sscanf(check->id, "%31[a-z-].%zu-%zu", out->kind, &out->gpu[0], &out->gpu[1]);
    out->count = parts == 3 ? 2 : 1;
    out->gbs = json_number_value(check->actual);
    return parts >= 2 && out->gbs > 0 && strstr(out->kind, "-rate");
}

/* GB/s each way; 0: not known. */
static double carried(const struct sp_topology *topology, const struct rate *rate)
{
    size_t at[2] = {0};
    double least = -1;

    for (size_t k = 0; k < rate->count; k++)
        for (size_t i = 0; i < topology->gpu_count; i++) {
            const struct sp_topo_link *link = &topology->gpu[i].link;
            const double gbs = sp_link_gbs(link->possible_speed, link->width);

            if (topology->gpu[i].number != rate->gpu[k])
                continue;
            at[k] = i;
            least = least < 0 || gbs < least ? gbs : least;
        }
    if (topology->guest || (rate->count == 2 && sp_topology_nvlink(topology, at[0], at[1])))
        least = 0;
    return least > 0 ? least : 0;
}

static double stores_of(const struct sp_checks *checks, const struct rate *rate)
{
    char id[SP_CHECK_ID];
    const struct sp_check *stores;

    (void)snprintf(id, sizeof id, "store-rate.%zu-%zu", rate->gpu[0], rate->gpu[1]);
    stores = sp_check_find(checks, id);
    return stores ? json_number_value(stores->actual) : 0;
}

static void warn(struct sp_check *check, double expected, double actual)
{
    sp_check_numbers(check, expected, actual, "GB/s");
    check->status = SP_CHECK_WARN;
}

void sp_rate_judge(const struct sp_ladder *ladder, struct sp_check *check)
{
    struct rate rate = {.count = 0};
    double link, stores = 0;

    if (!is_rate(&rate, check))
        return;
    link = carried(ladder->topology, &rate);
    if (strcmp(rate.kind, "load-rate") == 0)
        stores = stores_of(&ladder->checks, &rate);
    if (rate.gbs < staged * stores) {
        warn(check, staged * stores, rate.gbs);
        sp_check_remedy(check,
                        "p2p.staging-suspect: loads at a fraction of the rate of stores may go through system memory; "
                        "the push and host backends do not load from peers, and bench times each");
    } else if (rate.gbs < slow * link) {
        warn(check, slow * link, rate.gbs);
        sp_check_remedy(
            check,
            "link.slow: less than half of the %.0f GB/s that the link carries, under load: a link shared with "
            "others, another NUMA node, errors (AER in the kernel's log) or throttling (nvidia-smi -q -d "
            "PERFORMANCE)",
            link);
    }
}
