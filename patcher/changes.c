#include "patcher/changes.h"
#include "base/err.h"

#include <git2.h>
#include <stdlib.h>
#include <string.h>

static int diff_line(const git_diff_delta *delta, const git_diff_hunk *hunk, const git_diff_line *line, void *payload)
{
    struct sp_buf *out = payload;
    int rc = 0;

    (void)delta;
    (void)hunk;
    if (line->origin == GIT_DIFF_LINE_CONTEXT || line->origin == GIT_DIFF_LINE_ADDITION ||
        line->origin == GIT_DIFF_LINE_DELETION)
        rc = sp_buf_append(out, &line->origin, 1);
    return rc < 0 ? rc : sp_buf_append(out, line->content, line->content_len);
}

static int show_diff(struct sp_buf *out, const struct sp_plan_file *file, const struct sp_write *write)
{
    git_patch *patch = NULL;
    git_diff_options options = {.version = GIT_DIFF_OPTIONS_VERSION, .context_lines = 3, .id_abbrev = 12};
    int rc = git_patch_from_buffers(&patch, file->bytes.data, file->bytes.len, file->path, write->data.data,
                                    write->data.len, file->path, &options);

    if (rc == 0)
        rc = git_patch_print(patch, diff_line, out);
    git_patch_free(patch);
    return rc < 0 ? sp_err(SP_EFAIL, "cannot show the change of '%s'", file->path) : 0;
}

static const struct sp_plan_file *file_of(const struct sp_plan *plan, const char *path)
{
    const struct sp_plan_file *found = NULL;

    for (size_t i = 0; i < plan->file_count && found == NULL; i++)
        if (strcmp(plan->files[i].path, path) == 0)
            found = &plan->files[i];
    return found;
}

static int tell(struct sp_changes *changes, struct sp_write_list *list, const struct sp_plan *plan, bool diff)
{
    int rc = 0;

    for (size_t i = 0; i < list->count && rc == 0; i++) {
        struct sp_write *write = &list->item[i];
        struct sp_change *change = &changes->item[changes->count++];
        const struct sp_plan_file *file = write->set ? file_of(plan, write->path) : NULL;

        *change = (struct sp_change){
            .path = write->path, .action = write->action, .set = write->set, .from = write->pre, .to = write->post};
        write->path = NULL; /* the result owns it now */
        if (diff && file != NULL)
            rc = show_diff(&change->diff, file, write);
    }
    return rc;
}

int sp_changes_make(struct sp_changes **out, struct sp_writes *writes, const struct sp_plan *plan, bool diff)
{
    struct sp_changes *changes = calloc(1, sizeof *changes);
    int rc;

    *out = changes;
    if (changes != NULL)
        changes->item = calloc(sp_writes_count(writes) + 1, sizeof *changes->item);
    if (changes == NULL || changes->item == NULL)
        return sp_err(SP_ECANNOT, "out of memory");
    rc = tell(changes, &writes->patches, plan, diff);
    if (rc == 0)
        rc = tell(changes, &writes->sources, plan, diff);
    return rc < 0 ? rc : tell(changes, &writes->runtime, plan, diff);
}

void sp_changes_free(struct sp_changes *changes)
{
    if (changes == NULL)
        return;
    for (size_t i = 0; i < changes->count; i++) {
        free((char *)(uintptr_t)changes->item[i].path);
        sp_buf_free(&changes->item[i].diff);
    }
    free(changes->item);
    free(changes);
}
