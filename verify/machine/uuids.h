/*
 * GPUs as a verdict and a profile name them: JSON arrays of UUIDs. What is no text is in none of them.
 */
#ifndef SP_MACHINE_UUIDS_H
#define SP_MACHINE_UUIDS_H

#include <jansson.h>
#include <stdbool.h>

bool sp_uuids_have(const json_t *list, const char *uuid);

/* Are all of part in whole, in whatever order? */
bool sp_uuids_within(const json_t *part, const json_t *whole);

/* The same GPUs, in whatever order? */
bool sp_uuids_same(const json_t *a, const json_t *b);

#endif
