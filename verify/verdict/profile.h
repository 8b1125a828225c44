/*
 * profile.json: which algorithm serves which size on this machine (docs/formats.md). Bench makes it (bench.h).
 */
#ifndef SP_VERDICT_PROFILE_H
#define SP_VERDICT_PROFILE_H

#include "base/file.h"
#include "verify/verdict/serve.h"

#include <stddef.h>
#include <stdint.h>

#define SP_PROFILE_FILE   "profile.json"
#define SP_PROFILE_SCHEMA "sgl-pcie-profile/1"

/* Write it as the profile of an install. Tables of other groups of GPUs that an earlier run measured stay behind its
 * own, if nothing that both are bound to changed. *path and *written: for the caller to free. */
int sp_profile_save(char **path, json_t **written, const char *site, const json_t *profile);

/* The rule of that, pure: *out is a new object; before may be NULL. */
int sp_profile_merge(json_t **out, const json_t *before, const json_t *profile);

/* "2 GPUs: to 1 MiB; 4 GPUs: to 256 KiB and 1 to 4 MiB", the sizes that are ours by the table that serves each group
 * (serve.h); "nothing is faster here" where none is. For the caller to free; NULL: no memory. Pure. */
char *sp_profile_summary(const json_t *profile, const json_t *verdict);

/* The same of one table: "to 1 MiB", "nothing". */
int sp_profile_windows(struct sp_buf *out, const json_t *table);

struct sp_profile_now {
    bool present, fresh; /* a file that counts; bound to what is so now */
    enum sp_served says;
    char *reason; /* why it is not there, or what changed first; NULL: fresh */
    json_t *content;
};

/* The profile of an install as it stands now, and what it says where this verdict holds (serve.h). To be freed in any
 * case. SP_ECANNOT without memory. */
int sp_profile_read(struct sp_profile_now *out, const char *site, const json_t *verdict);
void sp_profile_free(struct sp_profile_now *now);

/* "43008", "64 KiB", "1 MiB": a size as people say it; out of at least 32 bytes. */
const char *sp_size_text(char *out, size_t size, uint64_t bytes);

#endif
