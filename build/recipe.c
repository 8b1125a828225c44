#include "build/recipe.h"
#include "base/err.h"
#include "base/file.h"
#include "base/json.h"
#include "patcher/datadir.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RECIPE_MAX = 1 << 20, WORDS_MAX = 512 };

/* An array of strings; one that is missing is empty. */
static int read_words(struct sp_words *out, const json_t *object, const char *key)
{
    json_t *array = NULL;
    int rc = json_object_get(object, key) ? sp_json_array(&array, object, key, WORDS_MAX) : 0;

    for (size_t i = 0; rc == 0 && i < json_array_size(array); i++) {
        const char *word = json_string_value(json_array_get(array, i));

        rc = word ? sp_words_add(out, word) : sp_err(SP_EFAIL, "field '%s' has something that is not a string", key);
    }
    return rc;
}

/* Names of files; they are opened later, so they must stay beneath the folder. */
static int read_files(struct sp_words *out, const json_t *object, const char *key)
{
    int rc = read_words(out, object, key);

    for (size_t i = 0; i < out->count && rc == 0; i++)
        if (!sp_path_is_safe(out->word[i]))
            rc = sp_err(SP_EFAIL, "field '%s' names '%s', which is not beneath the folder", key, out->word[i]);
    return rc;
}

/* A command of its own, or that of the top. */
static int read_command(struct sp_words *out, const json_t *object, const json_t *top, const char *key)
{
    return read_words(out, json_object_get(object, key) ? object : top, key);
}

static bool mentions(const struct sp_words *words, const char *text)
{
    bool found = false;

    for (size_t i = 0; i < words->count && !found; i++)
        found = strstr(words->word[i], text) != NULL;
    return found;
}

static int read_product(struct sp_product *out, const json_t *object, const json_t *top)
{
    const char *name = NULL;
    int rc = sp_json_string(&name, object, object == top ? "library" : "name");

    if (rc == 0 && (strchr(name, '/') != NULL || !sp_path_is_safe(name)))
        rc = sp_err(SP_EFAIL, "'%s' is not the name of a file", name);
    if (rc == 0 && (out->name = strdup(name)) == NULL)
        rc = sp_err(SP_ECANNOT, "out of memory");
    if (rc == 0)
        rc = read_files(&out->c, object, "sources");
    if (rc == 0)
        rc = read_files(&out->cu, object, "kernels");
    if (rc == 0)
        rc = read_command(&out->compile_c, object, top, "compile_c");
    if (rc == 0)
        rc = read_command(&out->compile_cu, object, top, "compile_cu");
    if (rc == 0)
        rc = read_words(&out->link, object, "link");
    if (rc == 0 && (out->link.count == 0 || out->c.count + out->cu.count == 0))
        rc = sp_err(SP_EFAIL, "'%s' has no sources, or no command to link them", name);
    out->is_library = object == top;
    out->needs_python = mentions(&out->compile_c, "{python}");
    out->is_program = !sp_words_have(&out->link, "-shared");
    return rc;
}

/* What is read beside the sources: the headers, and other files such as a linker's map. */
static int read_inputs(struct sp_recipe *out, const struct sp_product *product, const json_t *object)
{
    int rc = sp_words_append(&out->inputs, &product->c);

    if (rc == 0)
        rc = sp_words_append(&out->inputs, &product->cu);
    if (rc == 0)
        rc = read_files(&out->inputs, object, "headers");
    return rc < 0 ? rc : read_files(&out->inputs, object, "files");
}

static int add_product(struct sp_recipe *out, const json_t *object, const json_t *top)
{
    struct sp_product *product = &out->product[out->count];
    int rc = sp_err(SP_EFAIL, "field 'others' is not a list of at most %d objects", SP_PRODUCTS_MAX - 1);

    if (json_is_object(object) && out->count < SP_PRODUCTS_MAX) {
        sp_err_clear();
        out->count++;
        rc = read_product(product, object, top);
        if (rc == 0)
            rc = read_inputs(out, product, object);
    }
    return rc;
}

