#include "rows.h"

#include <stdio.h>

static const char *const maker_names[] = {"ours", "nccl", "nccl-no-p2p"};
static const char *const manner_names[TIMING_MANNERS] = {"graph", "in_place", "step", "eager"};

const char *row_name(const row *r)
{
    return r->by == BY_OURS ? par_algorithm_name(r->found.algorithm) : maker_names[r->by];
}

/* What came in over the time of a call, in GB/s; bus: what a link carries for it, as nccl-tests has it. */
static double algbw(const row *r, const span *s)
{
    return s->n > 0 && s->us > 0 ? (double)r->found.bytes / s->us / 1000.0 : 0;
}

static double busbw(const row *r, const span *s)
{
    return algbw(r, s) * 2.0 * (r->world - 1) / r->world;
}

/* --- JSON ------------------------------------------------------------------------------------ */

static void add_span(text *t, const char *name, const span *s)
{
    text_add(t, ",\"%s\":", name);
    if (s->n > 0)
        text_add(t, "{\"n\":%d,\"p10\":%.3f,\"p90\":%.3f,\"us\":%.3f}", s->n, s->p10, s->p90, s->us);
    else
        text_add(t, "null");
}

static void add_number(text *t, const char *name, double value, int decimals)
{
    text_add(t, ",\"%s\":", name);
    if (value > 0)
        text_add(t, "%.*f", decimals, value);
    else
        text_add(t, "null");
}

void row_json(text *t, const row *r)
{
    const findings *f = &r->found;
    int ours = r->by == BY_OURS, m;

    text_add(t, "{\"kind\":\"row\",\"group\":%d,\"world\":%d,\"dtype\":\"%s\",\"bytes\":%zu,\"count\":%zu", r->group,
             r->world, par_dtype_name(r->dtype), f->bytes, f->bytes / par_dtype_size(r->dtype));
    text_add(t, ",\"by\":\"%s\",\"name\":\"%s\"", ours ? "ours" : "nccl", row_name(r));
    if (ours)
        text_add(t, ",\"transport\":\"%s\",\"cut\":{\"chunk\":%zu,\"lanes\":%zu,\"threads\":%zu},\"wrong\":%llu",
                 par_transport_name(par_algorithm_transport(f->algorithm)), f->cut.chunk, f->cut.lanes, f->cut.threads,
                 (unsigned long long)(f->wrong_out + f->wrong_in));
    else
        text_add(t, ",\"transport\":null,\"cut\":null,\"wrong\":null");
    for (m = 0; m < TIMING_MANNERS; m++)
        add_span(t, manner_names[m], &f->time[m]);
    add_number(t, "algbw", algbw(r, &f->time[TIMING_GRAPH]), 3);
    add_number(t, "busbw", busbw(r, &f->time[TIMING_GRAPH]), 3);
    add_number(t, "model_us", r->model, 3);
    text_add(t, "}");
}

static void add_transports(text *t, unsigned transports)
{
    int i, some = 0;

    text_add(t, ",\"transports\":[");
    for (i = 0; i < PAR_TRANSPORTS; i++)
        if (transports >> i & 1u)
            text_add(t, "%s\"%s\"", some++ ? "," : "", par_transport_name(i));
    text_add(t, "]");
}

static void add_nccl(text *t, const group_head *h)
{
    const nccl *n = &h->rival;

    text_add(t, "{\"name\":\"%s\",\"version\":\"%d.%d.%d\",\"channels\":%d,\"via\":",
             maker_names[h->no_p2p ? BY_NCCL_NO_P2P : BY_NCCL], n->version / 10000, n->version / 100 % 100,
             n->version % 100, n->channels);
    text_add_quoted(t, n->via);
    text_add(t, ",\"environment\":");
    text_add_quoted(t, h->environment);
    text_add(t, ",\"path\":");
    text_add_quoted(t, n->path);
    text_add(t, "}");
}

static void add_links(text *t, const link_rates *l)
{
    text_add(t, "{\"node_us\":%.3f,\"local_us\":%.3f", l->node_us, l->local_us);
    add_number(t, "own_gbs", l->own / 1000, 1);
    add_number(t, "host_exchange_us", l->host_exchange_us, 3);
    add_number(t, "peer_exchange_us", l->peer_exchange_us, 3);
    add_number(t, "host_us", l->host_us, 3);
    add_number(t, "host_read_gbs", l->host_read / 1000, 2);
    add_number(t, "host_write_gbs", l->host_write / 1000, 2);
    add_number(t, "host_both_gbs", l->host_both / 1000, 2);
    add_number(t, "peer_us", l->peer_us, 3);
    add_number(t, "peer_read_gbs", l->peer_read / 1000, 2);
    add_number(t, "peer_write_gbs", l->peer_write / 1000, 2);
    text_add(t, "}");
}

