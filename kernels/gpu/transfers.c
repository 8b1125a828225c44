#include "transfers.h"

#include "probe.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { RUNS = 4, LIMIT_S = 40 }; /* new starts after a fault; seconds of one */

static const struct {
    const char *name;
    int pairs;  /* a step for each ordered pair; 2: for each unordered one */
    int ranks;  /* a step for each rank */
    int listed; /* results are of ordered pairs */
} kinds[STEP_KINDS] = {
    [STEP_CONTROL] = {"control", 0, 1, 0},       [STEP_HOST] = {"host", 0, 0, 1},
    [STEP_HOST_FLAG] = {"host-flag", 1, 0, 1},   [STEP_COPY] = {"copy", 1, 0, 1},
    [STEP_COPY_READ] = {"copy-read", 1, 0, 1},   [STEP_STORE] = {"store", 1, 0, 1},
    [STEP_STORE_FLAG] = {"store-flag", 1, 0, 1}, [STEP_LOAD] = {"load", 1, 0, 1},
    [STEP_LOAD_FLAG] = {"load-flag", 1, 0, 1},   [STEP_COPY_ALL] = {"copy-all", 0, 0, 1},
    [STEP_STORE_ALL] = {"store-all", 0, 0, 1},   [STEP_LOAD_ALL] = {"load-all", 0, 0, 1},
    [STEP_LATENCY] = {"latency", 2, 0, 2},       [STEP_HOST_LATENCY] = {"host-latency", 2, 0, 2},
    [STEP_STORE_RATE] = {"store-rate", 1, 0, 1}, [STEP_LOAD_RATE] = {"load-rate", 1, 0, 1},
    [STEP_HOST_STORE_RATE] = {"host-store-rate", 0, 0, 0},
    [STEP_HOST_LOAD_RATE] = {"host-load-rate", 0, 0, 0},
    [STEP_COLLAPSE] = {"collapse", 0, 0, 1},
};

const char *step_name(step_kind kind)
{
    return kinds[kind].name;
}

/* --- the board ------------------------------------------------------------------------------- */

static int worse(const step_result *old, check_status status)
{
    return !old->known || (old->status != CHECK_FAIL && status == CHECK_FAIL);
}

void board_put(board *b, step_kind kind, int a, int peer, check_status status, int code, const char *format, ...)
{
    step_result *r = &b->result[kind][a][peer];
    va_list args;

    if (!worse(r, status))
        return;
    r->status = status;
    r->code = code;
    r->unit = NULL; /* what was measured before is not what is to be said */
    r->number = 0;
    va_start(args, format);
    vsnprintf(r->text, sizeof(r->text), format, args);
    va_end(args);
    r->known = 1;
}

void board_number(board *b, step_kind kind, int a, int peer, double number, const char *unit)
{
    step_result *r = &b->result[kind][a][peer];

    if (!worse(r, CHECK_PASS))
        return; /* the other side gave up: what this one measured is none */
    r->number = number;
    r->unit = unit; /* a literal: the same address in all processes */
    r->status = CHECK_PASS;
    r->known = 1;
}

/* --- the plan -------------------------------------------------------------------------------- */

static void add_step(board *b, int kind, int a, int peer)
{
    step s = {(step_kind)kind, a, peer};

    b->steps[b->count++] = s;
}

static void plan(board *b)
{
    int kind, a, peer;

    for (kind = 0; kind < STEP_KINDS; kind++) {
        if (kind == STEP_COLLAPSE && b->world < 3)
            continue;
        if (kinds[kind].pairs == 0 && !kinds[kind].ranks)
            add_step(b, kind, -1, -1);
        for (a = 0; a < b->world && kinds[kind].ranks; a++)
            add_step(b, kind, a, -1);
        for (a = 0; a < b->world && kinds[kind].pairs; a++)
            for (peer = kinds[kind].pairs == 2 ? a + 1 : 0; peer < b->world; peer++)
                if (a != peer)
                    add_step(b, kind, a, peer);
    }
}

/* --- running --------------------------------------------------------------------------------- */

/* Whoever failed by himself, not those who then waited in vain. */
static int culprit(const ranks_outcome *out, int world)
{
    int found = 0, r;

    for (r = 0; r < world; r++)
        if (out->rank[r].text[0] != '\0' &&
            (out->rank[found].text[0] == '\0' || strstr(out->rank[found].text, "did not come to") != NULL))
            found = r;
    return found;
}

/* Mark the step that took the processes down. */
static void blame(board *b, const ranks_outcome *out)
{
    const rank_state *by = &out->rank[culprit(out, b->world)];
    const int code = by->code == CODE_HANG ? CODE_HANG : CODE_CHECK;
    int at = b->count - 1, r, a, peer;
    const step *s;

    for (r = 0; r < b->world; r++)
        at = b->at[r] < at ? b->at[r] : at;
    s = &b->steps[at];
    for (a = s->a >= 0 ? s->a : 0; a < (s->a >= 0 ? s->a + 1 : b->world); a++)
        for (peer = s->b >= 0 ? s->b : 0; peer < (s->b >= 0 ? s->b + 1 : kinds[s->kind].listed ? b->world : 1); peer++)
            if (a != peer || !kinds[s->kind].listed)
                board_put(b, s->kind, a, peer, CHECK_FAIL, code, "%s", by->text);
    b->first = at + 1;
    for (r = 0; r < b->world; r++)
        b->at[r] = b->first;
}

