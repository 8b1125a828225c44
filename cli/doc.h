/*
 * What the table of commands says, as text for people and for shells.
 *
 * The manual page and the completion are made at build time by the program itself (--generate).
 */
#ifndef SP_CLI_DOC_H
#define SP_CLI_DOC_H

#include "cli/command.h"

#include <stdio.h>

/* Help for a command, or for the program when command is NULL. */
void sp_doc_help(FILE *out, const struct sp_command *command);

/* sgl-pcie.1, in the man(7) macros. */
void sp_doc_man(FILE *out);

/* A bash completion that needs nothing but bash. */
void sp_doc_bash(FILE *out);

/* Pieces that help and manual page share. */
#define SP_DOC_SUMMARY "patch SGLang for GPUs that talk over PCIe, and take the patch back"
extern const char *const sp_doc_description[]; /* paragraphs, NULL-terminated */

/* "--name VALUE", with the short form before it. out is cut to fit. */
void sp_doc_option(char *out, size_t size, const struct sp_option *option);

#endif
