#include "cli/opt.h"

#include "base/err.h"

#include <stdlib.h>
#include <string.h>

enum { NAME_MAX_LEN = 32, NAMES_MAX = 64 };

/* ---- suggestions ---- */

static size_t min3(size_t a, size_t b, size_t c)
{
    size_t least = a < b ? a : b;

    return least < c ? least : c;
}

/* Edit distance; a swap of neighbours counts as one. Both words are at most NAME_MAX_LEN long. */
static size_t distance(const char *a, size_t a_len, const char *b, size_t b_len)
{
    size_t d[NAME_MAX_LEN + 1][NAME_MAX_LEN + 1];

    for (size_t i = 0; i <= a_len; i++)
        d[i][0] = i;
    for (size_t j = 0; j <= b_len; j++)
        d[0][j] = j;
    for (size_t i = 1; i <= a_len; i++) {
        for (size_t j = 1; j <= b_len; j++) {
            size_t change = a[i - 1] == b[j - 1] ? 0 : 1;

            d[i][j] = min3(d[i - 1][j] + 1, d[i][j - 1] + 1, d[i - 1][j - 1] + change);
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] && d[i - 2][j - 2] + 1 < d[i][j])
                d[i][j] = d[i - 2][j - 2] + 1;
        }
    }
    return d[a_len][b_len];
}

const char *sp_nearest(const char *word, const char *const *names)
{
    size_t len = strlen(word);
    size_t best = len / 3 + 1;
    const char *found = NULL;

    if (len == 0 || len > NAME_MAX_LEN)
        return NULL;
    for (size_t i = 0; names[i]; i++) {
        size_t name_len = strlen(names[i]);
        size_t d = name_len > NAME_MAX_LEN ? NAME_MAX_LEN : distance(word, len, names[i], name_len);

        if (name_len > len && strncmp(names[i], word, len) == 0)
            d = 1; /* an abbreviation */
        if (d < best || (d == best && !found)) {
            best = d;
            found = names[i];
        }
    }
    return found;
}

static void add_names(const char **names, size_t *count, const struct sp_option *options)
{
    for (; options && options->name && *count < NAMES_MAX; options++)
        if (!options->hidden)
            names[(*count)++] = options->name;
}

/* ---- the table ---- */

static const struct sp_option *find(const struct sp_option *options, const char *name, size_t len)
{
    for (; options && options->name; options++)
        if (strncmp(options->name, name, len) == 0 && options->name[len] == '\0')
            return options;
    return NULL;
}

static const struct sp_option *find_letter(char letter)
{
    for (const struct sp_option *option = sp_global_options; option->name; option++)
        if (option->letter == letter)
            return option;
    return NULL;
}

static bool takes_target(const struct sp_command *command)
{
    return !command || command->target;
}

static const struct sp_option *lookup(const struct sp_command *command, const char *name, size_t len)
{
    const struct sp_option *option = find(sp_global_options, name, len);

    if (!option && takes_target(command))
        option = find(sp_target_options, name, len);
    if (!option && command)
        option = find(command->options, name, len);
    return option;
}

/* ---- errors ---- */

static int unknown_option(const struct sp_command *command, const char *dashes, const char *name, size_t len)
{
    const char *names[NAMES_MAX + 1] = {NULL};
    char word[NAME_MAX_LEN + 1] = "";
    const char *nearest;
    size_t count = 0;

    add_names(names, &count, sp_global_options);
    if (takes_target(command))
        add_names(names, &count, sp_target_options);
    if (command)
        add_names(names, &count, command->options);
    if (len <= NAME_MAX_LEN)
        memcpy(word, name, len);
    nearest = sp_nearest(word, names);
    return sp_err(SP_EUSAGE, "unknown option '%s%.*s'%s%s%s%s%s%s", dashes, (int)len, name, command ? " of '" : "",
                  command ? command->name : "", command ? "'" : "", nearest ? ", did you mean '--" : "",
                  nearest ? nearest : "", nearest ? "'?" : "");
}

static int unknown_command(const char *word)
{
    const char *names[NAMES_MAX + 1] = {NULL};
    const char *nearest;

    for (size_t i = 0; sp_commands[i] && i < NAMES_MAX; i++)
        names[i] = sp_commands[i]->name;
    nearest = sp_nearest(word, names);
    return sp_err(SP_EUSAGE, "unknown command '%s'%s%s%s", word, nearest ? ", did you mean '" : "",
                  nearest ? nearest : "", nearest ? "'?" : "");
}

static int bad_choice(const struct sp_option *option, const char *value)
{
    char list[256] = "";
    size_t used = 0;

    for (size_t i = 0; option->choices[i]; i++) {
        const char *between = i == 0 ? "" : option->choices[i + 1] ? ", " : " or ";
        size_t need = strlen(between) + strlen(option->choices[i]);

        if (used + need >= sizeof list)
            break;
        memcpy(list + used, between, strlen(between));
        memcpy(list + used + strlen(between), option->choices[i], strlen(option->choices[i]) + 1);
        used += need;
    }
    return sp_err(SP_EUSAGE, "option '--%s' takes %s, not '%s'", option->name, list, value);
}

/* ---- parsing ---- */

static int check_value(const struct sp_option *option, const char *value)
{
    if (value[0] == '\0')
        return sp_err(SP_EUSAGE, "option '--%s' needs a value that is not empty", option->name);
    if (!option->choices)
        return SP_OK;
    for (size_t i = 0; option->choices[i]; i++)
        if (strcmp(option->choices[i], value) == 0)
            return SP_OK;
    return bad_choice(option, value);
}

