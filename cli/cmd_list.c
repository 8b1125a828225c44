#include "cli/report.h"
#include "cli/show.h"
#include "patcher/patchset.h"

#include <stdlib.h>
#include <string.h>

static const char *const description[] = {
    "Lists the patch sets, the files that each of them touches with the number of texts it knows of each, and the "
    "releases that have these texts. With -v every text and every release is listed. No install is looked at.",
    "The files of a set \"of a source checkout\" lie below the checkout and are in no wheel; those of any other lie "
    "beside sglang/.",
    NULL,
};

static const struct sp_option options[] = {{.name = NULL}};

static const struct sp_exit exits[] = {
    {0, "listed"},
    {1, "the data that came with this program is damaged"},
    {2, "wrong arguments"},
    {5, "that data cannot be read"},
    {-1, NULL},
};

static const struct sp_example examples[] = {
    {"sgl-pcie list -v", "every text and release"},
    {NULL, NULL},
};

static const char *const fields[] = {"sets", NULL};

/* ---- JSON ---- */

static json_t *text_json(const struct sp_text *text)
{
    json_t *object = json_object();
    json_t *old = json_array();

    for (size_t i = 0; i < text->old_count; i++)
        (void)json_array_append_new(old, sp_json_text(text->old[i].post.hex));
    (void)json_object_set_new(object, "path", sp_json_text(text->path));
    (void)json_object_set_new(object, "oid", sp_json_text(text->pre.hex));
    (void)json_object_set_new(object, "patched_oid", sp_json_text(text->patch.post.hex));
    (void)json_object_set_new(object, "patched_old_oids", old);
    (void)json_object_set_new(object, "patch", sp_json_text(text->patch.file));
    (void)json_object_set_new(object, "revision", json_integer((json_int_t)text->patch.revision));
    return object;
}

static json_t *release_json(const struct sp_release *release)
{
    json_t *object = json_object();
    json_t *files = json_array();

    for (size_t i = 0; i < release->file_count; i++) {
        json_t *file = json_object();

        (void)json_object_set_new(file, "path", sp_json_text(release->files[i].path));
        (void)json_object_set_new(file, "oid", sp_json_text(release->files[i].pre.hex));
        (void)json_array_append_new(files, file);
    }
    (void)json_object_set_new(object, "version", sp_json_text(release->version));
    (void)json_object_set_new(object, "refuse", sp_json_text(release->refuse));
    (void)json_object_set_new(object, "files", files);
    return object;
}

static json_t *set_json(const struct sp_patchset *set)
{
    json_t *object = json_object();
    json_t *texts = json_array();
    json_t *releases = json_array();

    for (size_t i = 0; i < set->text_count; i++)
        (void)json_array_append_new(texts, text_json(&set->texts[i]));
    for (size_t i = 0; i < set->release_count; i++)
        (void)json_array_append_new(releases, release_json(&set->releases[i]));
    (void)json_object_set_new(object, "name", sp_json_text(set->name));
    (void)json_object_set_new(object, "summary", sp_json_text(set->summary));
    (void)json_object_set_new(object, "base", sp_json_text(set->checkout ? "checkout" : "root"));
    (void)json_object_set_new(object, "revision", json_integer((json_int_t)set->revision));
    (void)json_object_set_new(object, "texts", texts);
    (void)json_object_set_new(object, "releases", releases);
    return object;
}

static json_t *sets_json(const struct sp_patchsets *sets)
{
    json_t *array = json_array();

    for (size_t i = 0; i < sets->count; i++)
        (void)json_array_append_new(array, set_json(&sets->sets[i]));
    return array;
}

/* ---- text ---- */

static bool same_path_before(const struct sp_patchset *set, size_t index)
{
    for (size_t i = 0; i < index; i++)
        if (strcmp(set->texts[i].path, set->texts[index].path) == 0)
            return true;
    return false;
}

static size_t texts_of_path(const struct sp_patchset *set, const char *path)
{
    size_t count = 0;

    for (size_t i = 0; i < set->text_count; i++)
        count += strcmp(set->texts[i].path, path) == 0;
    return count;
}

static int path_rows(struct sp_table *table, const struct sp_patchset *set)
{
    char count[32];
    int rc = SP_OK;

    for (size_t i = 0; i < set->text_count && rc == SP_OK; i++) {
        const char *const cells[] = {set->texts[i].path, count};

        if (same_path_before(set, i))
            continue;
        (void)snprintf(count, sizeof count, "%zu", texts_of_path(set, set->texts[i].path));
        rc = sp_table_row(table, cells);
    }
    return rc;
}

