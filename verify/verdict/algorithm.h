/*
 * Our algorithms by name, as profile.json has them: "push-two-shot".
 */
#ifndef SP_VERDICT_ALGORITHM_H
#define SP_VERDICT_ALGORITHM_H

#include <stdbool.h>

/* "host", "push" or "pull", of "push-two-shot"; a static text, "" for none of ours. */
const char *sp_algorithm_transport(const char *algorithm);
bool sp_algorithm_known(const char *algorithm);

/* Its place among all, the simpler first; -1 for none of ours. */
int sp_algorithm_rank(const char *algorithm);

#endif
