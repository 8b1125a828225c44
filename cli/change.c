#include "cli/change.h"

#include "cli/subject.h"
#include "patcher/runtime.h"

#include <stdlib.h>
#include <string.h>

enum { MESSAGE_MAX = 512 };

/* ---- JSON: the state after the command ---- */

static int plan_again(struct sp_plan **plan, const struct sp_subject *subject, const char *const *names)
{
    sp_plan_free(*plan);
    *plan = NULL;
    return sp_plan_make(plan, subject->install, subject->sets, names);
}

/* What is on disk now; the error of the command, if there was one, stays. */
static int show_now(struct sp_report *report, const struct sp_subject *subject, const struct sp_plan *plan, int rc)
{
    char *message = strdup(sp_err_message());
    char *hint = strdup(sp_err_hint_text());
    struct sp_facts facts;
    int read = sp_facts_read(&facts, subject->install);

    if (read == SP_OK)
        sp_show_install(report, subject->install, plan, &facts);
    if (read == SP_OK)
        sp_facts_free(&facts);
    if (rc < 0 && message && hint)
        (void)sp_err_hint(sp_err(rc, "%s", message), "%s", hint);
    free(message);
    free(hint);
    return rc < 0 ? rc : read;
}

/* ---- text ---- */

/* "<verb> <count> <what>s<more>", after a comma when something stands before it; nothing for none. */
static void append(char *out, size_t *used, const char *verb, size_t count, const char *what, const char *more)
{
    int len;

    if (count == 0 || *used >= MESSAGE_MAX)
        return;
    len = snprintf(out + *used, MESSAGE_MAX - *used, "%s%s %zu %s%s%s", *used ? ", " : "", verb, count, what,
                   count == 1 ? "" : "s", more);
    if (len > 0)
        *used += (size_t)len;
}

/* Was a source text patched? Then it is to be compiled; nothing else has changed for anybody. */
static bool patched_source(const struct sp_changes *changes, const struct sp_patchsets *sets)
{
    bool source = false;

    for (size_t i = 0; i < changes->count && !source; i++) {
        const struct sp_change *change = &changes->item[i];
        const struct sp_patchset *set = change->set ? sp_patchset_find(sets, change->set) : NULL;

        source = set != NULL && set->checkout && strcmp(change->action, "revert") != 0;
    }
    return source;
}

/* The command without --dry-run, or what comes after it. */
static const char *next_command(struct sp_subject *subject, const struct sp_changes *changes,
                                const struct sp_change_words *words, const struct sp_apply_options *options)
{
    char again[MESSAGE_MAX];
    int used = snprintf(again, sizeof again, "%s", words->command);

    for (size_t i = 0; options->sets && options->sets[i] && used > 0 && used < MESSAGE_MAX; i++)
        used += snprintf(again + used, sizeof again - (size_t)used, " --set %s", options->sets[i]);
    if (options->dry_run)
        return sp_subject_next(subject, again);
    return patched_source(changes, subject->sets) ? sp_subject_next_source(subject, "build --upstream --probe")
                                                  : sp_subject_next(subject, "status");
}

/* Only taken out of setup's hands. */
static bool only_unmarks(const struct sp_changes *changes)
{
    return changes->count == 1 && strcmp(changes->item[0].path, SP_SETUP_MARK) == 0 &&
           strcmp(changes->item[0].action, "remove") == 0;
}

static int say(struct sp_report *report, struct sp_subject *subject, const struct sp_changes *changes,
               const struct sp_change_words *words, const struct sp_apply_options *options)
{
    char message[MESSAGE_MAX] = "";
    bool dry_run = options->dry_run;
    size_t used = 0, patched = 0;

    for (size_t i = 0; i < changes->count; i++)
        patched += changes->item[i].set != NULL;
    append(message, &used, dry_run ? words->would : words->done, patched, "file", "");
    append(message, &used, dry_run ? words->would_add : words->added, changes->count - patched, "file",
           " of sgl-pcie-runtime");
    append(message, &used, "broke", changes->broken_links, "hard link", "");
    append(message, &used, "removed", changes->bytecode, "bytecode file", "");
    if (changes->count == 0)
        return sp_report_say(report, NULL, "%s", words->nothing);
    if (only_unmarks(changes))
        return sp_report_say(report, NULL, "already applied by setup, which %s take it back any more",
                             dry_run ? "would not" : "does not");
    return sp_report_say(report, next_command(subject, changes, words, options), "%s", message);
}

/* ---- the command ---- */

static int call(struct sp_report *report, struct sp_subject *subject, const struct sp_change_words *words,
                const struct sp_apply_options *options)
{
    struct sp_changes *changes = NULL;
    struct sp_plan *plan = NULL;
    int rc = words->call(&plan, &changes, subject->install, subject->sets, options);

    if ((rc == SP_ENOPATCH || rc == SP_EDRIFT) && plan)
        (void)sp_show_files(report, plan);
    if (rc == SP_OK)
        rc = sp_show_changes(report, changes);
    if (rc == SP_OK)
        rc = say(report, subject, changes, words, options);
    if (rc == SP_OK && report->object && !options->dry_run)
        rc = plan_again(&plan, subject, options->sets);
    if (report->object)
        rc = show_now(report, subject, plan, rc);
    sp_changes_free(changes);
    sp_plan_free(plan);
    return rc;
}

int sp_change_run(const struct sp_args *args, struct sp_report *report, const struct sp_change_words *words)
{
    struct sp_apply_options options = {
        .dry_run = sp_args_has(args, "dry-run"),
        .diff = sp_args_has(args, "diff"),
        .while_running = sp_args_has(args, "while-running"),
        .by_setup = getenv(SP_BY_SETUP) != NULL,
    };
    const char **names = NULL;
    struct sp_subject subject;
    int rc = sp_subject_open(&subject, args);

    sp_report_set(report, "dry_run", json_boolean(options.dry_run));
    if (rc == SP_OK)
        rc = sp_args_values(&names, args, "set");
    options.sets = names;
    if (rc == SP_OK)
        rc = call(report, &subject, words, &options);
    free(names);
    sp_subject_close(&subject);
    return rc;
}
