#include "patcher/patched.h"
#include "base/err.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static void count(struct sp_patched *out, const struct sp_plan *plan)
{
    for (size_t i = 0; i < plan->file_count; i++) {
        const bool asked = sp_plan_asked(plan, &plan->files[i]);

        out->files += asked;
        *(asked ? &out->applied : &out->named_applied) += plan->files[i].state == SP_APPLIED;
        *(asked ? &out->old : &out->named_old) += plan->files[i].state == SP_APPLIED_OLD;
    }
}

static void lacks(struct sp_patched *out, const char *next, const char *fmt, ...) SP_PRINTF(3, 4);
static void lacks(struct sp_patched *out, const char *next, const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    (void)vsnprintf(out->lacks, sizeof out->lacks, fmt, args);
    va_end(args);
    out->next = next;
}

void sp_patched_judge(struct sp_patched *out, const struct sp_plan *plan, const struct sp_install *install)
{
    size_t patched;

    memset(out, 0, sizeof *out);
    count(out, plan);
    patched = out->applied + out->old;
    if (patched == 0 && plan->runtime == SP_RUNTIME_ABSENT)
        lacks(out, "apply", "stock: not patched");
    else if (patched == 0)
        lacks(out, "apply",
              "patch gone: the files are as released, since sglang was installed again or apply was cut short; "
              "sgl-pcie-runtime is there");
    else if (patched < out->files)
        lacks(out, "apply", "partly patched: %zu of %zu files", patched, out->files);
    else if (plan->runtime == SP_RUNTIME_ABSENT && install->layout == SP_LAYOUT_SOURCE)
        lacks(out, NULL,
              "patched; sgl-pcie-runtime is not in this folder: it is where the interpreter that imports this checkout "
              "has it, so name that with --python");
    else if (plan->runtime == SP_RUNTIME_ABSENT)
        lacks(out, "apply", "patched, but sgl-pcie-runtime is gone: SGLang behaves as stock");
    else if (out->old > 0)
        lacks(out, "apply", "patched by an earlier revision: %zu of %zu files", out->old, out->files);
    else if (plan->runtime == SP_RUNTIME_DIFFERS)
        lacks(out, "apply", "patched, but sgl-pcie-runtime is not the one of this program");
}
