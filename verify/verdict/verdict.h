/*
 * The verdict: what the checks of a ladder prove about an install on this machine, per backend, world and set of GPUs.
 *
 * sp_verdict_judge() is pure: it looks at ids and statuses of checks and at nothing else. A backend passes on a set of
 * GPUs when every check that it needs was run and passed: its kernels on that set, its transfers between all ordered
 * pairs of the set, the control, and nobody else at work. A check that is missing, was skipped, or is inconclusive
 * never makes a PASS. Where the control fails the machine itself is in doubt, and a failure proves nothing about P2P:
 * INCONCLUSIVE.
 *
 *     id of a check            what it says                                              needed by
 *     grant.processes          nobody else computes on these GPUs                        all
 *     control.A                GPU A and its way to host memory work by themselves       all with A
 *     nccl.host                NCCL gives right sums without peer access                 all, once it was run
 *     transfers.end            a program that ended badly, and named no check            all, where it is there
 *     store.A-B                SM stores of A into B's memory arrive                     push
 *     store-flag.A-B           a flag stored after data is not seen before it            push
 *     store-all.A-B            stores arrive while all pairs store                       push
 *     load.A-B                 SM loads of A from B's memory are right                   pull
 *     load-flag.A-B            what B flagged, A loads                                   pull
 *     load-all.A-B             loads are right while all pairs load                      pull
 *     host.A-B                 what A stores into host memory, B loads, all at once      host
 *     host-flag.A-B            a flag in host memory is not seen before its data         host
 *     kernels.BACKEND.A-B-…    every algorithm of the backend, on these GPUs             BACKEND
 *     death.BACKEND.A-B-…      the others notice when a rank dies; as soak                BACKEND
 *     soak.BACKEND.A-B-…       the same, for long; needed once it was run, on all sets    BACKEND
 *
 * A and B are NVML's numbers. The copy engine (copy.A-B, copy-all.A-B) and NCCL as it comes (nccl.default) are
 * judged and reported and needed by nobody. nccl.host counts where it gave wrong sums or hung; where there is no
 * NCCL, or it cannot start, nothing follows. Formats: docs/formats.md, docs/json-schema/verdict.schema.json.
 */
#ifndef SP_VERDICT_VERDICT_H
#define SP_VERDICT_VERDICT_H

#include "base/file.h"
#include "verify/machine/topology.h"
#include "verify/verdict/check.h"

#define SP_VERDICT_FILE   "verdict.json"
#define SP_VERDICT_SCHEMA "sgl-pcie-verdict/1"

#define SP_TRANSFERS_END "transfers.end"
#define SP_RIVAL_HOST    "nccl.host"

enum { SP_VERDICT_LEVEL = 3, SP_WORLD_MAX = 8 }; /* the level that counts */

/* The GPUs that checks speak of. */
struct sp_subjects {
    size_t count;
    size_t number[SP_REC_GPUS_MAX]; /* NVML's */
    const char *uuid[SP_REC_GPUS_MAX];
};

void sp_subjects_of(struct sp_subjects *out, const struct sp_topology *topology);

/* "push", "pull" or "host"; NULL ends the list. */
extern const char *const sp_backends[];

/* Kinds of transfers that a backend needs between each ordered pair, NULL-terminated; NULL for an unknown backend. */
const char *const *sp_backend_needs(const char *backend);

/* Does a control say that the machine errs without any of this? Then no earlier proof counts either. */
bool sp_verdict_doubts(const struct sp_checks *checks);

/* *results and *pairs: new arrays as verdict.json has them. SP_ECANNOT without memory. */
int sp_verdict_judge(json_t **results, json_t **pairs, const struct sp_checks *checks, const struct sp_subjects *gpus);

/* What the checks of a climb to this level proved, bound to the machine and the install as they are now: a new object.
 * before: the same table (bound.h) from before the climb; SP_ECANNOT where something changed meanwhile, since nobody
 * knows what was tested. */
int sp_verdict_make(json_t **out, const struct sp_checks *checks, const struct sp_topology *topology, int level,
                    const char *site, const json_t *before);

/* Does this run say anything that an earlier verdict does not know? One below the needed level that found nothing
 * wrong, and has no doubt about the machine, does not, and neither does one that was kept from running. */
bool sp_verdict_counts(const struct sp_checks *checks, int level);

struct sp_verdict_now {
    bool present, fresh;
    const char *result; /* "PASS", "FAIL", "INCONCLUSIVE"; NULL: no verdict */
    int level;
    json_t *reasons;                  /* array of sentences: what is missing, or what changed */
    json_t *content;                  /* the file, or NULL */
    char *found;                      /* its path, or why there is none */
    char upstream[SP_SHA256_HEX + 1]; /* of SGLang's own kernel, rebuilt, as installed; "": none */
};

/* The verdict of an install as it stands now. To be freed in any case. */
int sp_verdict_read(struct sp_verdict_now *out, const char *site);
void sp_verdict_free(struct sp_verdict_now *now);

/* Does it prove something, and is nothing missing or changed? */
bool sp_verdict_holds(const struct sp_verdict_now *now);

/* "PASS of level 3: host 2,3,4; push 2": what passed, by backend and world. For the caller to free; NULL: no memory. */
char *sp_verdict_summary(const struct sp_verdict_now *now);

#endif
