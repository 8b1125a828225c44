#include "verify/machine/claim.h"
#include "base/err.h"
#include "base/lock.h"

#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/file.h>
#include <unistd.h>

static bool is_chosen(const struct sp_choice *choice, size_t number)
{
    bool is = false;

    for (size_t i = 0; i < choice->count && !is; i++)
        is = choice->number[i] == number;
    return is;
}

/* The driver may have named it, too. */
static int add_holder(struct sp_recording *recording, size_t gpu, int pid)
{
    bool known = false;
    void *item;
    int rc = SP_OK;

    for (size_t i = 0; i < recording->process_count && !known; i++)
        known = recording->processes[i].gpu == (int64_t)gpu && recording->processes[i].pid == pid;
    if (!known)
        rc = sp_recording_add(&item, recording, "processes");
    if (!known && rc == SP_OK)
        *(struct sp_rec_process *)item = (struct sp_rec_process){.gpu = (int64_t)gpu, .pid = pid, .memory = SP_ABSENT};
    return rc;
}

/* In the order of their numbers: of two that want some of the same, one gets all of them. */
int sp_claim_make(struct sp_claim *out, struct sp_recording *recording, const struct sp_choice *choice,
                  const char *root)
{
    char path[PATH_MAX];
    bool theirs = false;
    int rc = SP_OK;

    out->count = 0;
    for (size_t i = 0; i < recording->gpu_count && !theirs; i++) {
        int fd, pid, got;

        if (!is_chosen(choice, i))
            continue;
        (void)snprintf(path, sizeof path, "%s/sys/bus/pci/devices/%s", root, recording->gpus[i].bdf);
        got = sp_lock_try(&fd, &pid, path, LOCK_EX);
        theirs = got == 1;
        if (theirs)
            rc = add_holder(recording, i, pid);
        else if (got == SP_OK)
            out->fd[out->count++] = fd;
        else
            sp_err_clear();
    }
    return rc;
}

void sp_claim_free(struct sp_claim *claim)
{
    while (claim->count > 0)
        close(claim->fd[--claim->count]);
}
