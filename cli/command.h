/*
 * Commands and options: the one table that everything is made from.
 *
 * A command is a struct sp_command in cmd_<name>.c, listed in sp_commands[] (commands.c). The parser (opt.h), the
 * help, the manual page and the completion (doc.h) and the fields of the JSON object (report.h) read it; nothing
 * is said twice. A new command is a new cmd_<name>.c, its line in sp_commands[] and its name in CMakeLists.txt.
 *
 * A run function parses nothing and decides nothing: it calls, prints through the report, and returns 0 or the
 * negative code of base/err.h, whose message main() prints.
 */
#ifndef SP_CLI_COMMAND_H
#define SP_CLI_COMMAND_H

#include <stdbool.h>
#include <stddef.h>

struct sp_args;
struct sp_report;

/* What a shell may complete an option's value with. */
enum sp_complete { SP_COMPLETE_NONE, SP_COMPLETE_FILE, SP_COMPLETE_DIR };

struct sp_option {
    const char *name;           /* long name without dashes; NULL ends an array */
    const char *help;           /* one sentence, lower case, no full stop */
    const char *value;          /* name of the value in help texts; NULL for a switch */
    const char *const *choices; /* the values that are allowed, NULL-terminated; NULL for any */
    char letter;                /* short form of a switch, or 0 */
    bool many;                  /* may be given several times */
    bool hidden;                /* not in help, manual page and completion */
    enum sp_complete complete;
};

struct sp_exit {
    int status;       /* negative ends an array */
    const char *when; /* for this command; NULL for the general text */
};

struct sp_example {
    const char *command; /* NULL ends an array */
    const char *text;
};

struct sp_command {
    const char *name;
    const char *summary;            /* one line, lower case, no full stop */
    const char *const *description; /* paragraphs, NULL-terminated */
    const char *words;              /* name of the arguments in help texts; NULL when it takes none */
    bool target;                    /* takes sp_target_options, too */
    const struct sp_option *options;
    const struct sp_exit *exits;
    const struct sp_example *examples;
    const char *const *fields; /* keys that the JSON object has besides those of the envelope, NULL-terminated */
    int (*run)(const struct sp_args *args, struct sp_report *report);
};

struct sp_environment {
    const char *name; /* NULL ends an array */
    const char *text;
};

extern const struct sp_command *const sp_commands[]; /* NULL-terminated */
extern const struct sp_option sp_global_options[];   /* of every command, and without one */
extern const struct sp_option sp_target_options[];   /* of commands that touch an install */
extern const struct sp_exit sp_exits[];              /* every exit status and its general text */
extern const struct sp_environment sp_environment[];

/* NULL when there is none of this name. */
const struct sp_command *sp_command_find(const char *name);

/* The general text for an exit status. */
const char *sp_exit_text(int status);

#endif
