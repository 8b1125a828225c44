/*
 * inject.h: faults for the transfer test itself, so that each of its failures is seen on healthy GPUs. Only a build with
 * -DGPU_INJECT has them; SGL_PCIE_INJECT=NAME:A-B then names one:
 *
 *     corrupt  a word that A stores into B is wrong        nan     A's loads from B give NaN
 *     drop     the end of what A stores into B is lost     lie     A's mapping of B leads elsewhere
 *     hang     A's kernel that stores into B never ends    delay   A comes late, by more than anybody waits
 *     die      A is killed                                 sick    A's own memory errs, without any peer
 *     slow     what A stores into B takes eight times as long
 *     collapse the same, but only while all others store, too
 *
 * and SGL_PCIE_INJECT=NAME:ALGORITHM, wherever the program makes a call of it:
 *
 *     slow     20 us are lost before each                  wrong   its first element is wrong on every rank
 */
#ifndef GPU_INJECT_H
#define GPU_INJECT_H

#ifdef GPU_INJECT
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* b negative: for whatever B. */
static inline int injected(const char *name, int a, int b)
{
    const char *fault = getenv("SGL_PCIE_INJECT");
    char is[16];
    int from, to;

    return fault != NULL && sscanf(fault, "%15[a-z]:%d-%d", is, &from, &to) == 3 && strcmp(is, name) == 0 && from == a &&
           (b < 0 || to == b);
}

static inline int injected_into(const char *name, const char *algorithm)
{
    const char *fault = getenv("SGL_PCIE_INJECT");
    size_t length = strlen(name);

    return fault != NULL && strncmp(fault, name, length) == 0 && fault[length] == ':' &&
           strcmp(fault + length + 1, algorithm) == 0;
}
#else
#define injected(name, a, b) ((void)(a), (void)(b), 0)
#define injected_into(name, algorithm) ((void)(name), (void)(algorithm), 0)
#endif

#endif
