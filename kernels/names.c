/* names.c: what there is, by name. */
#include <string.h>

#include "pcie_allreduce.h"

#ifndef PAR_VERSION
#define PAR_VERSION "0.1.0"
#endif

static const struct {
    const char *name;
    int transport;
} algorithms[PAR_ALGORITHMS] = {
    [PAR_AUTO] = {"auto", -1},
    [PAR_HOST_ONE_SHOT] = {"host-one-shot", PAR_HOST},
    [PAR_HOST_TWO_SHOT] = {"host-two-shot", PAR_HOST},
    [PAR_HOST_ONE_SHOT_CHUNKED] = {"host-one-shot-chunked", PAR_HOST},
    [PAR_HOST_TWO_SHOT_CHUNKED] = {"host-two-shot-chunked", PAR_HOST},
    [PAR_PUSH_ONE_SHOT] = {"push-one-shot", PAR_PUSH},
    [PAR_PUSH_TWO_SHOT] = {"push-two-shot", PAR_PUSH},
    [PAR_PUSH_ONE_SHOT_CHUNKED] = {"push-one-shot-chunked", PAR_PUSH},
    [PAR_PUSH_TWO_SHOT_CHUNKED] = {"push-two-shot-chunked", PAR_PUSH},
    [PAR_PULL_ONE_SHOT] = {"pull-one-shot", PAR_PULL},
    [PAR_PULL_TWO_SHOT] = {"pull-two-shot", PAR_PULL},
    [PAR_HOST_ONE_SHOT_TAGGED] = {"host-one-shot-tagged", PAR_HOST},
    [PAR_HOST_TWO_SHOT_TAGGED] = {"host-two-shot-tagged", PAR_HOST},
};

static const char *const transports[PAR_TRANSPORTS] = {"host", "push", "pull"};

static const struct {
    const char *name;
    size_t size;
} dtypes[PAR_DTYPES] = {[PAR_FP16] = {"fp16", 2}, [PAR_BF16] = {"bf16", 2}, [PAR_FP32] = {"fp32", 4}};

static const char *const errors[] = {
    "ok",       "argument", "unsupported", "memory",  "cuda",      "system",
    "mismatch", "bootstrap", "aborted",    "timeout", "peer-died", "overlap",
};

const char *par_algorithm_name(int algorithm)
{
    return algorithm >= 0 && algorithm < PAR_ALGORITHMS ? algorithms[algorithm].name : NULL;
}

const char *par_transport_name(int transport)
{
    return transport >= 0 && transport < PAR_TRANSPORTS ? transports[transport] : NULL;
}

const char *par_dtype_name(int dtype)
{
    return dtype >= 0 && dtype < PAR_DTYPES ? dtypes[dtype].name : NULL;
}

int par_algorithm_by_name(const char *name)
{
    int found = -1;
    for (int i = 0; name && i < PAR_ALGORITHMS; i++)
        if (strcmp(algorithms[i].name, name) == 0)
            found = i;
    return found;
}

int par_algorithm_transport(int algorithm)
{
    return algorithm >= 0 && algorithm < PAR_ALGORITHMS ? algorithms[algorithm].transport : -1;
}

size_t par_dtype_size(int dtype)
{
    return dtype >= 0 && dtype < PAR_DTYPES ? dtypes[dtype].size : 0;
}

const char *par_error_name(int error)
{
    int count = (int)(sizeof errors / sizeof errors[0]);
    return error <= 0 && error > -count ? errors[-error] : "unknown";
}

int par_abi(void)
{
    return PAR_ABI;
}

const char *par_version(void)
{
    return PAR_VERSION;
}
