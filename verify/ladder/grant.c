/*
 * Level 1: the findings of a topology as checks, and whether anybody else computes on these GPUs.
 *
 * Nothing is run on a GPU. A refusal of peer access is a warning, because the host transport needs none; what is known
 * to hang is a failure.
 */
#include "base/err.h"
#include "verify/ladder/ladder.h"
#include "verify/machine/survey.h"

#include <stdio.h>
#include <string.h>

#define PROCESSES "grant.processes"

enum { LEVEL = 1, IDS = 4, ACTUAL = 160 };

struct rule {
    const char *id;
    const char *expected;
    const char *ids[IDS];                                                 /* findings that speak of it */
    bool (*actual)(char out[ACTUAL], const struct sp_topology *topology); /* false: not known */
};

/* ---- what is there ---- */

static bool driver(char out[ACTUAL], const struct sp_topology *topology)
{
    const struct sp_rec_driver *is = &topology->recording->driver;

    (void)snprintf(out, ACTUAL, "%s%s%s", is->version ? is->version : "", is->module ? ", " : "",
                   is->module ? is->module : "");
    return is->version != NULL;
}

static bool guest(char out[ACTUAL], const struct sp_topology *topology)
{
    (void)snprintf(out, ACTUAL, "%s", topology->guest ? "virtual machine" : "bare metal");
    return topology->recording->machine.hypervisor != SP_ABSENT;
}

static bool mig(char out[ACTUAL], const struct sp_topology *topology)
{
    bool split = false;

    for (size_t i = 0; i < topology->gpu_count; i++)
        split = split || topology->gpu[i].is->mig == 1;
    (void)snprintf(out, ACTUAL, "%s", split ? "split" : "whole GPUs");
    return true; /* GPUs that know no MIG do not answer */
}

static bool grants(char out[ACTUAL], const struct sp_topology *topology,
                   enum sp_grant (*grant)(const struct sp_topology *, size_t, size_t))
{
    const size_t count = topology->gpu_count;
    size_t yes = 0, unknown = 0;

    for (size_t i = 0; i < count * count; i++) {
        enum sp_grant is = i / count == i % count ? SP_GRANT_NO : grant(topology, i / count, i % count);

        yes += is == SP_GRANT_YES;
        unknown += is == SP_GRANT_UNKNOWN;
    }
    (void)snprintf(out, ACTUAL, "%zu of %zu ordered pairs", yes, count * (count - 1));
    return unknown == 0;
}

static bool writes(char out[ACTUAL], const struct sp_topology *topology)
{
    return grants(out, topology, sp_topology_write);
}

static bool reads(char out[ACTUAL], const struct sp_topology *topology)
{
    return grants(out, topology, sp_topology_read);
}

static bool honest(char out[ACTUAL], const struct sp_topology *topology)
{
    const bool refused = sp_topology_refused(topology);

    (void)snprintf(out, ACTUAL, "%s",
                   refused                        ? "refused"
                   : sp_topology_forced(topology) ? "forced"
                                                  : "by the driver's own rules");
    return sp_topology_all(topology, sp_topology_write) != SP_GRANT_UNKNOWN;
}

static bool chips(char out[ACTUAL], const struct sp_topology *topology)
{
    bool known = true, same = true;

    for (size_t i = 0; i < topology->gpu_count; i++) {
        known = known && topology->gpu[i].chip != SP_ABSENT;
        same = same && topology->gpu[i].chip == topology->gpu[0].chip;
    }
    (void)snprintf(out, ACTUAL, "%s", same ? "one" : "several");
    return known;
}

static bool acs(char out[ACTUAL], const struct sp_topology *topology)
{
    size_t bridges = 0, on = 0, unknown = 0;

    for (size_t i = 0; i < topology->pci_count; i++) {
        const int64_t control = topology->pci[i].is->acs;

        if (!sp_topology_between(topology, i))
            continue;
        bridges++;
        unknown += control == SP_ABSENT;
        on += control >= 0 && (control & SP_ACS_REDIRECT);
    }
    if (bridges == 0)
        (void)snprintf(out, ACTUAL, "no bridge between them");
    else
        (void)snprintf(out, ACTUAL, "redirect on %zu of %zu bridges", on, bridges);
    if (unknown > 0)
        (void)snprintf(out, ACTUAL, "not readable on %zu of %zu bridges", unknown, bridges);
    return unknown == 0 && bridges > 0;
}

static bool iommu(char out[ACTUAL], const struct sp_topology *topology)
{
    static const char *const names[] = {"not known", "off", "pass-through", "translating"};

    (void)snprintf(out, ACTUAL, "%s", names[topology->iommu]);
    return topology->iommu != SP_IOMMU_UNKNOWN;
}

