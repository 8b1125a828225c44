/*
 * sgl-pcie-gpu: the program that does GPU work for sgl-pcie: is libpar.so right here, and how fast is it?
 */
#include "options.h"
#include "report.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    const char *name, *help;
    int (*run)(const options *o);
} command;

static int smoke_or_faults(const options *o)
{
    return o->faults ? faults_command(o) : smoke_command(o);
}

static const command commands[] = {
    {"smoke", "compare every algorithm with a CPU reference, bit by bit (--faults: provoke failures)", smoke_or_faults},
    {"perf", "time the algorithms, and NCCL beside them", perf_command},
};

enum {
    OPT_GPUS = 256, OPT_WORLDS, OPT_TRANSPORT, OPT_ALGORITHMS, OPT_TYPES, OPT_MODE, OPT_FAULTS, OPT_SOAK, OPT_MAX,
    OPT_SIZES, OPT_LANES, OPT_THREADS, OPT_CHUNKS, OPT_CALLS, OPT_ITERATIONS, OPT_NCCL, OPT_NO_NCCL, OPT_MODEL,
    OPT_EACH, OPT_GRID, OPT_SEED, OPT_LIMIT, OPT_TIMEOUT, OPT_JSON
};

/* One option: its value's name (null: none), and help. */
typedef struct {
    const char *name, *value, *help;
    int id;
} option_spec;

static const option_spec specs[] = {
    {"gpus", "LIST", "CUDA device numbers in PCI order (default: all)", OPT_GPUS},
    {"world", "LIST", "world sizes (default: smoke all, perf the number of GPUs)", OPT_WORLDS},
    {"transport", "LIST", "host, push, pull, peer (push and pull), all (default)", OPT_TRANSPORT},
    {"algorithms", "LIST", "by name, as host-two-shot (default: all)", OPT_ALGORITHMS},
    {"types", "LIST", "fp16, bf16, fp32 (default: smoke all, perf bf16)", OPT_TYPES},
    {"seed", "N", "of the test data (default 1)", OPT_SEED},
    {"limit", "SECONDS", "time limit of one group of processes (default 300)", OPT_LIMIT},
    {"timeout", "SECONDS", "of a wait inside a call (default 10)", OPT_TIMEOUT},
    {"json", NULL, "one JSON object instead of text", OPT_JSON},
    {"mode", "MODE", "smoke: process, local (all ranks in one process), both (default)", OPT_MODE},
    {"max-bytes", "SIZE", "smoke: longest message (default 64M)", OPT_MAX},
    {"soak", "N", "smoke: then N small calls under random delays, per group", OPT_SOAK},
    {"faults", NULL, "smoke: kill, stall and overlap ranks instead", OPT_FAULTS},
    {"sizes", "LIST", "perf: message sizes, K and M for KiB and MiB", OPT_SIZES},
    {"lanes", "LIST", "perf: blocks per call to try; 0 is the library's rule (default)", OPT_LANES},
    {"threads", "LIST", "perf: threads per block to try; 0 is the library's rule (default)", OPT_THREADS},
    {"chunks", "LIST", "perf: chunk sizes to try; 0 is the library's rule (default)", OPT_CHUNKS},
    {"calls", "N", "perf: calls in a CUDA graph (default 100)", OPT_CALLS},
    {"iterations", "N", "perf: replays timed (default 20, fewer when they are long)", OPT_ITERATIONS},
    {"nccl", "PATH", "perf: libnccl.so.2 to compare with (default: as the dynamic linker finds it)", OPT_NCCL},
    {"no-nccl", NULL, "perf: without NCCL", OPT_NO_NCCL},
    {"model", NULL, "perf: measure latency and rates first, and print what they allow", OPT_MODEL},
    {"each", NULL, "perf: a row for every algorithm, not only for the fastest", OPT_EACH},
    {"grid", NULL, "perf: a line for every combination of lanes, threads and chunk that is tried", OPT_GRID},
};

enum { SPECS = sizeof(specs) / sizeof(specs[0]), COMMANDS = sizeof(commands) / sizeof(commands[0]) };

static void print_help(void)
{
    size_t i;

    printf("usage: sgl-pcie-gpu COMMAND [OPTION]...\n\nCommands:\n");
    for (i = 0; i < COMMANDS; i++)
        printf("  %-8s %s\n", commands[i].name, commands[i].help);
    printf("\nOptions:\n");
    for (i = 0; i < SPECS; i++)
        printf("  --%s%s%-*s %s\n", specs[i].name, specs[i].value != NULL ? " " : "",
               20 - (int)strlen(specs[i].name) - (specs[i].value != NULL ? 1 : 0),
               specs[i].value != NULL ? specs[i].value : "", specs[i].help);
    printf("\nExit codes: 0 ok, 1 a check failed, 2 usage, 5 could not (no GPU, driver, memory), 7 wrong data, 8 hang,\n"
           "9 inconclusive.\n");
}

