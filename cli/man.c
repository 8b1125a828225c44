#include "cli/doc.h"

#include <string.h>

enum { LABEL_MAX = 64 };

/* Text with what roff would take as its own escaped. */
static void text(FILE *out, const char *s)
{
    if (*s == '.' || *s == '\'')
        (void)fputs("\\&", out);
    for (; *s; s++) {
        if (*s == '\\')
            (void)fputs("\\e", out);
        else if (*s == '-')
            (void)fputs("\\-", out);
        else if (*s == '\'')
            (void)fputs("\\(aq", out);
        else
            (void)fputc(*s, out);
    }
}

static void line(FILE *out, const char *s)
{
    text(out, s);
    (void)fputc('\n', out);
}

static void macro(FILE *out, const char *name, const char *argument)
{
    (void)fprintf(out, ".%s \"", name);
    text(out, argument);
    (void)fputs("\"\n", out);
}

static void tagged(FILE *out, const char *label, const char *s, const char *more)
{
    (void)fputs(".TP\n", out);
    macro(out, "B", label);
    text(out, s);
    line(out, more);
}

static void paragraphs(FILE *out, const char *const *list)
{
    for (; list && *list; list++) {
        (void)fputs(".PP\n", out);
        line(out, *list);
    }
}

static void options(FILE *out, const struct sp_option *option)
{
    char label[LABEL_MAX];

    for (; option && option->name; option++) {
        if (option->hidden)
            continue;
        sp_doc_option(label, sizeof label, option);
        tagged(out, label, option->help, option->many ? "; may be given several times" : "");
    }
}

static void exits(FILE *out, const struct sp_exit *known)
{
    char label[16];

    for (; known && known->status >= 0; known++) {
        (void)snprintf(label, sizeof label, "%d", known->status);
        tagged(out, label, known->when ? known->when : sp_exit_text(known->status), "");
    }
}

static void command_section(FILE *out, const struct sp_command *command)
{
    macro(out, "SS", command->name);
    line(out, command->summary);
    paragraphs(out, command->description);
    options(out, command->options);
    (void)fputs(".PP\nExit status:\n", out);
    exits(out, command->exits);
    if (command->examples && command->examples->command)
        (void)fputs(".PP\nExamples:\n", out);
    for (const struct sp_example *example = command->examples; example && example->command; example++)
        tagged(out, example->command, example->text, "");
}

static void synopsis(FILE *out)
{
    for (size_t i = 0; sp_commands[i]; i++) {
        (void)fprintf(out, "%s.B sgl\\-pcie ", i ? ".br\n" : "");
        text(out, sp_commands[i]->name);
        (void)fprintf(out, "\n[\\fIoption\\fR]...\n");
        if (sp_commands[i]->words)
            (void)fprintf(out, "[\\fI%s\\fR]...\n", sp_commands[i]->words);
    }
}

void sp_doc_man(FILE *out)
{
    (void)fputs(".\\\" made by sgl-pcie --generate=man\n", out);
    (void)fputs(".TH SGL\\-PCIE 1 \"\" \"sgl\\-pcie " SP_VERSION "\" \"User Commands\"\n", out);
    (void)fputs(".SH NAME\nsgl\\-pcie \\- ", out);
    line(out, SP_DOC_SUMMARY);
    (void)fputs(".SH SYNOPSIS\n", out);
    synopsis(out);
    (void)fputs(".SH DESCRIPTION\n", out);
    paragraphs(out, sp_doc_description);
    (void)fputs(".SH COMMANDS\n", out);
    for (size_t i = 0; sp_commands[i]; i++)
        command_section(out, sp_commands[i]);
    (void)fputs(".SH TARGET\nOptions of the commands that touch an install; at most one may be given. When several\n"
                "places hold an SGLang and none was named, they are listed and nothing is done.\n",
                out);
    options(out, sp_target_options);
    (void)fputs(".SH OPTIONS\nOptions of every command. They may stand before or after the command, as\n"
                "\\-\\-name=value or \\-\\-name value; \\-\\- ends them.\n",
                out);
    options(out, sp_global_options);
    (void)fputs(".SH EXIT STATUS\n", out);
    exits(out, sp_exits);
    (void)fputs(".SH ENVIRONMENT\n", out);
    for (const struct sp_environment *variable = sp_environment; variable->name; variable++)
        tagged(out, variable->name, variable->text, "");
}
