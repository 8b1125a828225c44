/*
 * Does a bundle of report have the fields that docs/json-schema says it has? Somebody else wrote it, or edited it: what
 * is not as described is refused by name, instead of being shown as something else or passed on.
 *
 * verdict, profile and bench have schemas of their own; of another version only that much is asked. A verdict and a
 * profile must also be sound (sound.h), and the recording has a reader of its own (record.h).
 */
#ifndef SP_PAGE_BUNDLE_SHAPE_H
#define SP_PAGE_BUNDLE_SHAPE_H

#include <jansson.h>

/* SP_EFAIL: the first field that is not as described. */
int sp_bundle_check(const json_t *bundle);

#endif