/* --- values ---------------------------------------------------------------------------------- */

static int bad_value(const char *option, const char *value)
{
    fprintf(stderr, "sgl-pcie-gpu: bad value '%s' for --%s; see sgl-pcie-gpu --help\n", value, option);
    return CODE_USAGE;
}

static int parse_size(size_t *out, const char *s)
{
    char *end;
    double n = strtod(s, &end);

    if (end == s || n < 0)
        return -1;
    if (*end == 'K' || *end == 'k')
        n *= 1024, end++;
    else if (*end == 'M' || *end == 'm')
        n *= 1048576, end++;
    else if (*end == 'G' || *end == 'g')
        n *= 1073741824, end++;
    *out = (size_t)n;
    return *end == '\0' ? 0 : -1;
}

/* Call `take` for every piece between commas; 0 if all were taken. */
static int each_piece(const char *list, int (*take)(void *out, const char *piece), void *out)
{
    char piece[64];
    int rc = *list == '\0' ? -1 : 0;

    while (*list != '\0' && rc == 0) {
        size_t n = strcspn(list, ",");
        if (n == 0 || n >= sizeof(piece))
            return -1;
        memcpy(piece, list, n);
        piece[n] = '\0';
        rc = take(out, piece);
        list += n + (list[n] == ',');
    }
    return rc;
}

static int take_size(void *out, const char *piece)
{
    size_list *l = out;

    if (l->n >= OPTIONS_LIST || parse_size(&l->value[l->n], piece) != 0)
        return -1;
    l->n++;
    return 0;
}

static int take_gpu(void *out, const char *piece)
{
    options *o = out;
    size_t n;

    if (o->gpus >= RANKS_MAX || parse_size(&n, piece) != 0 || n > 1024)
        return -1;
    o->gpu[o->gpus++] = (int)n;
    return 0;
}

static int take_world(void *out, const char *piece)
{
    size_t n;

    if (parse_size(&n, piece) != 0 || n < 2 || n > PAR_MAX_WORLD)
        return -1;
    *(unsigned *)out |= 1u << n;
    return 0;
}

static int take_transport(void *out, const char *piece)
{
    unsigned bits = strcmp(piece, "all") == 0 ? 7u : strcmp(piece, "peer") == 0 ? 6u : 0u;
    int t;

    for (t = 0; t < PAR_TRANSPORTS && bits == 0; t++)
        if (strcmp(piece, par_transport_name(t)) == 0)
            bits = 1u << t;
    *(unsigned *)out |= bits;
    return bits != 0 ? 0 : -1;
}

static int take_algorithm(void *out, const char *piece)
{
    int a = par_algorithm_by_name(piece);

    if (a <= 0)
        return -1;
    *(unsigned *)out |= 1u << a;
    return 0;
}

static int take_type(void *out, const char *piece)
{
    int t;

    for (t = 0; t < PAR_DTYPES; t++)
        if (strcmp(piece, par_dtype_name(t)) == 0) {
            *(unsigned *)out |= 1u << t;
            return 0;
        }
    return -1;
}

static int take_mode(options *o, const char *value)
{
    o->process = strcmp(value, "local") != 0;
    o->local = strcmp(value, "process") != 0;
    return (o->process && o->local && strcmp(value, "both") != 0) ? -1 : 0;
}

static int take_list(size_list *l, const char *value)
{
    l->n = 0;
    return each_piece(value, take_size, l);
}

static int take_count(size_t *out, const char *value, size_t most)
{
    return parse_size(out, value) != 0 || *out < 1 || *out > most ? -1 : 0;
}

