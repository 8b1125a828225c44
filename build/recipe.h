/*
 * The recipe: kernels/sources.json, the one list of what is built into an install and by which commands.
 *
 * The object at the top describes libpar.so, each object in its "others" one thing beside it, with the commands of the
 * top where it has none of its own. What the placeholders in the commands stand for: kernels/README.md.
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
};

struct sp_recipe {
    char *folder;           /* kernels/ of the data directory */
    struct sp_words inputs; /* every file that a command may read, beneath the folder, sorted */
    struct sp_product product[SP_PRODUCTS_MAX];
    size_t count;
    unsigned oldest; /* architecture that the kernels need at least */
};

/* SP_EFAIL when it is damaged. To be freed in any case. */
int sp_recipe_load(struct sp_recipe *out);
void sp_recipe_free(struct sp_recipe *recipe);

#endif