static bool bar1(char out[ACTUAL], const struct sp_topology *topology)
{
    const struct sp_topo_gpu *least = NULL;

    for (size_t i = 0; i < topology->gpu_count; i++) {
        const struct sp_topo_gpu *gpu = &topology->gpu[i];

        if (gpu->bar1 <= 0 || gpu->memory <= 0)
            return false;
        least = !least || gpu->bar1 < least->bar1 ? gpu : least;
    }
    if (least)
        (void)snprintf(out, ACTUAL, "%jd of %jd MiB", (intmax_t)(least->bar1 >> 20), (intmax_t)(least->memory >> 20));
    return least != NULL;
}

static bool width(char out[ACTUAL], const struct sp_topology *topology)
{
    int64_t least = INT64_MAX, most = 0;

    for (size_t i = 0; i < topology->gpu_count; i++) {
        const int64_t lanes = topology->gpu[i].link.width;

        if (lanes <= 0)
            return false;
        least = lanes < least ? lanes : least;
        most = lanes > most ? lanes : most;
    }
    if (least == most)
        (void)snprintf(out, ACTUAL, "x%jd", (intmax_t)most);
    else
        (void)snprintf(out, ACTUAL, "x%jd to x%jd", (intmax_t)least, (intmax_t)most);
    return topology->gpu_count > 0;
}

static bool speed(char out[ACTUAL], const struct sp_topology *topology)
{
    double least = 1e9;

    for (size_t i = 0; i < topology->gpu_count; i++) {
        const struct sp_topo_link *link = &topology->gpu[i].link;

        if (link->possible_speed <= 0)
            return false;
        least = link->possible_speed < least ? link->possible_speed : least;
    }
    (void)snprintf(out, ACTUAL, "up to %g GT/s", least);
    return topology->gpu_count > 0;
}

static bool layout(char out[ACTUAL], const struct sp_topology *topology)
{
    size_t shared = 0, sockets = 1;

    for (size_t i = 0; i < topology->pci_count; i++)
        shared += topology->pci[i].depth == 0 && topology->pci[i].gpus > 1;
    for (size_t i = 0; i < topology->gpu_count; i++) {
        if (topology->gpu[i].parent < 0)
            return false;
        sockets = topology->gpu[i].socket != topology->gpu[0].socket ? 2 : sockets;
    }
    (void)snprintf(out, ACTUAL, "%s, %zu shared link%s", sockets > 1 ? "several sockets" : "one socket", shared,
                   shared == 1 ? "" : "s");
    return topology->gpu_count > 0;
}

static const struct rule rules[] = {
    {"grant.driver", "an NVIDIA driver", {NULL}, driver},
    {"grant.guest", "bare metal", {"vm.guest"}, guest},
    {"grant.mig", "whole GPUs", {"gpu.mig"}, mig},
    {"grant.p2p-write", "all ordered pairs", {"p2p.refused", "p2p.cuda-disagrees"}, writes},
    {"grant.p2p-read", "all ordered pairs", {"p2p.refused", "p2p.cuda-disagrees", "p2p.read-suspect"}, reads},
    {"grant.p2p-honest", "by the driver's own rules", {"p2p.forced", "display.active"}, honest},
    {"grant.chips", "one", {"p2p.mixed-chips"}, chips},
    {"grant.acs", "redirect on none", {"acs.redirect"}, acs},
    {"grant.iommu", "off or pass-through", {"iommu.translated"}, iommu},
    {"grant.bar1", "covers the memory", {"bar1.small", "bar1.uneven"}, bar1},
    {"grant.link-width", "all lanes of the GPU", {"link.narrow", "link.uneven"}, width},
    {"grant.link-speed", "judged under load at level 2", {"link.idle", "link.port-pm"}, speed},
    {"grant.layout",
     "one socket, no shared link",
     {"topo.sockets", "topo.shared-uplink", "topo.chipset", "switch.write-collapse"},
     layout},
};

/* ---- checks ---- */

static const struct sp_finding *worst(const struct sp_findings *findings, const struct rule *rule)
{
    const struct sp_finding *worst = NULL;

    for (size_t i = 0; i < IDS && rule->ids[i]; i++) {
        const struct sp_finding *finding = sp_finding_get(findings, rule->ids[i]);

        if (finding && (!worst || finding->level > worst->level))
            worst = finding;
    }
    return worst;
}

