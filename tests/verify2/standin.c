/*
 * A stand-in for sgl-pcie-gpu where there is no GPU: `transfers` is the real one over fake_cuda.c, with its injected
 * faults; `smoke` and `perf` say what FAKE_SMOKE tells them for a transport: "push:7" exit code 7, "pull:hang",
 * "host:die".
 */
#include "kernels/gpu/options.h"
#include "kernels/gpu/report.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

const char *par_version(void)
{
    return "0.0.0";
}

static const char *value_of(int argc, char **argv, const char *name)
{
    for (int i = 1; i + 1 < argc; i++)
        if (strcmp(argv[i], name) == 0)
            return argv[i + 1];
    return "";
}

static int smoke(const char *transport, const char *told)
{
    const size_t len = strlen(transport);
    int code = 0;

    if (told != NULL && strncmp(told, transport, len) == 0 && told[len] == ':') {
        if (strcmp(told + len + 1, "hang") == 0 && fork() >= 0) /* with a child that holds on to the pipes */
            for (;;)
                pause();
        if (strcmp(told + len + 1, "die") == 0)
            raise(SIGKILL);
        code = atoi(told + len + 1);
    }
    report_check("smoke/process/2/x", code ? CHECK_FAIL : CHECK_PASS, code, 0.1, "%s",
                 code ? "an element was wrong" : "0 wrong elements");
    return report_end(code, code ? "an element was wrong" : "");
}

int main(int argc, char **argv)
{
    options o;
    int rc;

    memset(&o, 0, sizeof(o));
    o.json = 1;
    report_begin(argc > 1 ? argv[1] : "", 1);
    if (argc > 1 && strcmp(argv[1], "transfers") != 0)
        return smoke(value_of(argc, argv, "--transport"),
                     getenv(value_of(argc, argv, "--faults")[0] ? "FAKE_DEATH" : "FAKE_SMOKE"));
    rc = transfers_command(&o);
    if (rank_text()[0] != '\0')
        fprintf(stderr, "sgl-pcie-gpu: %s\n", rank_text());
    return report_end(rc, rank_text());
}
