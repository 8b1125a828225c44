/*
 * The distribution sgl-pcie-runtime: everything that we add to an install.
 *
 *     <site>/sgl_pcie/                               what the hunks call, and later libpar.so and its module
 *     <site>/.sgl-pcie/                              install.json (what was patched), flag.json (what enable wrote),
 *                                                  setup.json (setup patched it, and is not yet done)
 *     <site>/sgl_pcie_runtime-<version>.dist-info/   METADATA, WHEEL, INSTALLER, RECORD
 *
 * RECORD lists every file, so that `pip uninstall sgl-pcie-runtime` removes it all and leaves a patched SGLang that
 * behaves as stock. Format: the Python packaging specification "Recording installed projects".
 */
#ifndef SP_PATCHER_RUNTIME_H
#define SP_PATCHER_RUNTIME_H

#include "base/txn.h"
#include "patcher/plan.h"

/* Made by the apply of a setup that found stock, in the same transaction; gone with enable, with revert, and with an
 * apply by itself. Where it is, a setup that fails takes the patch back, also of one that was interrupted. */
#define SP_SETUP_MARK SP_STATE_DIR "/setup.json"

struct sp_runtime_file {
    char *path; /* relative to the site */
    struct sp_buf bytes;
};

struct sp_runtime {
    struct sp_runtime_file *file; /* sorted by path */
    size_t count;
};
#define SP_RUNTIME_INIT                                                                                                \
    {                                                                                                                  \
        NULL, 0                                                                                                        \
    }

/* The files as they should be once this plan is applied. What `build` added beside them stays listed in RECORD. */
int sp_runtime_wanted(struct sp_runtime *out, const struct sp_install *install, const struct sp_plan *plan);

/* Every file of ours that is there: metadata, state, what RECORD lists, and sources with our bytes; where RECORD is
 * lost, what bears the names of what `build` writes. Bytecode, a pending journal, and files that somebody else put into
 * our folders are left out, unread. */
int sp_runtime_present(struct sp_runtime *out, const struct sp_install *install);
void sp_runtime_free(struct sp_runtime *runtime);
const struct sp_runtime_file *sp_runtime_find(const struct sp_runtime *runtime, const char *path);

/* RECORD, as one more file of out, as it should be once these files of `build` are beside what is there now; one
 * without bytes is going to be removed. */
int sp_runtime_record(struct sp_runtime *out, const struct sp_install *install, const struct sp_runtime *built);

/* Does `apply` own this file, so that it removes it when it is no longer wanted? (Built files belong to `build`,
 * the flag to `enable`.) */
int sp_runtime_is_source(const char *path);

/* Absent, present, or present with other bytes than this program's. */
int sp_runtime_state(enum sp_runtime_state *out, const struct sp_install *install);

/* Remove the bytecode of sgl_pcie/: not part of a transaction, Python may write it at any time. */
int sp_runtime_drop_bytecode(const struct sp_install *install);

#endif
