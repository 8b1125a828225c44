#include "cli/doc.h"

#include <string.h>

static void words(FILE *out, const struct sp_option *option)
{
    for (; option && option->name; option++)
        if (!option->hidden)
            (void)fprintf(out, " --%s", option->name);
}

/* Does a command before this one have an option of this name? Names mean the same everywhere. */
static bool seen_before(size_t command, const char *name)
{
    for (size_t i = 0; i < command; i++)
        for (const struct sp_option *option = sp_commands[i]->options; option && option->name; option++)
            if (strcmp(option->name, name) == 0)
                return true;
    return false;
}

/* Branches of the case over the option whose value is being typed. */
static void value_case(FILE *out, const struct sp_option *option, size_t command)
{
    for (; option && option->name; option++) {
        if (option->hidden || !option->value || seen_before(command, option->name))
            continue;
        (void)fprintf(out, "    --%s)\n", option->name);
        if (option->choices) {
            (void)fputs("        mapfile -t COMPREPLY < <(compgen -W \"", out);
            for (size_t i = 0; option->choices[i]; i++)
                (void)fprintf(out, "%s%s", i ? " " : "", option->choices[i]);
            (void)fputs("\" -- \"$word\")\n", out);
        } else if (option->complete != SP_COMPLETE_NONE) {
            (void)fputs("        compopt -o filenames\n", out);
            (void)fprintf(out, "        mapfile -t COMPREPLY < <(compgen -%c -- \"$word\")\n",
                          option->complete == SP_COMPLETE_DIR ? 'd' : 'f');
        }
        (void)fputs("        return\n        ;;\n", out);
    }
}

static void option_case(FILE *out, const struct sp_command *command)
{
    (void)fprintf(out, "    %s) words=\"", command ? command->name : "''");
    if (command)
        words(out, command->options);
    if (!command || command->target)
        words(out, sp_target_options);
    words(out, sp_global_options);
    (void)fputs("\" ;;\n", out);
}

void sp_doc_bash(FILE *out)
{
    (void)fputs("# bash completion for sgl-pcie; made by sgl-pcie --generate=bash\n"
                "_sgl_pcie()\n{\n"
                "    local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]}\n"
                "    local commands=\"",
                out);
    for (size_t i = 0; sp_commands[i]; i++)
        (void)fprintf(out, "%s%s", i ? " " : "", sp_commands[i]->name);
    /* bash splits "--name=value" into three words. */
    (void)fputs("\" command='' words='' i\n"
                "    COMPREPLY=()\n"
                "    if [[ $word == '=' ]]; then\n"
                "        word=''\n"
                "    elif [[ $before == '=' ]]; then\n"
                "        before=${COMP_WORDS[COMP_CWORD - 2]}\n"
                "    fi\n"
                "    case $before in\n",
                out);
    value_case(out, sp_global_options, 0);
    value_case(out, sp_target_options, 0);
    for (size_t i = 0; sp_commands[i]; i++)
        value_case(out, sp_commands[i]->options, i);
    (void)fputs("    esac\n"
                "    for ((i = 1; i < COMP_CWORD; i++)); do\n"
                "        if [[ \" $commands \" == *\" ${COMP_WORDS[i]} \"* ]]; then\n"
                "            command=${COMP_WORDS[i]}\n"
                "            break\n"
                "        fi\n"
                "    done\n"
                "    case $command in\n",
                out);
    option_case(out, NULL);
    for (size_t i = 0; sp_commands[i]; i++)
        option_case(out, sp_commands[i]);
    (void)fputs("    esac\n"
                "    if [[ $word != -* && -z $command ]]; then\n"
                "        words=$commands\n"
                "    fi\n"
                "    mapfile -t COMPREPLY < <(compgen -W \"$words\" -- \"$word\")\n"
                "}\n"
                "complete -F _sgl_pcie sgl-pcie\n",
                out);
}
