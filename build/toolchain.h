/*
 * The tools that compile the kernels: nvcc, the host compiler that it accepts, and what nvcc itself takes its headers
 * and its runtime from.
 *
 * Nothing is guessed from names of folders: nvcc is asked (--dryrun prints the paths it would use), so that a toolkit
 * from NVIDIA, from pip, from conda and from a distribution are all the same here. Variables that change what a
 * compiler does (NVCC_APPEND_FLAGS, CPATH, …) do not reach it.
 */
#ifndef SP_BUILD_TOOLCHAIN_H
#define SP_BUILD_TOOLCHAIN_H

#include "base/proc.h"
#include "build/words.h"
#include "patcher/install.h"

#include <stdbool.h>

struct sp_toolchain {
    char *nvcc;
    char *nvcc_from;    /* where it was found: "PATH", "$CUDA_HOME", … */
    char *nvcc_version; /* "13.0.88" */
    char *include;      /* folder of cuda_runtime_api.h */
    char *cudart;       /* libcudart_static.a */
    char *cc;           /* for C, for nvcc and to link */
    char *cc_version;   /* first line of --version */
    char *ld_version;
    bool random_seed; /* nvcc knows --frandom-seed */
};

/* install: whose site-packages may hold pip's toolkit, or NULL. SP_ECANNOT: something is not there, with how to
 * get it; SP_EBUILD: nvcc refuses every compiler. To be freed in any case. */
int sp_toolchain_find(struct sp_toolchain *out, const struct sp_install *install);
void sp_toolchain_free(struct sp_toolchain *tools);

/* First number of the version: the driver has to know that much of CUDA. */
unsigned sp_toolchain_major(const struct sp_toolchain *tools);

/* The environment of every compiler: reproducible, nothing of the user's but where programs are found. tmp: for
 * temporary files, or NULL. */
int sp_clean_environment(struct sp_words *out, const char *tmp);

/* "was ended by signal 9", "failed with exit status 2" */
enum { SP_HOW_ENDED = 48 };
void sp_how_ended(char *out, size_t size, const struct sp_proc_result *result);

/* Did it fail for want of space? Compilers write in $TMPDIR and nowhere else, and with LC_ALL=C say so in known words.
 */
bool sp_says_full(const struct sp_proc_result *result);

/* At most count lines of a compiler's output, indented, cut to size. */
void sp_first_lines(char *out, size_t size, const char *text, size_t count);

#endif