static int take_option(options *o, int id, const char *value)
{
    size_t n = 0;
    int rc = 0;

    switch (id) {
    case OPT_GPUS: rc = each_piece(value, take_gpu, o); break;
    case OPT_WORLDS: rc = each_piece(value, take_world, &o->worlds); break;
    case OPT_TRANSPORT: rc = each_piece(value, take_transport, &o->transports); break;
    case OPT_ALGORITHMS: rc = each_piece(value, take_algorithm, &o->algorithms); break;
    case OPT_TYPES: rc = each_piece(value, take_type, &o->dtypes); break;
    case OPT_MODE: rc = take_mode(o, value); break;
    case OPT_FAULTS: o->faults = 1; break;
    case OPT_SOAK: rc = take_count(&n, value, (size_t)1 << 40); o->soak = n; break;
    case OPT_MAX: rc = take_count(&o->max_bytes, value, (size_t)1 << 30); break;
    case OPT_SIZES: rc = take_list(&o->sizes, value); break;
    case OPT_LANES: rc = take_list(&o->lanes, value); break;
    case OPT_THREADS: rc = take_list(&o->threads, value); break;
    case OPT_CHUNKS: rc = take_list(&o->chunks, value); break;
    case OPT_CALLS: rc = take_count(&n, value, 10000); o->calls = (int)n; break;
    case OPT_ITERATIONS: rc = take_count(&n, value, 1000); o->iterations = (int)n; break;
    case OPT_NCCL: o->nccl_path = value; break;
    case OPT_NO_NCCL: o->nccl = 0; break;
    case OPT_MODEL: o->model = 1; break;
    case OPT_EACH: o->each = 1; break;
    case OPT_GRID: o->grid = 1; break;
    case OPT_SEED: rc = parse_size(&n, value); o->seed = n; break;
    case OPT_LIMIT: rc = take_count(&n, value, 86400); o->limit_s = (double)n; break;
    case OPT_TIMEOUT: rc = take_count(&n, value, 86400); o->timeout_s = (double)n; break;
    case OPT_JSON: o->json = 1; break;
    default: rc = -1; break;
    }
    return rc;
}

static void defaults(options *o)
{
    memset(o, 0, sizeof(*o));
    o->process = o->local = 1;
    o->max_bytes = 64u << 20;
    o->lanes.n = o->threads.n = o->chunks.n = 1;
    o->calls = 100;
    o->iterations = 20;
    o->nccl = 1;
    o->seed = 1;
    o->limit_s = 300;
    o->timeout_s = 10;
}

static int parse(options *o, int argc, char **argv)
{
    struct option longs[SPECS + 1];
    int i, index = 0, id, rc = CODE_OK;

    defaults(o);
    memset(longs, 0, sizeof(longs));
    for (i = 0; i < SPECS; i++) {
        longs[i].name = specs[i].name;
        longs[i].has_arg = specs[i].value != NULL ? required_argument : no_argument;
        longs[i].val = specs[i].id;
    }
    while (rc == 0 && (id = getopt_long(argc, argv, "", longs, &index)) != -1) {
        if (id == '?')
            rc = CODE_USAGE;
        else if (take_option(o, id, optarg) != 0)
            rc = bad_value(longs[index].name, optarg != NULL ? optarg : "");
    }
    if (rc == 0 && optind < argc)
        rc = bad_value("(argument)", argv[optind]);
    o->transports = o->transports != 0 ? o->transports : 7u;
    o->algorithms = o->algorithms != 0 ? o->algorithms : ~1u;
    return rc;
}

int main(int argc, char **argv)
{
    const command *c = NULL;
    options o;
    size_t i;
    int rc;

    if (argc < 2 || strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "help") == 0) {
        print_help();
        return argc < 2 ? CODE_USAGE : CODE_OK;
    }
    if (strcmp(argv[1], "--version") == 0) {
        puts(par_version());
        return CODE_OK;
    }
    for (i = 0; i < COMMANDS; i++)
        if (strcmp(argv[1], commands[i].name) == 0)
            c = &commands[i];
    if (c == NULL) {
        fprintf(stderr, "sgl-pcie-gpu: no command '%s'; see sgl-pcie-gpu --help\n", argv[1]);
        return CODE_USAGE;
    }
    rc = parse(&o, argc - 1, argv + 1);
    if (rc != 0)
        return rc;
    if (par_abi() != PAR_ABI) {
        fprintf(stderr, "sgl-pcie-gpu: libpar.so has interface %d, this program needs %d; run sgl-pcie build\n",
                par_abi(), PAR_ABI);
        return CODE_CANNOT;
    }
    setenv("CUDA_DEVICE_ORDER", "PCI_BUS_ID", 0); /* so that numbers mean what nvidia-smi shows */
    if (o.dtypes == 0)
        o.dtypes = c->run == perf_command ? 1u << PAR_BF16 : (1u << PAR_DTYPES) - 1;
    report_begin(o.faults ? "smoke --faults" : c->name, o.json);
    rc = c->run(&o);
    if (rank_text()[0] != '\0')
        fprintf(stderr, "sgl-pcie-gpu: %s\n", rank_text());
    return report_end(rc, rank_text());
}
