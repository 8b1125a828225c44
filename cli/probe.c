#include "cli/probe.h"
#include "cli/progress.h"

#include <stdlib.h>
#include <string.h>

static const char *text_of(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));

    return text ? text : "";
}

/* ---- text ---- */

static int add_rival(struct sp_table *table, const json_t *rival)
{
    const char *name = text_of(rival, "name"), *algorithm = text_of(rival, "algorithm"), *why = text_of(rival, "why");
    const json_t *us = json_object_get(rival, "us");
    const json_int_t wrong = json_integer_value(json_object_get(rival, "wrong"));
    char time[32] = "-", note[64] = "";

    if (json_is_number(us))
        (void)snprintf(time, sizeof time, "%.2f", json_number_value(us));
    if (wrong > 0)
        (void)snprintf(note, sizeof note, "%lld wrong elements", (long long)wrong);
    return sp_table_row(table, (const char *const[]){name, time, note[0] ? note : *why ? why : algorithm});
}

static int show_table(const struct sp_report *report, const json_t *found)
{
    static const char *const headers[] = {"all-reduce", "us", ""};
    const json_t *rivals = json_object_get(found, "rivals");
    struct sp_table *table;
    int rc = sp_table_new(&table, 3, headers);

    for (size_t i = 0; i < json_array_size(rivals) && rc == SP_OK; i++)
        rc = add_rival(table, json_array_get(rivals, i));
    if (rc == SP_OK)
        sp_report_table(report, table, NULL);
    else
        sp_table_free(table);
    return rc;
}

static bool is_virtual(const json_t *found)
{
    return strcmp(text_of(found, "mode"), "virtual") == 0;
}

static int show_text(const struct sp_report *report, const struct sp_probe *probe)
{
    const json_t *found = probe->found;
    const char *refusal = text_of(found, "refusal");
    int rc;

    (void)printf("%lld bytes of bf16 on %lld %s\n\n", (long long)json_integer_value(json_object_get(found, "bytes")),
                 (long long)json_integer_value(json_object_get(found, "world")),
                 is_virtual(found) ? "ranks that share GPUs: sums are as telling as on as many GPUs, times are not"
                                   : "GPUs, a process each, in CUDA graphs, the slowest rank");
    rc = show_table(report, found);
    (void)printf("\n%lld calls compared, %lld elements, %lld wrong\n",
                 (long long)json_integer_value(json_object_get(found, "calls")),
                 (long long)json_integer_value(json_object_get(found, "elements")),
                 (long long)json_integer_value(json_object_get(found, "wrong")));
    if (*refusal)
        (void)printf("with neither kernel allowed it refuses: %s\n", refusal);
    for (size_t i = 0; i < probe->reused.count; i++)
        (void)printf("%s is the install's: building it would give the same bytes\n", probe->reused.word[i]);
    if (probe->verdict)
        (void)printf("backend upstream is in the verdict %s\n", probe->verdict);
    if (probe->not_recorded)
        (void)printf("not in the verdict: %s\n", probe->not_recorded);
    (void)putchar('\n');
    (void)fflush(stdout);
    return rc;
}

/* ---- JSON ---- */

static json_t *reused_json(const struct sp_probe *probe)
{
    json_t *names = json_array();

    for (size_t i = 0; i < probe->reused.count; i++)
        (void)json_array_append_new(names, sp_json_text(probe->reused.word[i]));
    return names;
}

static void show_json(struct sp_report *report, const struct sp_probe *probe)
{
    sp_report_set(report, "log", sp_json_text(probe->log));
    sp_report_set(report, "probe",
                  probe->found
                      ? json_pack("{s:O, s:o, s:o, s:o, s:o}", "found", probe->found, "library",
                                  sp_json_text(probe->library), "not_recorded", sp_json_text(probe->not_recorded),
                                  "reused", reused_json(probe), "verdict", sp_json_text(probe->verdict))
                      : NULL);
}

/* ---- all of it ---- */

static double time_of(const json_t *found, const char *name)
{
    const json_t *rivals = json_object_get(found, "rivals");
    double us = 0;

    for (size_t i = 0; i < json_array_size(rivals); i++)
        if (strcmp(text_of(json_array_get(rivals, i), "name"), name) == 0)
            us = json_number_value(json_object_get(json_array_get(rivals, i), "us"));
    return us;
}

/* A probe needs no install; a build goes into one. */
static const char *next_build(struct sp_subject *subject)
{
    return sp_subject_next(subject, subject->install ? "build --upstream" : "build --upstream --python PATH");
}

/* What wins, and with it what to do next. */
static int say(struct sp_report *report, struct sp_subject *subject, const json_t *found)
{
    const char *winner = text_of(found, "winner");
    const bool upstream = strcmp(winner, "one-stage") == 0 || strcmp(winner, "two-stage") == 0;
    const double ours = time_of(found, "ours"), us = time_of(found, winner);

    if (is_virtual(found))
        return sp_report_say(report, NULL,
                             "SGLang's all-reduce is right; who wins is to be measured with a GPU a rank");
    if (upstream)
        return sp_report_say(report, next_build(subject),
                             "SGLang's own all-reduce is right and wins, in its %s kernel: %.2f us, ours %.2f us",
                             winner, us, ours);
    return sp_report_say(report, NULL,
                         "SGLang's own all-reduce is right, but %s wins, with %.2f us: there is nothing to gain from "
                         "rebuilding it for this size",
                         strcmp(winner, "ours") == 0 ? "ours" : "NCCL", us);
}

int sp_probe_show(struct sp_report *report, struct sp_subject *subject, const struct sp_upstream *upstream,
                  struct sp_probe_options *options)
{
    const bool progress = sp_progress_seen(report);
    struct sp_probe *probe = NULL;
    int rc;

    options->progress = progress ? sp_progress_step : NULL;
    options->install = subject->install;
    rc = sp_upstream_probe(&probe, upstream, options);
    if (progress)
        sp_progress_end();
    if (probe != NULL && report->object)
        show_json(report, probe);
    if (probe != NULL && probe->found && report->text) {
        int shown = show_text(report, probe);
        rc = rc == SP_OK ? shown : rc;
    }
    if (rc == SP_OK)
        rc = say(report, subject, probe->found);
    sp_probe_free(probe);
    return rc;
}
