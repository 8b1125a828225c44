#include "faults.h"

#include <stdio.h>
#include <string.h>

static const double dead_limit_s = 1.0;  /* from the death of a process until every rank knows */
static const double raise_limit_s = 5.0; /* until the engine's own synchronisation fails: the driver's part in it */

static int blame(char *why, size_t size, int rank, const char *what, double got)
{
    if (why[0] == '\0')
        snprintf(why, size, "rank %d: %.300s (%.2f)", rank, what, got);
    return 0;
}

/* How long after the fault a rank knew. In engine mode its main thread waits for the driver to report the trap. */
double fault_knew_after(const fault_job *j, int rank)
{
    const fault_witness *w = &j->scene->seen[rank];
    double at = j->fault->mode == PAR_MODE_ENGINE ? w->told_at : w->noticed_at;

    return at > 0 ? at - j->scene->struck_at : FAULT_PATIENCE_S;
}

/* Every survivor knew in time, by that error, with the victim's rank. */
static int survivors_know(const fault_job *j, int error, double earliest, double latest, char *why, size_t size)
{
    int r, good = 1;

    for (r = 0; r < j->world; r++) {
        const fault_witness *w = &j->scene->seen[r];
        double after = fault_knew_after(j, r);
        if (r == j->victim)
            continue;
        if (after < earliest || after > latest)
            good = blame(why, size, r, "knew after seconds", after);
        else if (w->report.error != error)
            good = blame(why, size, r, w->report.text[0] != '\0' ? w->report.text : "no report, or another error",
                         w->report.error);
        else if (w->report.peer != j->victim)
            good = blame(why, size, r, "the report names another rank", w->report.peer);
        else if (w->left != 0)
            good = blame(why, size, r, "memory files left after close", w->left);
    }
    return good;
}

int fault_verdict_dead(const fault_job *j, const ranks_outcome *o, char *why, size_t size)
{
    int good = survivors_know(j, PAR_ERR_PEER_DIED, 0, dead_limit_s, why, size), r;

    (void)o;
    for (r = 0; r < j->world && j->fault->mode == PAR_MODE_ENGINE; r++) {
        const fault_witness *w = &j->scene->seen[r];
        if (r == j->victim)
            continue;
        if (!w->raised)
            good = blame(why, size, r, "engine mode, but its synchronisation raised nothing", 0);
        else if (w->noticed_at - j->scene->struck_at > raise_limit_s)
            good = blame(why, size, r, "its synchronisation raised after seconds", w->noticed_at - j->scene->struck_at);
    }
    return good;
}

static int names_victim(const fault_job *j, const char *line)
{
    char name[16];

    snprintf(name, sizeof(name), "rank %d", j->victim);
    return strstr(line, name) != NULL;
}

int fault_verdict_absent(const fault_job *j, const ranks_outcome *o, char *why, size_t size)
{
    double limit = j->fault->timeout_s;
    int good = survivors_know(j, PAR_ERR_TIMEOUT, limit - 0.2, limit + 1, why, size), r;

    (void)o;
    for (r = 0; r < j->world; r++)
        if (j->scene->seen[r].status != PAR_ERR_ABORTED)
            good = blame(why, size, r, "status is not aborted", j->scene->seen[r].status);
    return good;
}

int fault_verdict_late(const fault_job *j, const ranks_outcome *o, char *why, size_t size)
{
    int r, good = o->code == 0;

    if (!good)
        blame(why, size, 0, "a late rank is no failure, but the code is", o->code);
    for (r = 0; r < j->world; r++) {
        const fault_witness *w = &j->scene->seen[r];
        if (w->status != 0 || w->wrong != 0)
            good = blame(why, size, r, "aborted or wrong data", w->status);
        else if (r != j->victim && !names_victim(j, w->log))
            good = blame(why, size, r, w->log[0] != '\0' ? w->log : "nothing logged about the late rank", 0);
    }
    return good;
}

int fault_verdict_overlap(const fault_job *j, const ranks_outcome *o, char *why, size_t size)
{
    const fault_witness *w = &j->scene->seen[j->victim];
    int r, good = 1;

    (void)o;
    if (w->report.error != PAR_ERR_OVERLAP)
        good = blame(why, size, j->victim, "the report is not about an overlap", w->report.error);
    if (w->noticed_at - j->scene->struck_at > 1)
        good = blame(why, size, j->victim, "knew after seconds", w->noticed_at - j->scene->struck_at);
    for (r = 0; r < j->world; r++)
        if (j->scene->seen[r].status != PAR_ERR_ABORTED)
            good = blame(why, size, r, "status is not aborted", j->scene->seen[r].status);
    return good;
}

int fault_verdict_abort(const fault_job *j, const ranks_outcome *o, char *why, size_t size)
{
    (void)o;
    return survivors_know(j, PAR_ERR_ABORTED, 0, dead_limit_s, why, size);
}

/* par_create() failed on all others, each with a text that names the victim. */
int fault_verdict_create(const fault_job *j, const ranks_outcome *o, char *why, size_t size)
{
    double limit = j->fault->kills ? dead_limit_s : 2 * j->fault->timeout_s + 1;
    int r, good = 1;

    (void)o;
    for (r = 0; r < j->world; r++) {
        const fault_witness *w = &j->scene->seen[r];
        double after = w->noticed_at - j->scene->struck_at;
        if (r == j->victim)
            continue;
        if (w->create == 0)
            good = blame(why, size, r, "par_create() succeeded or never returned", 0);
        else if (after > limit)
            good = blame(why, size, r, "knew after seconds", after);
        else if (!names_victim(j, w->text))
            good = blame(why, size, r, w->text, w->create);
        else if (w->left != 0)
            good = blame(why, size, r, "memory files left", w->left);
    }
    return good;
}
