#include "base/err.h"
#include "build/compile.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What a placeholder stands for. */
struct value {
    const char *name, *text;
};

/* One command being filled in. */
struct filling {
    const struct value *values; /* NULL-terminated */
    const struct sp_words *objects;
    const struct sp_archs *archs;
    bool random_seed;
};

static int fill_word(struct sp_words *out, const char *word, const struct value *values)
{
    struct sp_buf text = SP_BUF_INIT;
    int rc = sp_buf_set(&text, "", 0);

    while (*word && rc == 0) {
        const struct value *value = values;

        while (value->name && strncmp(word, value->name, strlen(value->name)) != 0)
            value++;
        if (value->name)
            rc = sp_buf_append(&text, value->text, strlen(value->text));
        else if (*word == '{')
            rc = sp_err(SP_EFAIL, "a command has the placeholder '%s', which is not known here", word);
        else
            rc = sp_buf_append(&text, word, 1);
        word += value->name ? strlen(value->name) : 1;
    }
    if (rc == 0)
        rc = sp_words_add(out, text.data);
    sp_buf_free(&text);
    return rc;
}

/* Several architectures are compiled at the same time, which changes no byte. */
static int fill_nvcc(struct sp_words *out, const struct sp_archs *archs)
{
    int rc = sp_words_add(out, "nvcc");

    if (rc == 0)
        rc = sp_words_add(out, "-ccbin=cc");
    return rc == 0 && archs->count > 1 ? sp_words_add(out, "--threads=4") : rc;
}

static int fill_gencode(struct sp_words *out, const struct sp_archs *archs)
{
    int rc = 0;

    for (size_t i = 0; i < archs->count && rc == 0; i++)
        rc = sp_words_addf(out, "-gencode=arch=compute_%u,code=sm_%u", archs->number[i], archs->number[i]);
    return rc;
}

static int fill(struct sp_words *out, const struct sp_words *command, const struct filling *with)
{
    static const char seed[] = "--frandom-seed=";
    int rc = 0;

    for (size_t i = 0; i < command->count && rc == 0; i++) {
        const char *word = command->word[i];

        if (strcmp(word, "{nvcc}") == 0)
            rc = fill_nvcc(out, with->archs);
        else if (strcmp(word, "{gencode}") == 0)
            rc = fill_gencode(out, with->archs);
        else if (strcmp(word, "{objects}") == 0)
            rc = sp_words_append(out, with->objects);
        else if (strncmp(word, seed, sizeof seed - 1) != 0 || with->random_seed)
            rc = fill_word(out, word, with->values);
    }
    return rc;
}

static int new_step(struct sp_step **out, struct sp_steps *steps, const char *what)
{
    struct sp_step *grown = realloc(steps->step, (steps->count + 1) * sizeof *grown);
    char *copy = strdup(what);

    if (grown != NULL)
        steps->step = grown;
    if (grown == NULL || copy == NULL) {
        free(copy);
        return sp_err(SP_ECANNOT, "out of memory");
    }
    *out = &steps->step[steps->count++];
    **out = (struct sp_step){.what = copy};
    return 0;
}

/* "gpu/check.cu" -> "../obj/<product>/gpu-check.cu.o" */
static int object_name(struct sp_words *objects, const struct sp_product *product, const char *source)
{
    int rc = sp_words_addf(objects, "../obj/%s/%s.o", product->name, source);

    if (rc == 0) {
        char *name = objects->word[objects->count - 1] + sizeof "../obj/" + strlen(product->name);

        for (char *at = strchr(name, '/'); at != NULL; at = strchr(at, '/'))
            *at = '-';
    }
    return rc;
}

static int plan_sources(struct sp_steps *out, struct sp_words *objects, const struct sp_product *product,
                        const struct sp_words *sources, const struct sp_words *command, const struct filling *common)
{
    int rc = 0;

    for (size_t i = 0; i < sources->count && rc == 0; i++) {
        struct sp_step *step = NULL;

        rc = object_name(objects, product, sources->word[i]);
        if (rc == 0)
            rc = new_step(&step, out, sources->word[i]);
        if (rc == 0) {
            const struct value values[] = {{"{cc}", "cc"},
                                           {"{cuda}", "../cuda"},
                                           {"{python}", "../python"},
                                           {"{source}", sources->word[i]},
                                           {"{object}", objects->word[objects->count - 1]},
                                           {NULL, NULL}};
            struct filling with = *common;

            with.values = values;
            rc = fill(&step->argv, command, &with);
        }
    }
    return rc;
}

static int plan_link(struct sp_steps *out, const struct sp_words *objects, const struct sp_product *product,
                     const char *library, const struct filling *common)
{
    char own[512], of_library[512];
    const struct value values[] = {{"{cc}", "cc"},    {"{cuda}", "../cuda"},     {"{python}", "../python"},
                                   {"{output}", own}, {"{library}", of_library}, {NULL, NULL}};
    struct filling with = *common;
    struct sp_step *step = NULL;
    int rc = new_step(&step, out, product->name);

    (void)snprintf(own, sizeof own, "../out/%s", product->name);
    (void)snprintf(of_library, sizeof of_library, "../out/%s", library);
    with.values = values;
    with.objects = objects;
    if (rc == 0) {
        step->links = true;
        rc = fill(&step->argv, &product->link, &with);
    }
    return rc;
}

static int plan_product(struct sp_steps *out, const struct sp_product *product, const char *library,
                        const struct filling *common)
{
    struct sp_words objects = {NULL, 0};
    int rc = plan_sources(out, &objects, product, &product->c, &product->compile_c, common);

    if (rc == 0)
        rc = plan_sources(out, &objects, product, &product->cu, &product->compile_cu, common);
    if (rc == 0)
        rc = plan_link(out, &objects, product, library, common);
    sp_words_free(&objects);
    return rc;
}

int sp_steps_plan(struct sp_steps *out, const struct sp_recipe *recipe, const struct sp_toolchain *tools,
                  const struct sp_archs *archs)
{
    const struct filling common = {.archs = archs, .random_seed = tools->random_seed};
    int rc = 0;

    *out = (struct sp_steps){NULL, 0};
    for (size_t i = 0; i < recipe->count && rc == 0; i++)
        if (!recipe->product[i].is_given)
            rc = plan_product(out, &recipe->product[i], recipe->product[0].name, &common);
    return rc;
}

void sp_steps_free(struct sp_steps *steps)
{
    for (size_t i = 0; i < steps->count; i++) {
        sp_words_free(&steps->step[i].argv);
        free(steps->step[i].what);
    }
    free(steps->step);
    *steps = (struct sp_steps){NULL, 0};
}
