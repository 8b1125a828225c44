#include "cli/doc.h"

#include <string.h>

enum { WIDTH = 80, INDENT = 2, LABEL_MAX = 64 };

const char *const sp_doc_description[] = {
    "With more than two GPUs that talk over PCIe only, SGLang refuses its custom all-reduce. sgl-pcie takes a stock "
    "SGLang install, patches it in place so that it can use an all-reduce made for PCIe, and restores it byte for "
    "byte.",
    "Files are recognised by their contents, never by a version number alone: what is not exactly a released text is "
    "refused, with a table of what was expected and found. All files are written, or none. SGLang is never imported, "
    "and with the flag unset a patched SGLang behaves as stock.",
    NULL,
};

void sp_doc_option(char *out, size_t size, const struct sp_option *option)
{
    char letter[8] = "";

    if (option->letter)
        (void)snprintf(letter, sizeof letter, "-%c, ", option->letter);
    (void)snprintf(out, size, "%s--%s%s%s", letter, option->name, option->value ? " " : "",
                   option->value ? option->value : "");
}

/* Words of text, filled to WIDTH, from column at; further lines are indented. Ends the line. */
static void fill(FILE *out, const char *text, size_t at, size_t indent)
{
    bool first = true;

    while (*text) {
        size_t len = strcspn(text, " ");

        if (!first && at + 1 + len > WIDTH) {
            (void)fprintf(out, "\n%*s", (int)indent, "");
            at = indent;
            first = true;
        }
        (void)fprintf(out, "%s%.*s", first ? "" : " ", (int)len, text);
        at += len + (first ? 0 : 1);
        first = false;
        text += len;
        text += strspn(text, " ");
    }
    (void)fputc('\n', out);
}

static void entry(FILE *out, size_t width, const char *label, const char *text)
{
    size_t column = INDENT + width + 2;

    (void)fprintf(out, "%*s%-*s  ", INDENT, "", (int)width, label);
    fill(out, text, column, column);
}

static size_t option_width(const struct sp_option *options, size_t width)
{
    char label[LABEL_MAX];

    for (; options && options->name; options++) {
        if (options->hidden)
            continue;
        sp_doc_option(label, sizeof label, options);
        if (strlen(label) > width)
            width = strlen(label);
    }
    return width;
}

static void print_options(FILE *out, const char *title, const struct sp_option *options, size_t width)
{
    char label[LABEL_MAX], text[256];

    if (!options || !options->name)
        return;
    (void)fprintf(out, "\n%s:\n", title);
    for (; options->name; options++) {
        if (options->hidden)
            continue;
        sp_doc_option(label, sizeof label, options);
        (void)snprintf(text, sizeof text, "%s%s", options->help, options->many ? "; may be given several times" : "");
        entry(out, width, label, text);
    }
}

static void print_exits(FILE *out, const struct sp_exit *exits)
{
    char label[16];

    (void)fprintf(out, "\nexit status:\n");
    for (; exits && exits->status >= 0; exits++) {
        (void)snprintf(label, sizeof label, "%d", exits->status);
        entry(out, 2, label, exits->when ? exits->when : sp_exit_text(exits->status));
    }
}

static void print_paragraphs(FILE *out, const char *const *text)
{
    for (; text && *text; text++) {
        (void)fputc('\n', out);
        fill(out, *text, 0, 0);
    }
}

static void help_command(FILE *out, const struct sp_command *command)
{
    size_t width = option_width(sp_global_options, option_width(command->options, 0));

    if (command->target)
        width = option_width(sp_target_options, width);
    (void)fprintf(out, "usage: sgl-pcie %s [option]...%s%s%s\n\n", command->name, command->words ? " [" : "",
                  command->words ? command->words : "", command->words ? "]..." : "");
    fill(out, command->summary, 0, 0);
    print_paragraphs(out, command->description);
    print_options(out, "options", command->options, width);
    if (command->target)
        print_options(out, "target (at most one)", sp_target_options, width);
    print_options(out, "options of every command", sp_global_options, width);
    print_exits(out, command->exits);
    if (command->examples && command->examples->command)
        (void)fprintf(out, "\nexamples:\n");
    for (const struct sp_example *example = command->examples; example && example->command; example++) {
        (void)fprintf(out, "%*s%s\n", INDENT, "", example->command);
        (void)fprintf(out, "%*s", 3 * INDENT, "");
        fill(out, example->text, 3 * INDENT, 3 * INDENT);
    }
}

static void help_program(FILE *out)
{
    size_t width = option_width(sp_target_options, option_width(sp_global_options, 0));

    (void)fprintf(out, "usage: sgl-pcie <command> [option]...\n\n");
    fill(out, SP_DOC_SUMMARY, 0, 0);
    (void)fprintf(out, "\ncommands:\n");
    for (size_t i = 0; sp_commands[i]; i++)
        entry(out, width, sp_commands[i]->name, sp_commands[i]->summary);
    print_options(out, "target, of commands that touch an install (at most one)", sp_target_options, width);
    print_options(out, "options of every command", sp_global_options, width);
    print_exits(out, sp_exits);
    (void)fprintf(out, "\n'sgl-pcie <command> --help' says more about a command.\n");
}

void sp_doc_help(FILE *out, const struct sp_command *command)
{
    if (command)
        help_command(out, command);
    else
        help_program(out);
}
