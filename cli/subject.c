#include "cli/subject.h"

#include "base/err.h"

#include <stdio.h>
#include <string.h>

int sp_subject_locate(struct sp_subject *out, const struct sp_args *args)
{
    struct sp_target target = {
        .python = sp_args_value(args, "python"),
        .site = sp_args_value(args, "site"),
        .source = sp_args_value(args, "source"),
    };

    memset(out, 0, sizeof *out);
    out->args = args;
    return sp_install_locate(&out->install, &target);
}

int sp_subject_open(struct sp_subject *out, const struct sp_args *args)
{
    int rc = sp_subject_locate(out, args);

    return rc < 0 ? rc : sp_patchsets_load(&out->sets, NULL);
}

void sp_subject_close(struct sp_subject *subject)
{
    sp_patchsets_free(subject->sets);
    sp_install_free(subject->install);
    memset(subject, 0, sizeof *subject);
}

static void put(char *out, size_t *used, const char *text, size_t len)
{
    size_t room = SP_NEXT_MAX - 1 - *used;

    if (len > room)
        len = room;
    memcpy(out + *used, text, len);
    *used += len;
    out[*used] = '\0';
}

static void put_quoted(char *out, size_t *used, const char *text)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./+:@%-";

    if (text[strspn(text, plain)] == '\0') {
        put(out, used, text, strlen(text));
        return;
    }
    put(out, used, "'", 1);
    for (; *text; text++) {
        if (*text == '\'')
            put(out, used, "'\\''", 4);
        else
            put(out, used, text, 1);
    }
    put(out, used, "'", 1);
}

static void put_option(char *out, size_t *used, const char *name, const char *value)
{
    put(out, used, " --", 3);
    put(out, used, name, strlen(name));
    put(out, used, " ", 1);
    put_quoted(out, used, value);
}

static const char *next(struct sp_subject *subject, const char *command, bool source)
{
    size_t used = 0;

    put(subject->next, &used, "sgl-pcie ", 9);
    put(subject->next, &used, command, strlen(command));
    for (const struct sp_option *option = sp_target_options; option->name; option++) {
        const char *value = sp_args_value(subject->args, option->name);

        if (value && (source || strcmp(option->name, "source") != 0))
            put_option(subject->next, &used, option->name, value);
    }
    return subject->next;
}

const char *sp_subject_next(struct sp_subject *subject, const char *command)
{
    return next(subject, command, true);
}

char *sp_subject_words(struct sp_subject *subject)
{
    return strdup(sp_subject_next(subject, "") + strlen("sgl-pcie "));
}

const char *sp_subject_next_source(struct sp_subject *subject, const char *command)
{
    const char *source = sp_args_value(subject->args, "source");
    size_t used = 0;

    if (!source && subject->install)
        source = subject->install->checkout;
    put(subject->next, &used, "sgl-pcie ", 9);
    put(subject->next, &used, command, strlen(command));
    if (source)
        put_option(subject->next, &used, "source", source);
    return subject->next;
}

const char *sp_subject_next_install(struct sp_subject *subject, const char *command)
{
    return next(subject, command, false);
}
