/* Steps as they are named on a command line. */
#include "base/err.h"
#include "verify/bench/bench_run.h"
#include "verify/bench/steps.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TIMES_MAX = 1000000, BYTES_MAX = 1 << 30, LAYERS_MAX = 10000, TOKENS_MAX = 1 << 20, DRAFT_MAX = 1024 };

/* A whole number from 1 to max, perhaps with K, M or G; *end: what follows. 0: it is none. */
static uint64_t number(const char *text, const char **end, uint64_t max, bool units)
{
    char *rest = NULL;
    uint64_t value = isdigit((unsigned char)text[0]) ? strtoull(text, &rest, 10) : 0;

    *end = rest ? rest : text;
    if (units && value > 0 && sp_bench_unit(**end) > 0) {
        value = value > max ? 0 : value << sp_bench_unit(**end);
        (*end)++;
    }
    return value <= max ? value : 0;
}

/* Whole elements of every type. */
static bool is_size(uint64_t bytes)
{
    return bytes > 0 && bytes <= BYTES_MAX && bytes % 4 == 0;
}

static int refuse_step(const char *text)
{
    return sp_err(
        SP_EUSAGE,
        "'%s' is no step: all-reduces x bytes, like 122x43008; up to %d of them, with bytes in multiples of 4 "
        "up to 1 GiB",
        text, SP_STEP_PARTS);
}

int sp_step_parse(struct sp_step *out, const char *text)
{
    const char *at = text;
    bool good = true;

    memset(out, 0, sizeof *out);
    (void)snprintf(out->name, sizeof out->name, "%s", text);
    while (good && out->count < SP_STEP_PARTS) {
        out->times[out->count] = number(at, &at, TIMES_MAX, false);
        good = out->times[out->count] > 0 && *at == 'x';
        if (good)
            out->bytes[out->count] = number(at + 1, &at, BYTES_MAX, true);
        good = good && is_size(out->bytes[out->count++]);
        if (!good || *at != ',')
            break;
        at++;
    }
    return good && *at == '\0' ? SP_OK : refuse_step(text);
}

/* ---- models ---- */

enum { ELEMENT = 2 }; /* bytes of a number in bf16 and fp16 */

struct model {
    uint64_t hidden, layers, first, last, draft; /* 0: not given */
};

static int refuse_model(const char *text)
{
    return sp_err(SP_EUSAGE, "'%s' is no model: hidden=N,layers=N[,batch=N-N][,draft=N], each once", text);
}

static bool take_batch(struct model *model, const char *text, const char **end)
{
    if (model->first > 0)
        return false;
    model->first = model->last = number(text, end, TOKENS_MAX, false);
    if (**end == '-')
        model->last = number(*end + 1, end, TOKENS_MAX, false);
    return model->first > 0 && model->last >= model->first;
}

/* One KEY=VALUE; *at moves behind it. */
static bool take(struct model *model, const char **at)
{
    const struct {
        const char *key;
        uint64_t *to, max;
    } fields[] = {
        {"hidden=", &model->hidden, TOKENS_MAX},
        {"layers=", &model->layers, LAYERS_MAX},
        {"draft=", &model->draft, DRAFT_MAX},
    };

    if (strncmp(*at, "batch=", 6) == 0)
        return take_batch(model, *at + 6, at);
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        const size_t len = strlen(fields[i].key);

        if (strncmp(*at, fields[i].key, len) == 0 && *fields[i].to == 0) {
            *fields[i].to = number(*at + len, at, fields[i].max, false);
            return *fields[i].to > 0;
        }
    }
    return false;
}

static bool parse_model(struct model *out, const char *text)
{
    bool good = true;

    *out = (struct model){.hidden = 0};
    while (good) {
        good = take(out, &text);
        if (*text != ',')
            break;
        text++;
    }
    if (out->first == 0)
        out->first = out->last = 1;
    out->draft = out->draft ? out->draft : 1;
    return good && *text == '\0' && out->hidden > 0 && out->layers > 0;
}

/* Messages that can be measured: the smallest in whole words, the largest not too large. */
static int check_sizes(const struct model *model, const char *text)
{
    const uint64_t token = ELEMENT * model->hidden;

    if (token % 4 != 0)
        return sp_err(SP_EUSAGE, "hidden=%llu is odd: no all-reduce of SGLang is", (unsigned long long)model->hidden);
    if (model->last * model->draft > BYTES_MAX / token)
        return sp_err(SP_EUSAGE, "'%s': %llu tokens of %llu bytes are more than 1 GiB", text,
                      (unsigned long long)(model->last * model->draft), (unsigned long long)token);
    return SP_OK;
}

int sp_steps_of_model(struct sp_step out[SP_STEPS], size_t *count, const char *text)
{
    struct model model;
    int rc;

    *count = 0;
    if (!parse_model(&model, text))
        return refuse_model(text);
    rc = check_sizes(&model, text);
    for (uint64_t batch = model.first; rc == SP_OK && *count < SP_STEPS;
         batch = 2 * batch < model.last ? 2 * batch : model.last) {
        struct sp_step *step = &out[(*count)++];

        memset(step, 0, sizeof *step);
        (void)snprintf(step->name, sizeof step->name, "batch %llu", (unsigned long long)batch);
        step->times[0] = 2 * model.layers + 1;
        step->bytes[0] = batch * model.draft * ELEMENT * model.hidden;
        step->count = 1;
        if (batch == model.last)
            break;
    }
    return rc;
}
