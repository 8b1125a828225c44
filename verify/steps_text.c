/* Steps as they are named on a command line. */
#include "base/err.h"
#include "verify/steps.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TIMES_MAX = 1000000, BYTES_MAX = 1 << 30, LAYERS_MAX = 10000, TOKENS_MAX = 1 << 20 };

/* A whole number from 1 to max, perhaps with K or M; *end: what follows. 0: it is none. */
static uint64_t number(const char *text, const char **end, uint64_t max, bool units)
{
    char *rest = NULL;
    uint64_t value = isdigit((unsigned char)text[0]) ? strtoull(text, &rest, 10) : 0;

    *end = rest ? rest : text;
    if (units && value > 0 && (**end == 'K' || **end == 'M')) {
        value = value > max ? 0 : value << (**end == 'K' ? 10 : 20);
        (*end)++;
    }
    return value <= max ? value : 0;
}

static int refuse_step(const char *text)
{
    return sp_err_hint(sp_err(SP_EUSAGE, "'%s' is no step: so many all-reduces x bytes, like 122x43008", text),
                       "sgl-pcie bench --help");
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
        good = good && out->bytes[out->count++] > 0;
        if (!good || *at != ',')
            break;
        at++;
    }
    return good && *at == '\0' ? SP_OK : refuse_step(text);
}

/* ---- models ---- */

struct model {
    uint64_t hidden, layers, first, last, draft, element;
};

static int refuse_model(const char *text)
{
    return sp_err_hint(
        sp_err(SP_EUSAGE, "'%s' is no model: hidden=N,layers=N[,batch=N-N][,draft=N][,element=BYTES]", text),
        "sgl-pcie bench --help");
}

static bool take_batch(struct model *model, const char *text, const char **end)
{
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
        {"draft=", &model->draft, 1024},
        {"element=", &model->element, 4},
    };

    if (strncmp(*at, "batch=", 6) == 0)
        return take_batch(model, *at + 6, at);
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        const size_t len = strlen(fields[i].key);

        if (strncmp(*at, fields[i].key, len) == 0) {
            *fields[i].to = number(*at + len, at, fields[i].max, false);
            return *fields[i].to > 0;
        }
    }
    return false;
}

static bool parse_model(struct model *out, const char *text)
{
    bool good = true;

    *out = (struct model){.first = 1, .last = 1, .draft = 1, .element = 2};
    while (good && *text) {
        good = take(out, &text) && (*text == ',' || *text == '\0');
        text += good && *text == ',';
    }
    return good && out->hidden > 0 && out->layers > 0;
}

/* The largest message must be one that can be measured. */
static bool fits(const struct model *model)
{
    return model->last * model->draft <= TOKENS_MAX &&
           model->hidden * model->element <= BYTES_MAX / (model->last * model->draft);
}

int sp_steps_of_model(struct sp_step out[SP_STEPS], size_t *count, const char *text)
{
    struct model model;

    *count = 0;
    if (!parse_model(&model, text) || !fits(&model))
        return refuse_model(text);
    for (uint64_t batch = model.first; *count < SP_STEPS; batch = 2 * batch < model.last ? 2 * batch : model.last) {
        struct sp_step *step = &out[(*count)++];

        memset(step, 0, sizeof *step);
        (void)snprintf(step->name, sizeof step->name, "batch %llu", (unsigned long long)batch);
        step->times[0] = 2 * model.layers + 1;
        step->bytes[0] = batch * model.draft * model.hidden * model.element;
        step->count = 1;
        if (batch == model.last)
            break;
    }
    return SP_OK;
}