void group_json(text *t, const group_head *h)
{
    int i;

    text_add(t, "{\"kind\":\"group\",\"group\":%d,\"world\":%d,\"gpus\":[", h->group, h->world);
    for (i = 0; i < h->world; i++)
        text_add(t, "%s%d", i > 0 ? "," : "", i);
    text_add(t, "]");
    add_transports(t, h->transports);
    text_add(t, ",\"nccl\":");
    if (h->has_nccl)
        add_nccl(t, h);
    else
        text_add(t, "null");
    text_add(t, ",\"links\":");
    if (h->has_links)
        add_links(t, &h->links);
    else
        text_add(t, "null");
    text_add(t, "}");
}

/* --- the table ------------------------------------------------------------------------------- */

static void print_links(const link_rates *l)
{
    printf("# graph node: empty %.2f us, copies 2 KB %.2f us, exchanges a word by host %.2f us, by peer %.2f us; "
           "one way: host %.2f us, peer %.2f us\n",
           l->node_us, l->local_us, l->host_exchange_us, l->peer_exchange_us, l->host_us, l->peer_us);
    printf("# GB/s per GPU, all at once: host read %.1f write %.1f both %.1f, peer read %.1f write %.1f, own %.0f\n",
           l->host_read / 1000, l->host_write / 1000, l->host_both / 1000, l->peer_read / 1000, l->peer_write / 1000,
           l->own / 1000);
}

void row_table_head(const group_head *h, const options *o)
{
    const nccl *n = &h->rival;

    printf("# world %d, graphs of %d calls or fewer, median of up to %d replays, slowest rank; times in us\n", h->world,
           o->calls, o->iterations);
    if (h->has_nccl)
        printf("# NCCL %d.%d.%d, %d channels, via %s, %s; %s\n", n->version / 10000, n->version / 100 % 100,
               n->version % 100, n->channels, n->via[0] != '\0' ? n->via : "?", h->environment, n->path);
    if (h->has_links)
        print_links(&h->links);
    printf("#%79s%37s\n", "out-of-place", "in-place");
    printf("#%11s %12s %9s %6s %5s %8s %7s %7s %6s %8s %7s %7s %6s  %-22s %2s %3s %6s %8s %8s %8s %8s %5s %5s %8s\n",
           "size", "count", "type", "redop", "root", "time", "algbw", "busbw", "#wrong", "time", "algbw", "busbw",
           "#wrong", "by", "bl", "thr", "chunk", "10 %", "90 %", "in step", "eager", "ratio", "step", "model");
    printf("#%11s %12s %9s %6s %5s %8s %7s %7s %6s %8s %7s %7s\n", "(B)", "(elements)", "", "", "", "(us)", "(GB/s)",
           "(GB/s)", "", "(us)", "(GB/s)", "(GB/s)");
    fflush(stdout);
}

static void print_time(const span *s, double us)
{
    if (s->n > 0)
        printf(" %8.2f", us);
    else
        printf(" %8s", "-");
}

static void print_place(const row *r, const span *s, uint64_t wrong)
{
    print_time(s, s->us);
    printf(" %7.2f %7.2f", algbw(r, s), busbw(r, s));
    if (r->by == BY_OURS)
        printf(" %6llu", (unsigned long long)wrong);
    else
        printf(" %6s", "N/A");
}

static void print_ratio(const row *r, const row *rival, manner how)
{
    const span *ours = &r->found.time[how], *theirs = rival != NULL ? &rival->found.time[how] : NULL;

    if (theirs != NULL && ours->n > 0 && theirs->n > 0 && ours->us > 0)
        printf(" %5.2f", theirs->us / ours->us);
    else
        printf(" %5s", "");
}

void row_table(const row *r, const row *rival)
{
    const findings *f = &r->found;
    const span *graph = &f->time[TIMING_GRAPH];

    printf("%12zu %12zu %9s %6s %5d", f->bytes, f->bytes / par_dtype_size(r->dtype),
           r->dtype == PAR_FP32 ? "float" : r->dtype == PAR_BF16 ? "bfloat16" : "half", "sum", -1);
    print_place(r, graph, f->wrong_out);
    print_place(r, &f->time[TIMING_IN_PLACE], f->wrong_in);
    printf("  %-22s %2zu %3zu %6zu", row_name(r), f->cut.lanes, f->cut.threads, f->cut.chunk);
    print_time(graph, graph->p10);
    print_time(graph, graph->p90);
    print_time(&f->time[TIMING_STEP], f->time[TIMING_STEP].us);
    print_time(&f->time[TIMING_EAGER], f->time[TIMING_EAGER].us);
    print_ratio(r, rival, TIMING_GRAPH);
    print_ratio(r, rival, TIMING_STEP);
    if (r->model > 0)
        printf(" %8.2f", r->model);
    putchar('\n');
    fflush(stdout);
}
