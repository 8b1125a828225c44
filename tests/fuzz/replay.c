/* Stands in for libFuzzer: runs the fuzz target once on every file of the given folders. */
#include "base/err.h"
#include "base/file.h"

#include <dirent.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { INPUT_MAX = 1 << 24 };

static int replay_file(const char *folder, const char *name)
{
    struct sp_buf bytes = SP_BUF_INIT;
    char path[PATH_MAX];

    snprintf(path, sizeof path, "%s/%s", folder, name);
    if (sp_read_file(&bytes, path, INPUT_MAX) < 0) {
        fprintf(stderr, "%s\n", sp_err_message());
        return -1;
    }
    LLVMFuzzerTestOneInput((const uint8_t *)bytes.data, bytes.len);
    sp_buf_free(&bytes);
    return 1;
}

static int replay_folder(const char *folder)
{
    DIR *dir = opendir(folder);
    struct dirent *entry;
    int count = 0;

    if (!dir) {
        perror(folder);
        return -1;
    }
    while (count >= 0 && (entry = readdir(dir)) != NULL)
        if (entry->d_name[0] != '.')
            count = replay_file(folder, entry->d_name) < 0 ? -1 : count + 1;
    closedir(dir);
    return count;
}

int main(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        int count = replay_folder(argv[i]);

        if (count <= 0) /* an empty folder proves nothing */
            return EXIT_FAILURE;
        printf("%s: %d inputs\n", argv[i], count);
    }
    return EXIT_SUCCESS;
}
