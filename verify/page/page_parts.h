/*
 * What the files of the page share.
 */
#ifndef SP_PAGE_PAGE_PARTS_H
#define SP_PAGE_PAGE_PARTS_H

#include "verify/bench/bench.h"
#include "verify/machine/topology.h"
#include "verify/page/out.h"

#include <jansson.h>
#include <stdbool.h>

struct sp_page {
    struct sp_out *out;
    const json_t *bundle;
    struct sp_recording recording;
    struct sp_topology topology; /* of all GPUs */
    struct sp_bench bench;       /* tuned; without groups where nothing was measured */
    json_t *steps;               /* as sp_steps_json() has them: those that bench was asked for, else a usual one */
    bool asked;                  /* they are those */
    char bench_error[256];       /* why what was measured cannot be shown; "" */
};

/* ---- of JSON that may be anything ---- */

/* "" where there is no text at the end of the path: keys, NULL-terminated. */
#define SP_TEXT(object, ...) sp_page_text((object), (const char *const[]){__VA_ARGS__, NULL})
#define SP_ITEM(object, ...) sp_page_item((object), (const char *const[]){__VA_ARGS__, NULL})
const char *sp_page_text(const json_t *object, const char *const *path);
const json_t *sp_page_item(const json_t *object, const char *const *path);

/* ---- how far the machine is ---- */

enum sp_page_mark { SP_MARK_DONE, SP_MARK_NEXT, SP_MARK_LATER, SP_MARK_BAD };
enum { SP_PAGE_STAGES = 5, SP_PAGE_SENTENCE = 256 };

struct sp_page_stage {
    const char *name;
    enum sp_page_mark mark;
    char text[SP_PAGE_SENTENCE];
};

struct sp_page_state {
    struct sp_page_stage stage[SP_PAGE_STAGES];
    enum sp_page_mark mark; /* of the whole */
    char headline[SP_PAGE_SENTENCE];
    const char *next; /* a command, or NULL */
};

/* nvlink: it joins all GPUs. */
void sp_page_state_of(struct sp_page_state *out, const json_t *bundle, bool nvlink);

/* ---- parts of the page ---- */

/* "GPU 3" for a UUID of the recording, else the UUID. */
void sp_page_put_gpu(const struct sp_page *page, const char *uuid);

/* A coloured word: kind is good, warn, bad or plain. */
void sp_page_badge(struct sp_out *out, const char *kind, const char *text);
const char *sp_page_kind(const char *word); /* of "PASS", "fail", "clean", … */

/* A cell of microseconds, "–" where there are none. class: of the cell, with a blank before it, or "". */
void sp_page_us(struct sp_out *out, double us, const char *class);

/* What a rival is called. */
const char *sp_page_rival(const char *name);

/* Texts that say what is wrong, one below the other; nothing where there are none. */
void sp_page_sentences(struct sp_out *out, const json_t *list);

extern const char *const sp_page_style[]; /* NULL-terminated lines */

void sp_page_savings(struct sp_page *page);
void sp_page_bench(struct sp_page *page);
void sp_page_chart(struct sp_page *page, const struct sp_bench_group *group, size_t number);
void sp_page_profile(struct sp_page *page);
void sp_page_checks(struct sp_page *page);
void sp_page_topology(struct sp_page *page);
void sp_page_findings(struct sp_page *page);
void sp_page_install(struct sp_page *page);

#endif
