/*
 * sgl-pcie-gpu: the program that does GPU work for sgl-pcie: is libpar.so right here, and how fast is it?
 */
#include "options.h"
#include "report.h"

#include <errno.h>
#include <getopt.h>
#include <stddef.h>
#include <stdint.h>
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
    {"transfers", "test what passes between each two GPUs, and through host memory", transfers_command},
    {"nccl", "does NCCL give right sums here, with and without peer access?", rival_command},
};

/* What an option's value is, and with it the type of the member that it goes to. */
typedef enum {
    FLAG,       /* int, becomes 1 */
    CLEAR,      /* int, becomes 0 */
    COUNT,      /* int, at least 1 */
    NUMBER,     /* uint64_t */
    SIZE,       /* size_t, with K, M or G */
    SECONDS,    /* double */
    TEXT,       /* const char * */
    SIZES,      /* size_list */
    GPUS,       /* the options */
    MODE,       /* the options */
    WORLDS,     /* unsigned, bits */
    TRANSPORTS, /* unsigned, bits */
    ALGORITHMS, /* unsigned, bits */
    TYPES       /* unsigned, bits */
} kind;

typedef struct {
    const char *name, *value, *help;
    kind kind;
    size_t offset; /* of the member */
} option_spec;

#define TO(member) offsetof(options, member)

static const option_spec specs[] = {
    {"gpus", "LIST", "CUDA device numbers in PCI order, one a rank; ranks may share one (default: all)", GPUS, 0},
    {"world", "LIST", "world sizes (default: smoke all, perf the number of GPUs, with a budget 2 also)", WORLDS,
     TO(worlds)},
    {"transport", "LIST", "host, push, pull, peer (push and pull), all (default)", TRANSPORTS, TO(transports)},
    {"algorithms", "LIST", "by name, as host-two-shot (default: all)", ALGORITHMS, TO(algorithms)},
    {"types", "LIST", "fp16, bf16, fp32 (default: smoke all, perf bf16, with a budget the others in short)", TYPES,
     TO(dtypes)},
    {"seed", "N", "of the test data (default 1)", NUMBER, TO(seed)},
    {"limit", "SECONDS", "time limit of one group of processes (default 300)", SECONDS, TO(limit_s)},
    {"timeout", "SECONDS", "of a wait inside a call (default 10)", SECONDS, TO(timeout_s)},
    {"json", NULL, "one JSON object instead of text", FLAG, TO(json)},
    {"mode", "MODE", "smoke: process, local (all ranks in one process), both (default)", MODE, 0},
    {"max-bytes", "SIZE", "smoke: longest message (default 64M)", SIZE, TO(max_bytes)},
    {"soak", "N", "smoke: then N small calls under random delays, per group", NUMBER, TO(soak)},
    {"soak-for", "SECONDS", "smoke: such calls for so long", SECONDS, TO(soak_s)},
    {"faults", NULL, "smoke: kill, stall and overlap ranks instead", FLAG, TO(faults)},
    {"sizes", "LIST", "perf: message sizes, K, M, G for KiB, MiB, GiB", SIZES, TO(sizes)},
    {"lanes", "LIST", "perf: blocks per call to try; 0 is the library's rule (default)", SIZES, TO(lanes)},
    {"threads", "LIST", "perf: threads per block to try; 0 is the library's rule (default)", SIZES, TO(threads)},
    {"chunks", "LIST", "perf: chunk sizes to try; 0 is the library's rule (default)", SIZES, TO(chunks)},
    {"calls", "N", "perf: calls in a CUDA graph (default 100)", COUNT, TO(calls)},
    {"iterations", "N", "perf: replays timed (default 20, fewer when they are long)", COUNT, TO(iterations)},
    {"nccl", "PATH", "perf: libnccl.so.2 to compare with (default: the one that SGLang would load)", TEXT,
     TO(nccl_path)},
    {"no-nccl", NULL, "perf: without NCCL", CLEAR, TO(nccl)},
    {"model", NULL, "perf: measure latency and rates first, and print what they allow", FLAG, TO(model)},
    {"each", NULL, "perf: every algorithm in full, and a row for it; not only those near the fastest", FLAG, TO(each)},
    {"grid", NULL, "perf: a line for every lanes, threads and chunk that is tried", FLAG, TO(grid)},
    {"budget", "SECONDS", "perf: share out so much time over everything", SECONDS, TO(budget_s)},
    {"quick", NULL, "perf: six sizes, no eager times, within 12 seconds unless --budget says otherwise", FLAG,
     TO(quick)},
    {"stream", NULL, "perf: JSON lines as they come, and progress on standard error", FLAG, TO(stream)},
};

enum { SPECS = sizeof(specs) / sizeof(specs[0]), COMMANDS = sizeof(commands) / sizeof(commands[0]) };
enum { QUICK_SECONDS = 12 };

static void print_help(void)
{
    size_t i;

    printf("usage: sgl-pcie-gpu COMMAND [OPTION]...\n\nCommands:\n");
    for (i = 0; i < COMMANDS; i++)
        printf("  %-10s %s\n", commands[i].name, commands[i].help);
    printf("\nOptions:\n");
    for (i = 0; i < SPECS; i++)
        printf("  --%s%s%-*s %s\n", specs[i].name, specs[i].value != NULL ? " " : "",
               20 - (int)strlen(specs[i].name) - (specs[i].value != NULL ? 1 : 0),
               specs[i].value != NULL ? specs[i].value : "", specs[i].help);
    printf(
        "\nExit codes: 0 ok, 1 a check failed, 2 usage, 5 could not (no GPU, driver, memory), 7 wrong data, 8 hang,\n"
        "9 inconclusive.\n");
}