static void add(struct sp_args *args, const struct sp_option *option, const char *value)
{
    args->given[args->count].option = option;
    args->given[args->count].value = value;
    args->count++;
}

/* argv[*at] is "--name" or "--name=value"; *at moves on when the value is the next word. */
static int parse_long(struct sp_args *args, int argc, char **argv, int *at)
{
    const char *name = argv[*at] + 2;
    const char *equals = strchr(name, '=');
    size_t len = equals ? (size_t)(equals - name) : strlen(name);
    const struct sp_option *option = lookup(args->command, name, len);
    const char *value = equals ? equals + 1 : NULL;
    int rc;

    if (!option)
        return unknown_option(args->command, "--", name, len);
    if (!option->value && value)
        return sp_err(SP_EUSAGE, "option '--%s' takes no value", option->name);
    if (option->value && !value) {
        if (*at + 1 >= argc || strncmp(argv[*at + 1], "--", 2) == 0)
            return sp_err(SP_EUSAGE, "option '--%s' needs a value: --%s=%s", option->name, option->name, option->value);
        value = argv[++*at];
    }
    rc = option->value ? check_value(option, value) : SP_OK;
    if (rc == SP_OK)
        add(args, option, value);
    return rc;
}

static int parse_short(struct sp_args *args, const char *word)
{
    const struct sp_option *option = word[2] == '\0' ? find_letter(word[1]) : NULL;

    if (!option)
        return unknown_option(args->command, "-", word + 1, strlen(word + 1));
    add(args, option, NULL);
    return SP_OK;
}

static int parse_word(struct sp_args *args, const char *word)
{
    if (!args->command) {
        args->command = sp_command_find(word);
        return args->command ? SP_OK : unknown_command(word);
    }
    if (!args->command->words)
        return sp_err(SP_EUSAGE, "'%s' takes no argument, but got '%s'", args->command->name, word);
    args->words[args->word_count++] = word;
    return SP_OK;
}

/* A target option may have come before a command that takes none. */
static int check_given(const struct sp_args *args)
{
    for (size_t i = 0; i < args->count; i++) {
        const char *name = args->given[i].option->name;

        if (!lookup(args->command, name, strlen(name)))
            return unknown_option(args->command, "--", name, strlen(name));
    }
    return SP_OK;
}

int sp_args_parse(struct sp_args *out, int argc, char **argv)
{
    size_t room = argc > 0 ? (size_t)argc : 1;
    bool options = true;
    int rc = SP_OK;

    memset(out, 0, sizeof *out);
    out->given = calloc(room, sizeof *out->given);
    out->words = calloc(room + 1, sizeof *out->words);
    if (!out->given || !out->words)
        return sp_err(SP_ECANNOT, "out of memory");
    for (int i = 1; i < argc && rc == SP_OK; i++) {
        const char *word = argv[i];

        if (options && strcmp(word, "--") == 0)
            options = false;
        else if (options && strncmp(word, "--", 2) == 0)
            rc = parse_long(out, argc, argv, &i);
        else if (options && word[0] == '-' && word[1] != '\0')
            rc = parse_short(out, word);
        else
            rc = parse_word(out, word);
    }
    return rc == SP_OK ? check_given(out) : rc;
}

void sp_args_free(struct sp_args *args)
{
    free(args->given);
    free(args->words);
    memset(args, 0, sizeof *args);
}

bool sp_args_has(const struct sp_args *args, const char *name)
{
    for (size_t i = 0; i < args->count; i++)
        if (strcmp(args->given[i].option->name, name) == 0)
            return true;
    return false;
}

const char *sp_args_value(const struct sp_args *args, const char *name)
{
    const char *value = NULL;

    for (size_t i = 0; i < args->count; i++)
        if (strcmp(args->given[i].option->name, name) == 0)
            value = args->given[i].value;
    return value;
}

int sp_args_number(double *out, const struct sp_args *args, const char *name, double least)
{
    const char *text = sp_args_value(args, name);
    char *end = NULL;

    *out = text ? strtod(text, &end) : 0;
    if (text && (end == text || *end || !(*out > 0) || *out > 1e6))
        return sp_err(SP_EUSAGE, "'%s' is no number for --%s", text, name);
    if (text && *out < least)
        return sp_err(SP_EUSAGE, "--%s %s is too little: %g at least", name, text, least);
    return SP_OK;
}

int sp_args_hint(const struct sp_args *args, int rc)
{
    if (rc == SP_EUSAGE && *sp_err_hint_text() == '\0')
        (void)sp_err_hint(rc, "sgl-pcie %s%s--help", args->command ? args->command->name : "",
                          args->command ? " " : "");
    return rc;
}

int sp_args_values(const char ***out, const struct sp_args *args, const char *name)
{
    const char **values;
    size_t count = 0;

    *out = NULL;
    if (!sp_args_has(args, name))
        return SP_OK;
    values = calloc(args->count + 1, sizeof *values);
    if (!values)
        return sp_err(SP_ECANNOT, "out of memory");
    for (size_t i = 0; i < args->count; i++)
        if (strcmp(args->given[i].option->name, name) == 0)
            values[count++] = args->given[i].value;
    *out = values;
    return SP_OK;
}

bool sp_argv_has(int argc, char **argv, const char *name)
{
    for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++)
        if (strncmp(argv[i], "--", 2) == 0 && strcmp(argv[i] + 2, name) == 0)
            return true;
    return false;
}
