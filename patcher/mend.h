/*
 * How a released file is put back, or a package added: the command for it, as the hint of the present error.
 *
 * None is guessed. Where no command is known to be right (a folder that was named without its interpreter), there is no
 * hint: the message is to say what it takes.
 */
#ifndef SP_PATCHER_MEND_H
#define SP_PATCHER_MEND_H

#include "patcher/plan.h"

/* By git, where HEAD or the index has the file; else by installing this version of SGLang again. Return code. */
int sp_mend_hint(int code, const struct sp_install *install, const struct sp_plan_file *file, const char *version);

/* By installing this package beside SGLang. install: NULL gives no hint. */
int sp_mend_package_hint(int code, const struct sp_install *install, const char *package);

#endif
