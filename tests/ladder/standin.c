/*
 * A stand-in for sgl-pcie-gpu where there is no GPU: `transfers` is the real one over fake_cuda.c, with its injected
 * faults; so is `nccl`, over fake_nccl.c; `smoke` and `perf` say what FAKE_SMOKE tells them for a transport: "push:7"
 * exit code 7, "pull:hang", "host:die".
 */
#include "kernels/gpu/options.h"
#include "kernels/gpu/report.h"

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *value_of(int argc, char **argv, const char *name)
{
    for (int i = 1; i + 1 < argc; i++)
        if (strcmp(argv[i], name) == 0)
            return argv[i + 1];
    return "";
}

/* Real commands. */
static int real(int (*command)(const options *o), const options *o)
{
    const int rc = command(o);

    if (rank_text()[0] != '\0')
        fprintf(stderr, "sgl-pcie-gpu: %s\n", rank_text());
    return report_end(rc, rank_text());
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

static bool has(int argc, char **argv, const char *name)
{
    bool found = false;

    for (int i = 1; i < argc; i++)
        found = found || strcmp(argv[i], name) == 0;
    return found;
}

static int stream(char **argv)
{
    const char *script = getenv("PERF_STANDIN");
    char *words[64] = {(char *)(uintptr_t) "python3", (char *)(uintptr_t) "-B", (char *)(uintptr_t)script};

    for (size_t i = 1; argv[i] != NULL && i < 60; i++)
        words[i + 2] = argv[i];
    return script != NULL ? execv("/usr/bin/python3", words) : CODE_USAGE;
}

int main(int argc, char **argv)
{
    const char *command = argc > 1 ? argv[1] : "";
    options o;

    if (has(argc, argv, "--stream"))
        return stream(argv);
    memset(&o, 0, sizeof(o));
    o.json = 1;
    o.limit_s = atof(value_of(argc, argv, "--limit"));
    report_begin(command, 1);
    if (strcmp(command, "transfers") == 0)
        return real(transfers_command, &o);
    if (strcmp(command, "nccl") == 0)
        return real(rival_command, &o);
    if (has(argc, argv, "--soak-for") && atof(value_of(argc, argv, "--soak-for")) < 1)
        return CODE_USAGE;
    return smoke(value_of(argc, argv, "--transport"),
                 getenv(value_of(argc, argv, "--faults")[0] ? "FAKE_DEATH" : "FAKE_SMOKE"));
}
