/*
 * An SGLang install: where it is and what it calls itself.
 *
 * SGLang is never imported to be found: an interpreter is asked for its paths and for the place of the
 * package (find_spec, which runs no code of the package), or a directory is looked at.
 *
 *   wheel     <site>/sglang/            patched there, sgl_pcie beside it
 *   editable  <checkout>/python/sglang  patched there, sgl_pcie in the interpreter's site-packages
 *   source    <checkout>/python/sglang  no interpreter: patched there, sgl_pcie beside it
 *
 * Nothing is guessed: when several candidates hold an SGLang and none was named, the error lists them.
 */
#ifndef SP_PATCHER_INSTALL_H
#define SP_PATCHER_INSTALL_H

#include <stdbool.h>

enum sp_layout { SP_LAYOUT_WHEEL, SP_LAYOUT_EDITABLE, SP_LAYOUT_SOURCE };

/* What the user named; all NULL: $VIRTUAL_ENV, $CONDA_PREFIX, python3 on PATH. At most one may be set. */
struct sp_target {
    const char *python;
    const char *site;
    const char *source;
};

struct sp_install {
    enum sp_layout layout;
    char *root;           /* resolved directory that holds sglang/ */
    char *site;           /* resolved directory that gets sgl_pcie/ and .sgl-pcie/; equals root unless editable */
    char *checkout;       /* resolved checkout whose python/ is the root, or NULL */
    char *python;         /* interpreter that was asked, or NULL */
    char *pycache_prefix; /* where that interpreter, or $PYTHONPYCACHEPREFIX, puts bytecode; or NULL */
    char *sglang;         /* version by its metadata, or NULL */
    char *kernel;         /* "sgl-kernel 0.3.21", "sglang-kernel 0.4.10", or NULL */
    int root_fd;
    int site_fd;
    int checkout_fd; /* -1 where there is none */
};

/* SP_EUSAGE: no or several candidates, or not an SGLang; SP_ECANNOT: the interpreter cannot be run. */
int sp_install_locate(struct sp_install **out, const struct sp_target *target);
void sp_install_free(struct sp_install *install);

/* "wheel", "editable" or "source". */
const char *sp_layout_name(enum sp_layout layout);

/* The option that names this install again: "--python", "--source" or "--site"; its value is python, else root. */
const char *sp_install_option(const struct sp_install *install);

#endif