/* --- values ---------------------------------------------------------------------------------- */

static int bad_value(const char *option, const char *value)
{
    fprintf(stderr, "sgl-pcie-gpu: bad value '%s' for --%s; see sgl-pcie-gpu --help\n", value, option);
    return CODE_USAGE;
}

static int no_argument_wanted(const char *word)
{
    fprintf(stderr, "sgl-pcie-gpu: unexpected '%s'; see sgl-pcie-gpu --help\n", word);
    return CODE_USAGE;
}

/* A whole number, with K, M or G behind it or not. */
static int parse_size(size_t *out, const char *s)
{
    static const char units[] = "kmg";
    char *end;
    unsigned long long n;
    const char *unit;
    int shift = 0;

    errno = 0;
    n = strtoull(s, &end, 10);
    unit = *end != '\0' ? strchr(units, *end | 0x20) : NULL;
    if (unit != NULL)
        shift = 10 * (int)(unit - units + 1), end++;
    if (errno != 0 || *s < '0' || *s > '9' || *end != '\0' || n > SIZE_MAX >> shift)
        return -1;
    *out = (size_t)n << shift;
    return 0;
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

static int take_count(int *out, const char *value)
{
    size_t n = 0;
    int rc = parse_size(&n, value) != 0 || n < 1 || n > 1000 ? -1 : 0;

    *out = (int)n;
    return rc;
}

static int take_number(uint64_t *out, const char *value)
{
    size_t n = 0;
    int rc = parse_size(&n, value);

    *out = n;
    return rc;
}

static int take_seconds(double *out, const char *value)
{
    char *end;

    *out = strtod(value, &end);
    return end != value && *end == '\0' && *out >= 1 && *out <= 86400 ? 0 : -1;
}

static int take_sizes(size_list *out, const char *value)
{
    out->n = 0;
    return each_piece(value, take_size, out);
}

/* Put an option's value where it belongs; 0, or -1 when it is none. */
static int take_option(options *o, const option_spec *spec, const char *value)
{
    void *to = (char *)o + spec->offset;
    int rc = 0;

    switch (spec->kind) {
    case FLAG:
    case CLEAR:
        *(int *)to = spec->kind == FLAG;
        break;
    case COUNT:
        rc = take_count(to, value);
        break;
    case NUMBER:
        rc = take_number(to, value);
        break;
    case SIZE:
        rc = parse_size(to, value) != 0 || *(size_t *)to < 1 || *(size_t *)to > (size_t)1 << 30 ? -1 : 0;
        break;
    case SECONDS:
        rc = take_seconds(to, value);
        break;
    case TEXT:
        *(const char **)to = value;
        break;
    case SIZES:
        rc = take_sizes(to, value);
        break;
    case GPUS:
        rc = each_piece(value, take_gpu, o);
        break;
    case MODE:
        rc = take_mode(o, value);
        break;
    case WORLDS:
        rc = each_piece(value, take_world, to);
        break;
    case TRANSPORTS:
        rc = each_piece(value, take_transport, to);
        break;
    case ALGORITHMS:
        rc = each_piece(value, take_algorithm, to);
        break;
    case TYPES:
        rc = each_piece(value, take_type, to);
        break;
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
    }
    while (rc == 0 && (id = getopt_long(argc, argv, "", longs, &index)) != -1) {
        if (id == '?')
            rc = CODE_USAGE;
        else if (take_option(o, &specs[index], optarg) != 0)
            rc = bad_value(specs[index].name, optarg);
    }
    for (i = 0; i < o->sizes.n && rc == 0; i++)
        if (o->sizes.value[i] == 0)
            rc = bad_value("sizes", "0");
    if (rc == 0 && optind < argc)
        rc = no_argument_wanted(argv[optind]);
    o->transports = o->transports != 0 ? o->transports : 7u;
    o->algorithms = o->algorithms != 0 ? o->algorithms : ~1u;
    o->json |= o->stream;
    if (o->quick && o->budget_s <= 0)
        o->budget_s = QUICK_SECONDS;
    return rc;
}

int main(int argc, char **argv)
{
    const command *c = NULL;
    options o;
    size_t i;
    int rc;

    if (argc < 2 || strcmp(argv[argc - 1], "--help") == 0 || strcmp(argv[1], "help") == 0) {
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
    if (o.dtypes == 0 && c->run != perf_command)
        o.dtypes = (1u << PAR_DTYPES) - 1;
    report_begin(o.faults ? "smoke --faults" : c->name,
                 o.stream ? REPORT_LINE
                 : o.json ? REPORT_JSON
                          : REPORT_TEXT);
    if (o.stream)
        report_member("kind", "\"end\"");
    rc = c->run(&o);
    if (rank_text()[0] != '\0')
        fprintf(stderr, "sgl-pcie-gpu: %s\n", rank_text());
    return report_end(rc, rank_text());
}
