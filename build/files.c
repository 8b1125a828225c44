#include "base/err.h"
#include "build/compile.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { INPUT_MAX = 16 << 20 };

int sp_files_add(struct sp_files *files, const char *path, struct sp_buf *bytes)
{
    struct sp_file *grown = realloc(files->file, (files->count + 1) * sizeof *grown);
    struct sp_file file = {.path = strdup(path), .bytes = *bytes};
    int rc = 0;

    *bytes = (struct sp_buf)SP_BUF_INIT;
    if (grown != NULL)
        files->file = grown;
    if (grown == NULL || file.path == NULL)
        rc = sp_err(SP_ECANNOT, "out of memory");
    else
        rc = sp_sha256(file.sha256, file.bytes.data, file.bytes.len);
    if (rc < 0) {
        free(file.path);
        sp_buf_free(&file.bytes);
    } else {
        files->file[files->count++] = file;
    }
    return rc;
}

const struct sp_file *sp_files_find(const struct sp_files *files, const char *path)
{
    const struct sp_file *found = NULL;

    for (size_t i = 0; i < files->count && found == NULL; i++)
        if (strcmp(files->file[i].path, path) == 0)
            found = &files->file[i];
    return found;
}

void sp_files_free(struct sp_files *files)
{
    for (size_t i = 0; i < files->count; i++) {
        free(files->file[i].path);
        sp_buf_free(&files->file[i].bytes);
    }
    free(files->file);
    *files = (struct sp_files){NULL, 0};
}

int sp_inputs_read(struct sp_files *out, const struct sp_recipe *recipe)
{
    int rc = 0;

    *out = (struct sp_files){NULL, 0};
    for (size_t i = 0; i < recipe->inputs.count && rc == 0; i++) {
        struct sp_buf bytes = SP_BUF_INIT;
        char *path = NULL;

        if (asprintf(&path, "%s/%s", recipe->folder, recipe->inputs.word[i]) < 0) {
            path = NULL;
            rc = sp_err(SP_ECANNOT, "out of memory");
        } else {
            rc = sp_read_file(&bytes, path, INPUT_MAX);
        }
        if (rc == 0)
            rc = sp_files_add(out, recipe->inputs.word[i], &bytes);
        free(path);
    }
    return rc;
}