static int text_rows(struct sp_table *table, const struct sp_report *report, const struct sp_patchset *set)
{
    char pre[SP_OID_HEX + 1], post[SP_OID_HEX + 1];
    int rc = SP_OK;

    for (size_t i = 0; i < set->text_count && rc == SP_OK; i++) {
        const struct sp_text *text = &set->texts[i];
        const char *const cells[] = {
            text->path,
            sp_show_oid(pre, report, &text->pre),
            sp_show_oid(post, report, &text->patch.post),
        };

        rc = sp_table_row(table, cells);
    }
    return rc;
}

static int print_texts(const struct sp_report *report, const struct sp_patchset *set)
{
    static const char *const paths[] = {"file", "texts"};
    static const char *const texts[] = {"file", "released", "patched"};
    struct sp_table *table;
    int rc = sp_table_new(&table, report->verbose ? 3 : 2, report->verbose ? texts : paths);

    if (rc == SP_OK)
        rc = report->verbose ? text_rows(table, report, set) : path_rows(table, set);
    if (rc == SP_OK)
        sp_report_table(report, table, NULL);
    else
        sp_table_free(table);
    return rc;
}

static bool same_reason(const struct sp_release *a, const struct sp_release *b)
{
    return a->refuse && b->refuse && strcmp(a->refuse, b->refuse) == 0;
}

/* One row for the releases from first to last, which are refused for the same reason or not at all. */
static int release_row(struct sp_table *table, const struct sp_release *first, const struct sp_release *last)
{
    char *range = NULL;
    int rc;

    if (asprintf(&range, "%s%s%s", first->version, first == last ? "" : " to ", first == last ? "" : last->version) < 0)
        return sp_err(SP_ECANNOT, "out of memory");
    rc = sp_table_row(table, (const char *const[]){range, first->refuse ? first->refuse : "patched"});
    free(range);
    return rc;
}

/* Every release when verbose, else those that are refused, with the reason once. */
static int release_rows(struct sp_table *table, const struct sp_report *report, const struct sp_patchset *set)
{
    const struct sp_release *releases = set->releases;
    int rc = SP_OK;

    for (size_t i = 0, last; i < set->release_count && rc == SP_OK; i = last + 1) {
        last = i;
        while (!report->verbose && last + 1 < set->release_count && same_reason(&releases[i], &releases[last + 1]))
            last++;
        if (report->verbose || releases[i].refuse)
            rc = release_row(table, &releases[i], &releases[last]);
    }
    return rc;
}

static int print_releases(const struct sp_report *report, const struct sp_patchset *set)
{
    struct sp_table *table;
    int rc = sp_table_new(&table, 2, NULL);

    if (rc == SP_OK)
        rc = release_rows(table, report, set);
    if (rc == SP_OK)
        sp_report_table(report, table, NULL);
    else
        sp_table_free(table);
    return rc;
}

static int print_set(const struct sp_report *report, const struct sp_patchset *set)
{
    char text[64] = "";
    size_t refused = 0;
    int rc;

    for (size_t i = 0; i < set->release_count; i++)
        refused += set->releases[i].refuse != NULL;
    (void)printf("%s, revision %u%s: %s\n\n", set->name, set->revision, set->checkout ? ", of a source checkout" : "",
                 set->summary);
    rc = print_texts(report, set);
    if (refused > 0)
        (void)snprintf(text, sizeof text, ", %zu of them not patched", refused);
    if (set->release_count > 0)
        (void)printf("\n%zu releases, %s to %s%s%s\n", set->release_count, set->releases[0].version,
                     set->releases[set->release_count - 1].version, text, refused || report->verbose ? ":" : "");
    if (rc == SP_OK)
        rc = print_releases(report, set);
    (void)putchar('\n');
    return rc;
}

/* ---- the command ---- */

static int run(const struct sp_args *args, struct sp_report *report)
{
    struct sp_patchsets *sets = NULL;
    int rc = sp_patchsets_load(&sets, NULL);

    (void)args;
    if (rc == SP_OK && report->object)
        sp_report_set(report, "sets", sets_json(sets));
    for (size_t i = 0; rc == SP_OK && report->text && i < sets->count; i++)
        rc = print_set(report, &sets->sets[i]);
    if (rc == SP_OK)
        rc = sp_report_say(report, "sgl-pcie status", "%zu patch set%s", sets->count, sets->count == 1 ? "" : "s");
    sp_patchsets_free(sets);
    return rc;
}

const struct sp_command sp_cmd_list = {
    .name = "list",
    .summary = "list the patch sets, the files they touch and the releases they know",
    .description = description,
    .options = options,
    .exits = exits,
    .examples = examples,
    .fields = fields,
    .run = run,
};
