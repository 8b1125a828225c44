/*
 * The commands of the recipe, filled in, and run in a scratch folder.
 *
 * As they are planned and recorded, commands hold nothing of this machine: "nvcc" and "cc" for the programs, and
 * relative names. A folder to run them in looks like this, and they run in kernels/:
 *
 *     kernels/…                         copies of the inputs
 *     cuda/include                      the toolkit's headers (a link)
 *     cuda/lib64/libcudart_static.a
 *     python/include                    Python's headers (a link)
 *     obj/<product>/…                   objects; nvcc's temporary files, too: their names are part of the bytes
 *     out/<product>                     what is built; an input ../out/<product> is one that need not be
 *     tmp                               other temporary files
 */
#ifndef SP_BUILD_COMPILE_H
#define SP_BUILD_COMPILE_H

#include "base/file.h"
#include "build/arch.h"
#include "build/python.h"
#include "build/recipe.h"
#include "build/toolchain.h"

struct sp_step {
    struct sp_words argv;
    char *what; /* the file that it compiles or links */
    bool links;
};

struct sp_steps {
    struct sp_step *step;
    size_t count;
};

/* One input or output. */
struct sp_file {
    char *path;
    struct sp_buf bytes;
    char sha256[SP_SHA256_HEX + 1];
};

struct sp_files {
    struct sp_file *file;
    size_t count;
};

/* Called before each step; text is the file at work. */
typedef void sp_progress(void *context, size_t done, size_t total, const char *text);

/* The commands for these architectures, but for what is given already. */
int sp_steps_plan(struct sp_steps *out, const struct sp_recipe *recipe, const struct sp_toolchain *tools,
                  const struct sp_archs *archs);
void sp_steps_free(struct sp_steps *steps);

/* Read the inputs of a recipe into memory: what is compiled is what was hashed. */
int sp_inputs_read(struct sp_files *out, const struct sp_recipe *recipe);

/* Compile a few lines for every architecture, as a cheap test of compilers and flags. */
int sp_compile_probe(char **log, const struct sp_toolchain *tools, const struct sp_archs *archs, const char *folder);

/* Run the steps in folder, which must not be there yet. SP_EBUILD: a compiler refused; *log is then the file with all
 * that it said, for the caller to free. */
int sp_steps_run(struct sp_files *out, char **log, const struct sp_steps *steps, const struct sp_files *inputs,
                 const struct sp_recipe *recipe, const struct sp_toolchain *tools, const struct sp_python *python,
                 const char *folder, sp_progress *progress, void *context);

/* Takes the bytes over, also on error. */
int sp_files_add(struct sp_files *files, const char *path, struct sp_buf *bytes);
const struct sp_file *sp_files_find(const struct sp_files *files, const char *path);
void sp_files_free(struct sp_files *files);

#endif
