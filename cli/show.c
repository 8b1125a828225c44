#include "cli/show.h"

#include <string.h>

enum { SHORT_OID = 12 };

int sp_facts_read(struct sp_facts *out, const struct sp_install *install)
{
    int rc;

    memset(out, 0, sizeof *out);
    rc = sp_flag_read(&out->flag, install->site_fd);
    if (rc == SP_OK)
        rc = sp_extension_read(&out->extension, install->site_fd);
    if (rc == SP_OK)
        out->pending = sp_pending_check(install);
    if (out->pending < 0 && out->pending != SP_EINTERRUPTED)
        rc = out->pending;
    if (rc == SP_OK)
        rc = sp_verdict_read(&out->verdict, install->site);
    if (rc == SP_OK)
        rc = sp_profile_read(&out->profile, install->site, sp_facts_verdict(out));
    if (rc < 0)
        sp_facts_free(out);
    return rc;
}

const json_t *sp_facts_verdict(const struct sp_facts *facts)
{
    return sp_verdict_holds(&facts->verdict) ? facts->verdict.content : NULL;
}

void sp_facts_free(struct sp_facts *facts)
{
    sp_verdict_free(&facts->verdict);
    sp_profile_free(&facts->profile);
}

const char *sp_runtime_name(enum sp_runtime_state state)
{
    static const char *const names[] = {"absent", "present", "differs"};

    return names[state];
}

const char *sp_show_oid(char *out, const struct sp_report *report, const struct sp_oid *oid)
{
    size_t len = report->verbose ? SP_OID_HEX : SHORT_OID;

    if (oid->hex[0] == '\0')
        return "-";
    memcpy(out, oid->hex, len);
    out[len] = '\0';
    return out;
}

/* ---- JSON ---- */

static json_t *file_json(const struct sp_plan_file *file)
{
    json_t *object = json_object();

    (void)json_object_set_new(object, "path", sp_json_text(file->path));
    (void)json_object_set_new(object, "set", sp_json_text(file->set->name));
    (void)json_object_set_new(object, "state", sp_json_text(sp_state_name(file->state)));
    (void)json_object_set_new(object, "oid", sp_json_text(file->oid.hex));
    (void)json_object_set_new(object, "expected_oid", sp_json_text(file->expected.hex));
    return object;
}

static json_t *files_json(const struct sp_plan *plan)
{
    json_t *array;

    if (!plan)
        return json_null();
    array = json_array();
    for (size_t i = 0; i < plan->file_count; i++)
        (void)json_array_append_new(array, file_json(&plan->files[i]));
    return array;
}

static json_t *install_json(const struct sp_install *install, const struct sp_plan *plan)
{
    json_t *object = json_object();

    (void)json_object_set_new(object, "sglang", sp_json_text(install->sglang));
    (void)json_object_set_new(object, "kernel", sp_json_text(install->kernel));
    (void)json_object_set_new(object, "layout", sp_json_text(sp_layout_name(install->layout)));
    (void)json_object_set_new(object, "root", sp_json_text(install->root));
    (void)json_object_set_new(object, "site", sp_json_text(install->site));
    (void)json_object_set_new(object, "checkout", sp_json_text(install->checkout));
    (void)json_object_set_new(object, "python", sp_json_text(install->python));
    (void)json_object_set_new(object, "runtime", plan ? sp_json_text(sp_runtime_name(plan->runtime)) : json_null());
    (void)json_object_set_new(object, "files", files_json(plan));
    return object;
}

static json_t *flag_json(const struct sp_flag *flag)
{
    json_t *object = json_object();

    (void)json_object_set_new(object, "value", sp_json_text(flag->value));
    (void)json_object_set_new(object, "source", sp_json_text(flag->source));
    return object;
}

static json_t *extension_json(const struct sp_extension *extension)
{
    json_t *object = json_object();

    (void)json_object_set_new(object, "present", json_boolean(extension->present));
    (void)json_object_set_new(object, "sha256", sp_json_text(extension->sha256));
    return object;
}

static json_t *verdict_json(const struct sp_verdict_now *verdict)
{
    return json_pack("{s:b, s:b, s:s?, s:O}", "present", verdict->present, "fresh", verdict->fresh, "result",
                     verdict->result, "reasons", verdict->reasons);
}

static json_t *profile_json(const struct sp_profile_now *profile)
{
    return json_pack("{s:b, s:b, s:b, s:s?}", "present", profile->present, "fresh", profile->fresh, "wins",
                     profile->says == SP_SERVED_FASTER, "reason", profile->reason);
}

void sp_show_install(struct sp_report *report, const struct sp_install *install, const struct sp_plan *plan,
                     const struct sp_facts *facts)
{
    if (!report->object)
        return;
    sp_report_set(report, "install", install_json(install, plan));
    sp_report_set(report, "pending", json_boolean(facts->pending < 0));
    sp_report_set(report, "flag", flag_json(&facts->flag));
    sp_report_set(report, "extension", extension_json(&facts->extension));
    sp_report_set(report, "verdict", verdict_json(&facts->verdict));
    sp_report_set(report, "profile", profile_json(&facts->profile));
}

