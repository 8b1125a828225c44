/*
 * Jobs that do not depend on each other, by several threads.
 */
#ifndef SP_BUILD_PARALLEL_H
#define SP_BUILD_PARALLEL_H

#include <stddef.h>

typedef int sp_job(void *context, size_t index);

/* Run jobs 0 to count - 1 by as many threads as there are CPUs for us, at most limit. After an error no new job is
 * begun; the error with the lowest index is returned, with its message and hint. */
int sp_parallel(sp_job *job, void *context, size_t count, size_t limit);

#endif