static int run_rule(struct sp_ladder *ladder, const struct rule *rule)
{
    static const enum sp_check_status by_level[] = {SP_CHECK_PASS, SP_CHECK_WARN, SP_CHECK_FAIL};
    const double start = sp_now_ms();
    const struct sp_finding *finding = worst(ladder->findings, rule);
    char actual[ACTUAL] = "";
    struct sp_check *check;
    bool known;
    int rc = sp_check_new(&check, &ladder->checks, LEVEL, "%s", rule->id);

    if (rc < 0)
        return rc;
    known = rule->actual(actual, ladder->topology);
    check->status = finding ? by_level[finding->level] : known ? SP_CHECK_PASS : SP_CHECK_SKIP;
    sp_check_expect(check, "%s", rule->expected);
    sp_check_actual(check, "%s", actual[0] ? actual : "not known");
    if (finding && finding->remedy)
        sp_check_remedy(check, "%s", finding->remedy);
    check->duration_ms = sp_now_ms() - start;
    return SP_OK;
}

static int check_gpus(struct sp_ladder *ladder)
{
    const double start = sp_now_ms();
    struct sp_check *check;
    int rc = sp_check_new(&check, &ladder->checks, LEVEL, "grant.gpus");

    if (rc < 0)
        return rc;
    check->expected = json_integer(2);
    check->actual = json_integer((json_int_t)ladder->topology->gpu_count);
    check->unit = "GPUs";
    check->status = ladder->topology->gpu_count >= 2 ? SP_CHECK_PASS : SP_CHECK_FAIL;
    check->duration_ms = sp_now_ms() - start;
    return SP_OK;
}

static int put_process(struct sp_buf *list, const struct sp_rec_process *process)
{
    int rc = sp_buf_printf(list, "%s", list->len ? ", " : "");

    if (rc < 0)
        return rc;
    if (process->pid > 0)
        return sp_buf_printf(list, "pid %jd on GPU %jd", (intmax_t)process->pid, (intmax_t)process->gpu);
    if (process->memory > 0)
        return sp_buf_printf(list, "%jd MiB in use on GPU %jd by processes that cannot be seen from here",
                             (intmax_t)(process->memory >> 20), (intmax_t)process->gpu);
    return sp_buf_printf(list, "a process on GPU %jd that cannot be seen from here", (intmax_t)process->gpu);
}

/* Whoever else computes spoils every figure, and may be what makes a check fail. */
static int blame(struct sp_checks *checks, const char *whom)
{
    struct sp_check *check = sp_check_find(checks, PROCESSES);
    int rc = check ? SP_OK : sp_check_new(&check, checks, LEVEL, PROCESSES);

    if (rc == SP_OK) {
        check->status = SP_CHECK_INCONCLUSIVE;
        sp_check_expect(check, "nobody else computes on these GPUs");
        sp_check_actual(check, "%s", whom);
        sp_check_remedy(check, "stop them (nvidia-smi on the host lists them), or choose other GPUs with --gpus");
    }
    return rc;
}

int sp_check_others(struct sp_checks *checks, const struct sp_topology *topology)
{
    struct sp_buf list = SP_BUF_INIT;
    int rc = SP_OK;

    for (size_t i = 0; i < topology->recording->process_count && rc == SP_OK; i++)
        for (size_t k = 0; k < topology->gpu_count && rc == SP_OK; k++)
            if ((size_t)topology->recording->processes[i].gpu == topology->gpu[k].number)
                rc = put_process(&list, &topology->recording->processes[i]);
    if (rc == SP_OK && list.len)
        rc = blame(checks, list.data);
    sp_buf_free(&list);
    return rc;
}

int sp_check_others_now(struct sp_checks *checks, const char *gpus)
{
    struct sp_survey survey = {.choice = {.count = 0}};
    int rc = sp_survey_make(&survey, NULL, gpus);

    if (rc == SP_OK)
        rc = sp_choice_check(&survey.choice, &survey.recording);
    if (rc == SP_OK)
        rc = sp_check_others(checks, &survey.topology);
    sp_survey_free(&survey);
    return rc;
}

static int check_processes(struct sp_ladder *ladder)
{
    const double start = sp_now_ms();
    struct sp_check *check;
    int rc = sp_check_new(&check, &ladder->checks, LEVEL, PROCESSES);

    if (rc < 0)
        return rc;
    check->status = SP_CHECK_PASS;
    sp_check_expect(check, "nobody else computes on these GPUs");
    sp_check_actual(check, "nobody");
    rc = sp_check_others(&ladder->checks, ladder->topology);
    check->duration_ms = sp_now_ms() - start;
    return rc;
}

int sp_run_grant(struct sp_ladder *ladder)
{
    int rc = check_gpus(ladder);

    for (size_t i = 0; i < sizeof rules / sizeof *rules && rc == SP_OK; i++)
        rc = run_rule(ladder, &rules[i]);
    if (rc == SP_OK)
        rc = check_processes(ladder);
    return rc;
}
