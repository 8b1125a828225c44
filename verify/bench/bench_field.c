#include "verify/bench/bench_field.h"
#include "base/clean.h"
#include "base/err.h"
#include "base/json.h"
#include "verify/verdict/algorithm.h"

#include <stdio.h>
#include <string.h>

/* Microseconds and GB/s: what is larger has been made up, and products of it overflow. */
static const double most = 1e12;

int sp_bench_number(double *out, const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);

    *out = json_number_value(value);
    if (!value)
        return sp_err(SP_EFAIL, "field '%s' is missing", key);
    if (!json_is_number(value) || !(*out >= 0 && *out <= most))
        return sp_err(SP_EFAIL, "field '%s' is not a number from 0 to %g", key, most);
    return SP_OK;
}

static bool is_absent(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);

    return !value || json_is_null(value);
}

int sp_bench_opt_number(double *out, const json_t *object, const char *key)
{
    *out = 0;
    return is_absent(object, key) ? SP_OK : sp_bench_number(out, object, key);
}

void sp_bench_copy(char *out, size_t size, const char *text)
{
    const size_t len = strlen(text);
    size_t cut = len < size ? len : size - 1;

    while (cut < len && cut > 0 && ((unsigned char)text[cut] & 0xc0) == 0x80)
        cut--;
    memcpy(out, text, cut);
    out[cut] = '\0';
    (void)sp_clean(out, 0);
}

int sp_bench_opt_text(char *out, size_t size, const json_t *object, const char *key)
{
    const char *text = NULL;
    int rc = sp_json_opt_string(&text, object, key);

    sp_bench_copy(out, size, text ? text : "");
    return rc;
}

int sp_bench_opt_count(uint64_t *out, const json_t *object, const char *key)
{
    json_int_t value = 0;
    int rc = is_absent(object, key) ? SP_OK : sp_json_integer(&value, object, key, 0, INT64_MAX);

    *out = (uint64_t)value;
    return rc;
}

double *sp_bench_rate(struct sp_bench_rates *rates, size_t i, const char **key)
{
    const struct {
        const char *key;
        double *at;
    } fields[] = {
        {"node_us", &rates->node_us},
        {"host_us", &rates->host_us},
        {"peer_us", &rates->peer_us},
        {"host_read_gbs", &rates->host_read},
        {"host_write_gbs", &rates->host_write},
        {"host_both_gbs", &rates->host_both},
        {"peer_read_gbs", &rates->peer_read},
        {"peer_write_gbs", &rates->peer_write},
        {"link_gbs", &rates->link},
        {"link_most_gbs", &rates->link_most},
    };
    const size_t count = sizeof fields / sizeof *fields;

    *key = i < count ? fields[i].key : NULL;
    return i < count ? fields[i].at : NULL;
}

int sp_bench_ours_of(struct sp_bench_ours **out, struct sp_bench_row *row, const char *algorithm)
{
    *out = NULL;
    if (!sp_algorithm_known(algorithm))
        return sp_err(SP_EFAIL, "algorithm '%s' is not known", algorithm);
    if (sp_bench_find(row, algorithm) >= 0)
        return sp_err(SP_EFAIL, "algorithm '%s' is there twice", algorithm);
    *out = memset(&row->ours[row->ours_count++], 0, sizeof **out);
    (void)snprintf((*out)->algorithm, SP_BENCH_NAME, "%s", algorithm);
    return SP_OK;
}
