#include "base/proc.h"
#include "cli/doc.h"
#include "cli/report.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A standard stream that the caller closed would lend its number to the next file opened, and that could be one of
 * the install. Reading gives nothing, and writing is an error that is noticed. */
static void hold_standard_streams(void)
{
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
        if (fcntl(fd, F_GETFD) < 0 && errno == EBADF)
            (void)open("/dev/null", O_RDONLY);
}

static int generate(const char *what)
{
    if (strcmp(what, "man") == 0)
        sp_doc_man(stdout);
    else
        sp_doc_bash(stdout);
    return SP_OK;
}

/* Help is what was asked for: it is printed as it is, or is the message of the JSON object. */
static int help(struct sp_report *report, const struct sp_command *command)
{
    char *text = NULL;
    size_t len = 0;
    FILE *out;

    if (!report->object) {
        sp_doc_help(stdout, command);
        return SP_OK;
    }
    out = open_memstream(&text, &len);
    if (!out)
        return sp_err_sys(SP_ECANNOT, "cannot hold the help text");
    sp_doc_help(out, command);
    if (fclose(out) == 0)
        (void)sp_report_say(report, NULL, "%s", text);
    free(text);
    return SP_OK;
}

static int version(struct sp_report *report)
{
    if (report->object)
        return sp_report_say(report, NULL, "sgl-pcie %s", SP_VERSION);
    (void)printf("sgl-pcie %s\n", SP_VERSION);
    return SP_OK;
}

static int run(const struct sp_args *args, struct sp_report *report)
{
    int rc;

    if (sp_args_has(args, "generate"))
        rc = generate(sp_args_value(args, "generate"));
    else if (sp_args_has(args, "help"))
        rc = help(report, args->command);
    else if (sp_args_has(args, "version"))
        rc = version(report);
    else if (!args->command)
        rc = sp_err(SP_EUSAGE, "no command given");
    else
        rc = args->command->run(args, report);
    return rc;
}

int main(int argc, char **argv)
{
    struct sp_report report;
    struct sp_args args;
    int rc, status;

    hold_standard_streams();
    sp_proc_catch_signals();
    (void)signal(SIGXFSZ, SIG_IGN); /* of ulimit -f: the write fails instead, and is told and undone */
    rc = sp_args_parse(&args, argc, argv);
    sp_report_begin(&report, &args, sp_argv_has(argc, argv, "json"));
    if (rc == SP_OK)
        rc = run(&args, &report);
    status = sp_report_end(&report, sp_args_hint(&args, rc));
    sp_args_free(&args);
    return status;
}
