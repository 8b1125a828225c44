/*
 * Put what was built into an install, as one transaction.
 */
#ifndef SP_BUILD_DEPLOY_H
#define SP_BUILD_DEPLOY_H

#include "build/compile.h"
#include "patcher/install.h"

/* SP_OK when the runtime of this program is there, so that there is something to build into; else SP_ECANNOT with next
 * as the hint. */
int sp_deploy_check(const struct sp_install *install, const char *next);

/* May we write beside it? SP_ECANNOT with the reason. */
int sp_deploy_access(const struct sp_install *install);

/* Put the files beneath sgl_pcie/, with a RECORD that lists them. Products of the recipe that are not among them are
 * removed; its programs can be executed. */
int sp_deploy_run(const struct sp_install *install, const struct sp_files *files, const struct sp_recipe *recipe,
                  const char *next);

/* Is this file, with these bytes by their sha256, in the install? */
int sp_deploy_has(bool *out, const struct sp_install *install, const char *name, const char *sha256);

/* Is this program there, and may its owner execute it? */
bool sp_deploy_can_run(const struct sp_install *install, const char *name);

/* "sgl_pcie/<name>" of an install. 1, and nothing, when it is not there. */
int sp_deploy_read(struct sp_buf *out, const struct sp_install *install, const char *name);

#endif