/* The first of the list is the oldest: the kernels use what older GPUs do not have. */
static int read_oldest(unsigned *out, const json_t *top)
{
    struct sp_words list = {NULL, 0};
    int rc = read_words(&list, top, "architectures");

    if (rc == 0 && (list.count == 0 || sscanf(list.word[0], "%u", out) != 1))
        rc = sp_err(SP_EFAIL, "field 'architectures' does not begin with a number");
    sp_words_free(&list);
    return rc;
}

static int read_recipe(struct sp_recipe *out, const json_t *top, const char *name)
{
    const json_t *others = json_object_get(top, "others");
    int rc = read_oldest(&out->oldest, top);

    if (rc == 0)
        rc = sp_words_add(&out->inputs, name);
    if (rc == 0)
        rc = add_product(out, top, top);
    for (size_t i = 0; rc == 0 && i < json_array_size(others); i++)
        rc = add_product(out, json_array_get(others, i), top);
    sp_words_sort(&out->inputs);
    return rc;
}

int sp_recipe_load(struct sp_recipe *out, const char *name)
{
    struct sp_buf text = SP_BUF_INIT;
    json_t *top = NULL;
    char *path = NULL;
    int rc;

    memset(out, 0, sizeof *out);
    rc = sp_datadir(&out->folder, "kernels");
    if (rc == 0 && asprintf(&path, "%s/%s", out->folder, name) < 0)
        rc = sp_err(SP_ECANNOT, "out of memory");
    if (rc == 0)
        rc = sp_read_file(&text, path, RECIPE_MAX);
    if (rc == 0)
        rc = sp_json_load(&top, text.data, text.len, path);
    if (rc == 0 && (rc = read_recipe(out, top, name)) < 0)
        rc = sp_err_wrap(rc, "'%s'", path);
    if (rc < 0)
        rc = sp_datadir_hint(rc);
    json_decref(top);
    sp_buf_free(&text);
    free(path);
    return rc;
}

static void free_product(struct sp_product *product)
{
    free(product->name);
    sp_words_free(&product->c);
    sp_words_free(&product->cu);
    sp_words_free(&product->compile_c);
    sp_words_free(&product->compile_cu);
    sp_words_free(&product->link);
    memset(product, 0, sizeof *product);
}

void sp_recipe_keep(struct sp_recipe *recipe, size_t count)
{
    while (recipe->count > count)
        free_product(&recipe->product[--recipe->count]);
}

int sp_recipe_join(struct sp_recipe *out, const char *name)
{
    struct sp_recipe more;
    int rc = sp_recipe_load(&more, name);

    if (rc == 0 && out->count == SP_PRODUCTS_MAX)
        rc = sp_err(SP_EFAIL, "more than %d products", SP_PRODUCTS_MAX);
    if (rc == 0)
        rc = sp_words_append(&out->inputs, &more.inputs);
    if (rc == 0) {
        sp_words_sort(&out->inputs);
        out->product[out->count] = more.product[0];
        out->product[out->count++].is_library = false;
        memset(&more.product[0], 0, sizeof more.product[0]);
    }
    sp_recipe_free(&more);
    return rc;
}

bool sp_recipe_is_program(const struct sp_recipe *recipe, const char *name)
{
    bool is = false;

    for (size_t i = 0; i < recipe->count && !is; i++)
        is = recipe->product[i].is_program && strcmp(recipe->product[i].name, name) == 0;
    return is;
}

void sp_recipe_free(struct sp_recipe *recipe)
{
    for (size_t i = 0; i < recipe->count; i++)
        free_product(&recipe->product[i]);
    sp_words_free(&recipe->inputs);
    free(recipe->folder);
    memset(recipe, 0, sizeof *recipe);
}
