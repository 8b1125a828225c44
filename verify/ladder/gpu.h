/*
 * The program that works on GPUs, sgl-pcie-gpu of an install, as a child with a time limit: a wedged CUDA context takes
 * nothing down but the child. It sees only the GPUs that it is to use, by UUID.
 */
#ifndef SP_LADDER_GPU_H
#define SP_LADDER_GPU_H

#include "base/proc.h"
#include "verify/ladder/ladder.h"
#include "verify/verdict/sets.h"

enum { SP_GPU_WORDS = 24 };

/* Is there a program to be run in this install? SP_ECANNOT. */
int sp_gpu_check(const char *site);

/* Run `sgl-pcie-gpu WORDS... --json` on these GPUs. SP_OK whatever the program said: read the result, to be freed in
 * any case. SP_ECANNOT: there is no program, or it cannot be started. words: NULL-terminated, less than SP_GPU_WORDS.
 */
int sp_gpu_run(struct sp_proc_result *result, const struct sp_ladder *ladder, const struct sp_subjects *gpus,
               const struct sp_set *set, const char *const *words, double seconds);

/* Any program on these GPUs: argv as sp_proc_run() takes it. */
int sp_gpu_run_program(struct sp_proc_result *result, const struct sp_ladder *ladder, const struct sp_subjects *gpus,
                       const struct sp_set *set, const char *const *argv, double seconds);

/* The object that the program printed last, or NULL; a new reference. */
json_t *sp_gpu_summary(const struct sp_proc_result *result);

/* Status and code of a check by how the program ended; its own words as "found", where it had any. */
void sp_gpu_judge(struct sp_check *check, const struct sp_proc_result *result, double seconds);

#endif