static json_t *changes_json(const struct sp_changes *changes)
{
    json_t *array = json_array();

    for (size_t i = 0; i < changes->count; i++) {
        const struct sp_change *change = &changes->item[i];
        json_t *object = json_object();

        (void)json_object_set_new(object, "path", sp_json_text(change->path));
        (void)json_object_set_new(object, "action", sp_json_text(change->action));
        (void)json_object_set_new(object, "set", sp_json_text(change->set));
        (void)json_object_set_new(object, "from", sp_json_text(change->from.hex));
        (void)json_object_set_new(object, "to", sp_json_text(change->to.hex));
        (void)json_object_set_new(object, "diff", sp_json_text(change->diff.data));
        (void)json_array_append_new(array, object);
    }
    return array;
}

/* ---- text ---- */

static const char *paint_state(size_t column, const char *cell)
{
    static const char *const colours[][2] = {
        {"applied", "32"}, {"applied-old", "33"}, {"drifted", "31"}, {"missing", "31"}, {"unknown", "31"},
    };

    for (size_t i = 0; column == 2 && i < sizeof colours / sizeof *colours; i++)
        if (strcmp(colours[i][0], cell) == 0)
            return colours[i][1];
    return NULL;
}

int sp_show_files(const struct sp_report *report, const struct sp_plan *plan)
{
    static const char *const headers[] = {"file", "set", "state", "found", "released"};
    char found[SP_OID_HEX + 1], expected[SP_OID_HEX + 1];
    struct sp_table *table;
    int rc;

    if (!report->text || plan->file_count == 0)
        return SP_OK;
    rc = sp_table_new(&table, sizeof headers / sizeof *headers, headers);
    for (size_t i = 0; i < plan->file_count && rc == SP_OK; i++) {
        const struct sp_plan_file *file = &plan->files[i];
        const char *const cells[] = {
            file->path,
            file->set->name,
            sp_state_name(file->state),
            sp_show_oid(found, report, &file->oid),
            sp_show_oid(expected, report, &file->expected),
        };

        rc = sp_table_row(table, cells);
    }
    if (rc == SP_OK)
        sp_report_table(report, table, paint_state);
    else
        sp_table_free(table);
    return rc;
}

/* Files of the runtime are many and alike: they are counted, and listed only when verbose. */
static bool listed(const struct sp_report *report, const struct sp_change *change)
{
    return change->set || report->verbose;
}

static bool any_listed(const struct sp_report *report, const struct sp_changes *changes)
{
    for (size_t i = 0; i < changes->count; i++)
        if (listed(report, &changes->item[i]))
            return true;
    return false;
}

static int changes_table(const struct sp_report *report, const struct sp_changes *changes)
{
    static const char *const headers[] = {"file", "set", "action", "from", "to"};
    char from[SP_OID_HEX + 1], to[SP_OID_HEX + 1];
    struct sp_table *table;
    int rc = sp_table_new(&table, sizeof headers / sizeof *headers, headers);

    for (size_t i = 0; i < changes->count && rc == SP_OK; i++) {
        const struct sp_change *change = &changes->item[i];
        const char *const cells[] = {
            change->path,
            change->set ? change->set : "-",
            change->action,
            sp_show_oid(from, report, &change->from),
            sp_show_oid(to, report, &change->to),
        };

        if (listed(report, change))
            rc = sp_table_row(table, cells);
    }
    if (rc == SP_OK)
        sp_report_table(report, table, NULL);
    else
        sp_table_free(table);
    return rc;
}

static void print_diff_line(const struct sp_report *report, const char *line, size_t len)
{
    const char *colour = NULL;

    if (report->colour && len > 0)
        colour = line[0] == '+' ? "32" : line[0] == '-' ? "31" : line[0] == '@' ? "36" : NULL;
    if (colour)
        (void)printf("\033[%sm%.*s\033[0m\n", colour, (int)len, line);
    else
        (void)printf("%.*s\n", (int)len, line);
}

static void print_diff(const struct sp_report *report, const char *diff)
{
    if (diff && *diff)
        (void)putchar('\n');
    while (diff && *diff) {
        size_t len = strcspn(diff, "\n");

        print_diff_line(report, diff, len);
        diff += len + (diff[len] == '\n');
    }
}

int sp_show_changes(struct sp_report *report, const struct sp_changes *changes)
{
    int rc = SP_OK;

    if (report->object)
        sp_report_set(report, "changes", changes_json(changes));
    if (report->text && any_listed(report, changes))
        rc = changes_table(report, changes);
    for (size_t i = 0; report->text && i < changes->count; i++)
        print_diff(report, changes->item[i].diff.data);
    if (report->text && any_listed(report, changes))
        (void)putchar('\n');
    return rc;
}
