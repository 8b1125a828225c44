/*
 * What an install is, file by file, and what a command would change.
 *
 * Reading and judging only: nothing here writes. apply and revert carry a plan out (patcher/apply.h); status and
 * --dry-run print it.
 */
#ifndef SP_PATCHER_PLAN_H
#define SP_PATCHER_PLAN_H

#include "patcher/install.h"
#include "patcher/patchset.h"

#include <stdbool.h>

enum sp_state {
    SP_PRISTINE,    /* the released bytes */
    SP_APPLIED,     /* our patch, current revision */
    SP_APPLIED_OLD, /* our patch, an earlier revision */
    SP_DRIFTED,     /* a known release, but not its bytes; in a checkout: the user's own change */
    SP_MISSING,     /* a known release, but no file */
    SP_UNKNOWN      /* no release that we know has these bytes */
};

struct sp_plan_file {
    const struct sp_patchset *set;
    const struct sp_text *text; /* the text it is or should be; NULL when unknown */
    const struct sp_patch *now; /* the patch it carries; NULL when pristine, drifted, missing or unknown */
    const char *path;
    enum sp_state state;
    struct sp_oid oid;      /* of the bytes on disk; hex "" when missing */
    struct sp_oid expected; /* released blob id; hex "" when unknown */
    struct sp_oid head;     /* what HEAD of a source checkout has; hex "" for none */
    struct sp_oid index;    /* the same of its index */
    const char *dirty;      /* known bytes, but a change that git holds for the user's: which; or NULL */
    struct sp_buf bytes;
};

/* State of the distribution sgl-pcie-runtime in the install. */
enum sp_runtime_state { SP_RUNTIME_ABSENT, SP_RUNTIME_PRESENT, SP_RUNTIME_DIFFERS };

struct sp_plan {
    const struct sp_release **release; /* one for each set; NULL when none matches */
    const struct sp_release **meant;   /* the same; else the one that the version, or HEAD, says it should be */
    const struct sp_patchset **set;
    bool *asked; /* one for each set: named, or one that goes without saying */
    size_t set_count;
    struct sp_plan_file *files;
    size_t file_count;
    enum sp_runtime_state runtime;
};

/* names: sets to look at, NULL-terminated; NULL for every set that belongs to this layout. A set of files that only a
 * checkout has belongs to layout source, and is asked for by name only. */
int sp_plan_make(struct sp_plan **out, const struct sp_install *install, const struct sp_patchsets *sets,
                 const char *const *names);
void sp_plan_free(struct sp_plan *plan);

/* SP_OK when every file of what was asked for is pristine, applied or applied-old; else SP_ENOPATCH (unknown release,
 * or one that is refused) or SP_EDRIFT, with the message. */
int sp_plan_check(const struct sp_plan *plan, const struct sp_install *install);

/* The path that git knows a file of a checkout by: a set's paths start at the checkout, or at its python/. */
int sp_plan_git_path(char **out, const struct sp_install *install, const struct sp_plan_file *file);

/* Was this file's set asked for? */
bool sp_plan_asked(const struct sp_plan *plan, const struct sp_plan_file *file);

/* "pristine", "applied", "applied-old", "drifted", "missing", "unknown". */
const char *sp_state_name(enum sp_state state);

#endif
