/*
 * A scratch folder that does not stay behind, however this program ends.
 *
 * A child of ours waits at a pipe; when we end, by return, by a signal or by kill -9, it reads the end of the file and
 * removes the folder. It outlasts us for that moment only.
 */
#ifndef SP_BUILD_SCRATCH_H
#define SP_BUILD_SCRATCH_H

#include <sys/types.h>

struct sp_scratch {
    char *path; /* in $TMPDIR, else /tmp */
    int pipe;
    pid_t keeper;
};
#define SP_SCRATCH_INIT                                                                                                \
    {                                                                                                                  \
        NULL, -1, -1                                                                                                   \
    }

int sp_scratch_make(struct sp_scratch *out);

/* Remove it. Safe on SP_SCRATCH_INIT, and twice. */
void sp_scratch_free(struct sp_scratch *scratch);

/* Can one be made? Compilers that cannot make theirs say anything but that. */
int sp_scratch_check(void);

/* The next command where something cannot be written in it. Returns rc. */
int sp_scratch_hint(int rc);

/* $TMPDIR, else /tmp. */
const char *sp_scratch_parent(void);

#endif