static int run_all(board *b, void *host)
{
    transfer_job job = {b, host};
    ranks_outcome out;
    int i, rc = CODE_OK;

    for (i = 0; i < RUNS && b->first < b->count; i++) {
        b->ready = 0;
        if (ranks_run(&out, b->world, LIMIT_S, 0, transfer_body, &job) == CODE_OK)
            b->first = b->count;
        else if (b->ready)
            blame(b, &out);
        else
            return rank_fail(out.code, "%s", out.rank[culprit(&out, b->world)].text);
    }
    return rc;
}

/* --- saying ---------------------------------------------------------------------------------- */

/* A pair that is much slower than others is told. */
static void compare_rates(board *b, int kind, double share)
{
    double best = 0;
    int a, peer;

    for (a = 0; a < b->world; a++)
        for (peer = 0; peer < b->world; peer++)
            best = b->result[kind][a][peer].number > best ? b->result[kind][a][peer].number : best;
    for (a = 0; a < b->world; a++)
        for (peer = 0; peer < b->world; peer++)
            b->result[kind][a][peer].expected = share * best;
}

/*
 * Where each rank stores into one other, half of the ranks at most send across any one link: a pair that gets clearly less
 * than that part of its own rate alone is hindered by more than sharing.
 */
static void expect_share(board *b)
{
    int a, peer;

    for (a = 0; a < b->world; a++)
        for (peer = 0; peer < b->world; peer++)
            b->result[STEP_COLLAPSE][a][peer].expected = 0.8 * b->result[STEP_STORE_RATE][a][peer].number / ((b->world + 1) / 2);
}

static void expect_rates(board *b)
{
    compare_rates(b, STEP_STORE_RATE, 0.5);
    compare_rates(b, STEP_LOAD_RATE, 0.5);
    compare_rates(b, STEP_HOST_STORE_RATE, 0.5);
    compare_rates(b, STEP_HOST_LOAD_RATE, 0.5);
    expect_share(b);
}

static const char *status_of(const step_result *r)
{
    static const char *const names[] = {"PASS", "FAIL", "SKIP", "INCONCLUSIVE"};

    if (!r->known)
        return "INCONCLUSIVE";
    return r->unit != NULL && r->number < r->expected ? "WARN" : names[r->status];
}

static void say_json(const char *id, const step_result *r)
{
    text line = {0};

    text_add(&line, "{\"actual\":");
    if (r->known && r->unit != NULL)
        text_add(&line, "%.3g", r->number);
    else
        text_add_quoted(&line, r->known ? r->text : "not come to: too many faults before");
    text_add(&line, ",\"code\":%d,\"expected\":", r->code);
    if (r->expected > 0)
        text_add(&line, "%.3g", r->expected);
    else
        text_add(&line, "null");
    text_add(&line, ",\"id\":\"%s\",\"status\":\"%s\",\"unit\":", id, status_of(r));
    if (r->unit != NULL)
        text_add_quoted(&line, r->unit);
    else
        text_add(&line, "null");
    text_add(&line, "}");
    puts(line.data != NULL ? line.data : "{}");
    text_free(&line);
}

static void say_text(const char *id, const step_result *r)
{
    if (r->known && r->unit != NULL)
        printf("%-12s %-18s %.3g %s\n", status_of(r), id, r->number, r->unit);
    else
        printf("%-12s %-18s %s\n", status_of(r), id, r->known ? r->text : "not come to: too many faults before");
}

static int say_result(board *b, int kind, int a, int peer, int json)
{
    const step_result *r = &b->result[kind][a][peer];
    char id[64];

    if (kinds[kind].listed)
        snprintf(id, sizeof(id), "%s.%d-%d", kinds[kind].name, a, peer);
    else
        snprintf(id, sizeof(id), "%s.%d", kinds[kind].name, a);
    if (json)
        say_json(id, r);
    else
        say_text(id, r);
    return r->known ? r->code : CODE_UNSURE;
}

static int say_kind(board *b, int kind, int json)
{
    int a, peer, code = CODE_OK;

    for (a = 0; a < b->world; a++) {
        if (!kinds[kind].listed)
            code = code_worse(code, say_result(b, kind, a, 0, json));
        for (peer = kinds[kind].listed == 2 ? a + 1 : 0; peer < b->world && kinds[kind].listed; peer++)
            if (a != peer)
                code = code_worse(code, say_result(b, kind, a, peer, json));
    }
    return code;
}

static int say_all(board *b, int json)
{
    int kind, code = CODE_OK;

    expect_rates(b);
    for (kind = 0; kind < STEP_KINDS; kind++)
        if (kind != STEP_COLLAPSE || b->world > 2)
            code = code_worse(code, say_kind(b, kind, json));
    fflush(stdout);
    return code;
}

/* --- the command ----------------------------------------------------------------------------- */

static int run_on(board *b, const probe *p, int json)
{
    void *host = shared_alloc(TRANSFER_HOST_BYTES);
    int rc;

    b->world = p->gpus;
    memcpy(b->device, p->device, sizeof(b->device));
    plan(b);
    rc = host != NULL ? run_all(b, host) : rank_fail(CODE_CANNOT, "no shared memory");
    if (rc == 0)
        rc = say_all(b, json);
    shared_free(host, TRANSFER_HOST_BYTES);
    return rc;
}

int transfers_command(const options *o)
{
    board *b = shared_alloc(sizeof(*b));
    probe p;
    int rc = b != NULL ? probe_gpus(&p, o) : rank_fail(CODE_CANNOT, "no shared memory");

    if (rc == 0 && p.gpus < 2)
        rc = rank_fail(CODE_CANNOT, "one GPU alone has nobody to send to");
    if (rc == 0)
        rc = run_on(b, &p, o->json);
    shared_free(b, sizeof(*b));
    return rc;
}
