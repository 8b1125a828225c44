/*
 * The build record, <site>/sgl_pcie/build.json: what was built, from what and by what.
 *
 *     {"schema": "sgl-pcie-build/1", "tool": "0.1.0",
 *      "architectures": ["sm_90"],
 *      "compilers": {"nvcc": "13.0.88", "cc": "gcc (Debian 12.2.0-14) 12.2.0", "ld": "GNU ld …",
 *                    "python": "3.11.2" or null},
 *      "inputs": [{"path": "comm.c", "sha256": …}, …, {"path": "libcudart_static.a", …}],
 *      "commands": [["nvcc", …], …],
 *      "outputs": [{"path": "libpar.so", "sha256": …, "bytes": …}, …]}
 *
 * It holds no time and no path of the machine: the same inputs and compilers give the same record anywhere. All but the
 * outputs is known before anything is compiled, so that a build that would give what is there need not be made.
 */
#ifndef SP_BUILD_RECORD_H
#define SP_BUILD_RECORD_H

#include "build/compile.h"

#include <jansson.h>

#define SP_RECORD_NAME     "build.json"
#define SP_RECORD_UPSTREAM "upstream.json" /* of libupstream.so; it has a "text", too: which text of SGLang's it is */

/* All but the outputs: a new reference. */
int sp_record_plan(json_t **out, const struct sp_steps *steps, const struct sp_files *inputs,
                   const struct sp_toolchain *tools, const struct sp_archs *archs, const struct sp_python *python);

/* The text of the whole. record gets its outputs. */
int sp_record_format(struct sp_buf *out, json_t *record, const struct sp_files *outputs);

/* Does the text describe this plan? *outputs (may be NULL): what it says was built, paths and sha256 without bytes. A
 * text that cannot be read describes nothing. */
int sp_record_matches(bool *out, struct sp_files *outputs, const struct sp_buf *text, const json_t *plan);

#endif
