/*
 * The command line, by the table of command.h.
 *
 * Options may stand before or after the command and its arguments, as --name=value or --name value; "--" ends
 * them. Before the command only global and target options are known. What is not in the table is refused with
 * the nearest name that is.
 */
#ifndef SP_CLI_OPT_H
#define SP_CLI_OPT_H

#include "cli/command.h"

struct sp_given {
    const struct sp_option *option;
    const char *value; /* NULL for a switch; points into argv */
};

struct sp_args {
    const struct sp_command *command; /* NULL when none was given, or not a known one */
    struct sp_given *given;           /* in the order of the command line */
    size_t count;
    const char **words; /* arguments of the command, NULL-terminated */
    size_t word_count;
};

/* Fill in out, which is to be freed in any case. SP_EUSAGE with what was wrong; out then holds what came before. */
int sp_args_parse(struct sp_args *out, int argc, char **argv);
void sp_args_free(struct sp_args *args);

/* Was this switch or option given? */
bool sp_args_has(const struct sp_args *args, const char *name);

/* The last value of an option, or NULL. */
const char *sp_args_value(const struct sp_args *args, const char *name);

/* The last value as a number from least, above 0, to a million; 0 where the option was not given. SP_EUSAGE. */
int sp_args_number(double *out, const struct sp_args *args, const char *name, double least);

/* A usage error that names no other way out leads to the help of the command. Returns rc. */
int sp_args_hint(const struct sp_args *args, int rc);

/* All values of an option, NULL-terminated, the array for the caller to free; *out = NULL when there is none. */
int sp_args_values(const char ***out, const struct sp_args *args, const char *name);

/* Is the switch "--name" on the command line, right or wrong as that may be elsewhere? For errors of parsing. */
bool sp_argv_has(int argc, char **argv, const char *name);

/* The candidate nearest to word, or NULL when none is near. names is NULL-terminated. */
const char *sp_nearest(const char *word, const char *const *names);

#endif
