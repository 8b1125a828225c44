/*
 * What apply and revert have in common: call, show, say.
 */
#ifndef SP_CLI_CHANGE_H
#define SP_CLI_CHANGE_H

#include "cli/report.h"
#include "cli/show.h"

/* In the environment of an apply that setup calls (patcher/runtime.h: SP_SETUP_MARK). */
#define SP_BY_SETUP "SGL_PCIE_BY_SETUP"

#define SP_CHANGE_FIELDS SP_SHOW_FIELDS, "changes", "dry_run"

typedef int sp_change_call(struct sp_plan **plan, struct sp_changes **changes, const struct sp_install *install,
                           const struct sp_patchsets *sets, const struct sp_apply_options *options);

/* The words of a command. */
struct sp_change_words {
    const char *command;
    const char *nothing;           /* verdict when nothing was to do */
    const char *done, *would;      /* "patched", "would patch" */
    const char *added, *would_add; /* the same for the files of the runtime */
    sp_change_call *call;
};

int sp_change_run(const struct sp_args *args, struct sp_report *report, const struct sp_change_words *words);

#endif
