/*
 * What status, apply and revert show of an install, each as text and as JSON.
 */
#ifndef SP_CLI_SHOW_H
#define SP_CLI_SHOW_H

#include "cli/report.h"
#include "patcher/apply.h"
#include "patcher/extension.h"
#include "patcher/flag.h"
#include "verify/verdict/profile.h"
#include "verify/verdict/verdict.h"

/* Keys of the JSON object that sp_show_install() sets, for the table of commands. */
#define SP_SHOW_FIELDS "install", "pending", "flag", "extension", "verdict", "profile"

/* The parts of an install that are not in a plan. */
struct sp_facts {
    struct sp_flag flag;
    struct sp_extension extension;
    struct sp_verdict_now verdict;
    struct sp_profile_now profile;
    int pending; /* 0, or SP_EINTERRUPTED */
};

/* To be freed when it returned SP_OK. */
int sp_facts_read(struct sp_facts *out, const struct sp_install *install);

void sp_facts_free(struct sp_facts *facts);

/* By which the profile is read: the content of the verdict; NULL: none holds. */
const json_t *sp_facts_verdict(const struct sp_facts *facts);

/* Set the keys of SP_SHOW_FIELDS. plan may be NULL: files are then null. */
void sp_show_install(struct sp_report *report, const struct sp_install *install, const struct sp_plan *plan,
                     const struct sp_facts *facts);

/* A table of all files with the ids expected and found. */
int sp_show_files(const struct sp_report *report, const struct sp_plan *plan);

/* A table of changes, and their diffs where they have one; the key "changes". */
int sp_show_changes(struct sp_report *report, const struct sp_changes *changes);

/* "absent", "present", "differs". */
const char *sp_runtime_name(enum sp_runtime_state state);

/* An id as text: short unless verbose, "-" when there is none. out: SP_OID_HEX + 1 bytes. */
const char *sp_show_oid(char *out, const struct sp_report *report, const struct sp_oid *oid);

#endif
