/*
 * Is what a state file holds as docs/formats.md has it? python/sgl_pcie refuses by the same rules (verdict.py and
 * profile.py, parse()), so that `status` never calls fresh what SGLang then calls damaged.
 */
#ifndef SP_VERDICT_SOUND_H
#define SP_VERDICT_SOUND_H

#include <jansson.h>

/* A verdict or a profile, by its schema; of any other nothing is asked. SP_EFAIL names what is not right first. */
int sp_sound_check(const json_t *content);

#endif
