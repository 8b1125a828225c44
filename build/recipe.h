/*
 * A recipe: what is built, and by which commands. kernels/sources.json is the one list of what goes into an install;
 * those of kernels/upstream/ have the same form.
 *
 * The object at the top describes the library, each object in its "others" one thing beside it, with the commands of
 * the top where it has none of its own. What the placeholders in the commands stand for: kernels/README.md.
 */
#ifndef SP_BUILD_RECIPE_H
#define SP_BUILD_RECIPE_H

#include "build/words.h"

enum { SP_PRODUCTS_MAX = 8 };

struct sp_product {
    char *name;
    struct sp_words c, cu; /* sources for the host compiler and for nvcc */
    struct sp_words compile_c, compile_cu, link;
    bool needs_python; /* a command names {python} */
    bool is_library;   /* {library} of the others */
    bool is_program;
    bool is_given; /* not to be built: out/<name> is among the inputs */
};

struct sp_recipe {
    char *folder;           /* kernels/ of the data directory */
    struct sp_words inputs; /* every file that a command may read, beneath the folder, sorted */
    struct sp_product product[SP_PRODUCTS_MAX];
    size_t count;
    unsigned oldest; /* architecture that the kernels need at least */
};

#define SP_RECIPE          "sources.json"
#define SP_RECIPE_UPSTREAM "upstream/overlay.json" /* libupstream.so */
#define SP_RECIPE_PROBE    "upstream/probe.json"   /* upstream-probe, beside it and libpar.so */

/* One of these, by its name in kernels/. SP_EFAIL when it is damaged. To be freed in any case. */
int sp_recipe_load(struct sp_recipe *out, const char *name);

/* Forget all but the first so many products; their inputs stay. */
void sp_recipe_keep(struct sp_recipe *recipe, size_t count);

/* What another one builds first, after what is there, with all its inputs. */
int sp_recipe_join(struct sp_recipe *out, const char *name);

/* Does it make a program of this name? */
bool sp_recipe_is_program(const struct sp_recipe *recipe, const char *name);
void sp_recipe_free(struct sp_recipe *recipe);

#endif
