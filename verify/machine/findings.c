#include "verify/machine/findings.h"
#include "base/clean.h"
#include "base/err.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- lists ---- */

void sp_findings_free(struct sp_findings *findings)
{
    for (size_t i = 0; i < findings->count; i++) {
        free(findings->item[i].text);
        free(findings->item[i].remedy);
    }
    free(findings->item);
    memset(findings, 0, sizeof *findings);
}

int sp_finding_add(struct sp_findings *findings, const char *id, enum sp_level_of level, const char *remedy,
                   const char *fmt, ...)
{
    struct sp_finding *grown = realloc(findings->item, (findings->count + 1) * sizeof *grown);
    struct sp_finding *finding;
    va_list args;
    int len;

    if (!grown)
        return sp_err(SP_ECANNOT, "out of memory");
    findings->item = grown;
    finding = &grown[findings->count];
    memset(finding, 0, sizeof *finding);
    (void)snprintf(finding->id, sizeof finding->id, "%s", id);
    finding->level = level;
    va_start(args, fmt);
    len = vasprintf(&finding->text, fmt, args);
    va_end(args);
    if (len < 0)
        return sp_err(SP_ECANNOT, "out of memory");
    (void)sp_clean(finding->text, false);
    findings->count++;
    finding->remedy = remedy ? strdup(remedy) : NULL;
    return remedy && !finding->remedy ? sp_err(SP_ECANNOT, "out of memory") : SP_OK;
}

const struct sp_finding *sp_finding_get(const struct sp_findings *findings, const char *id)
{
    for (size_t i = 0; i < findings->count; i++)
        if (strcmp(findings->item[i].id, id) == 0)
            return &findings->item[i];
    return NULL;
}

const char *sp_level_name(enum sp_level_of level)
{
    static const char *const names[] = {"info", "warn", "fail"};

    return names[level];
}

const char *sp_candidate_name(enum sp_candidate candidate)
{
    static const char *const names[] = {"unknown", "cand", "susp", "no"};

    return names[candidate];
}

int sp_find_topology(struct sp_findings *findings, const struct sp_topology *topology)
{
    static int (*const rules[])(struct sp_findings *, const struct sp_topology *) = {
        sp_find_guest, sp_find_p2p, sp_find_platform, sp_find_bar1, sp_find_links, sp_find_layout,
    };
    int rc = SP_OK;

    for (size_t i = 0; i < sizeof rules / sizeof *rules && rc == SP_OK; i++)
        rc = rules[i](findings, topology);
    return rc;
}

/* ---- backends ---- */

static bool found(const struct sp_findings *findings, const char *id, enum sp_level_of least)
{
    const struct sp_finding *finding = sp_finding_get(findings, id);

    return finding && finding->level >= least;
}

/* What makes peer access suspect in both directions. */
static bool doubtful(const struct sp_topology *topology, const struct sp_findings *findings)
{
    if (!sp_topology_pcie(topology))
        return false;
    return found(findings, "vm.guest", SP_WARN) || found(findings, "bar1.small", SP_WARN) ||
           found(findings, "acs.redirect", SP_BAD);
}

static enum sp_candidate by_grant(enum sp_grant grant, bool mixed)
{
    static const enum sp_candidate of[] = {SP_CANDIDATE_UNKNOWN, SP_CANDIDATE_YES, SP_CANDIDATE_NO};

    /* The driver looks at the chips before it looks at anything that we cannot see. */
    return grant == SP_GRANT_UNKNOWN && mixed ? SP_CANDIDATE_SUSPECT : of[grant];
}

static enum sp_candidate worse_if(enum sp_candidate candidate, bool suspect)
{
    return suspect && candidate != SP_CANDIDATE_NO ? SP_CANDIDATE_SUSPECT : candidate;
}

void sp_candidates_of(struct sp_candidates *out, const struct sp_topology *topology, const struct sp_findings *findings)
{
    const bool doubt = doubtful(topology, findings), mixed = found(findings, "p2p.mixed-chips", SP_INFO);

    memset(out, 0, sizeof *out); /* all unknown */
    if (topology->gpu_count < 2)
        return;
    out->push = by_grant(sp_topology_all(topology, sp_topology_write), mixed);
    out->pull = by_grant(sp_topology_all(topology, sp_topology_read), mixed);
    out->push = worse_if(out->push, doubt || found(findings, "switch.write-collapse", SP_INFO));
    out->pull = worse_if(out->pull, doubt || found(findings, "p2p.read-suspect", SP_WARN));
    if (found(findings, "gpu.mig", SP_WARN))
        out->push = out->pull = SP_CANDIDATE_NO;
    out->host = SP_CANDIDATE_YES;
}
