/* trace.c: a finding as a table of steps. */
#include <stdio.h>
#include <string.h>

#include "engine.h"
#include "search.h"

enum { STORIES = 3 };

static const char *const names[] = {
    [EMU_OP_LOAD] = "load", [EMU_OP_ACQUIRE] = "load acquire", [EMU_OP_OWN_LOAD] = "own load", [EMU_OP_STORE] = "store",
    [EMU_OP_OWN_STORE] = "own store", [EMU_OP_HOST_STORE] = "host store", [EMU_OP_EXCHANGE] = "exchange",
    [EMU_OP_FENCE] = "fence", [EMU_OP_BARRIER] = "barrier", [EMU_OP_SIGNAL] = "signal",
    [EMU_OP_WAIT] = "wait signals", [EMU_OP_LAUNCH] = "kernel starts",
    [EMU_OP_LEAVE] = "thread ends", [EMU_OP_CALM] = "all wait: what is under way arrives",
    [EMU_OP_CLOCK] = "all wait: the clock jumps", [EMU_OP_KILL] = "rank vanishes", [EMU_OP_TRAP] = "trap",
};

static void print_word(char *text, size_t size, uint32_t value)
{
    if (value == 0xffffffffu)
        snprintf(text, size, "empty");
    else
        snprintf(text, size, "%08x", value);
}

/* Values of an access of one or four words; equal ones once. */
static void print_values(char *text, size_t size, const emu_event *e, int n)
{
    char word[16];
    int alike = 1;
    text[0] = 0;
    for (int i = 1; i < n; i++)
        alike &= e[i].value == e[0].value;
    for (int i = 0; i < (alike ? 1 : n); i++) {
        size_t used = strlen(text);
        print_word(word, sizeof word, e[i].value);
        snprintf(text + used, size - used, "%s%s", i ? " " : "", word);
    }
    if (alike && n > 1) {
        size_t used = strlen(text);
        snprintf(text + used, size - used, " x%d", n);
    }
}

/* What the adversary did to it, and whose write was read. */
static void print_remark(char *text, size_t size, const emu_event *e, int n)
{
    char who[40];
    const int is_load = e->op == EMU_OP_LOAD || e->op == EMU_OP_ACQUIRE || e->op == EMU_OP_OWN_LOAD;
    text[0] = 0;
    if (is_load) {
        emu_who(e->by, who, sizeof who);
        snprintf(text, size, "from %s", who);
    }
    for (int i = 0; i < n; i++) {
        size_t used = strlen(text);
        if (e[i].age)
            snprintf(text + used, size - used, "%s word %d: %s %u newer write%s", text[0] ? ";" : "", i,
                     is_load ? "OLD, misses" : "lands BEFORE", e[i].age, e[i].age > 1 ? "s" : "");
    }
}

static int same_event(const emu_event *a, const emu_event *b)
{
    return a->op == b->op && a->rank == b->rank && a->block == b->block && a->thread == b->thread &&
           a->word == b->word && a->value == b->value && a->by == b->by && a->age == b->age;
}

static int words_of(const emu_event *e)
{
    return e->parts ? e->parts : 1;
}

static void print_event(const emu_event *e, int n, unsigned times)
{
    char who[40] = "", where[100] = "", values[80] = "", remark[200] = "", kernel[40];
    if (e->rank != 0xff && (e->op == EMU_OP_LAUNCH || e->op == EMU_OP_KILL))
        snprintf(who, sizeof who, "r%d", e->rank);
    else if (e->rank != 0xff)
        snprintf(who, sizeof who, "r%d b%d t%d", e->rank, e->block, e->thread);
    if (e->op <= EMU_OP_EXCHANGE) {
        emu_name(e->word, where, sizeof where);
        print_values(values, sizeof values, e, n);
        print_remark(remark, sizeof remark, e, n);
    } else if (e->op == EMU_OP_LAUNCH) {
        snprintf(kernel, sizeof kernel, "%u blocks of %u", e->value >> 16, e->value & 0xffffu);
        snprintf(where, sizeof where, "%s", kernel);
    } else if (e->op == EMU_OP_CLOCK) {
        snprintf(where, sizeof where, "to %u ms", e->value);
    }
    printf("%6llu  %-9s %-13s %-34s %-36s %s", (unsigned long long)e->step, who, names[e->op], where, values, remark);
    if (times > 1)
        printf(" (%u times)", times);
    printf("\n");
}

/* Fruitless polls are one line. */
static void print_steps(void)
{
    size_t n, i = 0;
    const emu_event *e = emu_trace(&n);
    printf("%6s  %-9s %-13s %-34s %-36s %s\n", "step", "thread", "does", "where", "value", "remark");
    while (i < n) {
        const int words = words_of(&e[i]);
        size_t j = i + (size_t)words;
        unsigned times = 1;
        while (j < n && same_event(&e[i], &e[j])) {
            j += (size_t)words_of(&e[j]);
            times++;
        }
        print_event(&e[i], words, times);
        i = j;
    }
}

/* What happened to one word, from its first use on. */
static void print_story(uint32_t word)
{
    size_t n;
    const emu_event *e = emu_trace(&n), *last = 0;
    char name[100];
    emu_name(word, name, sizeof name);
    printf("the story of %s:\n", name);
    for (size_t i = 0; i < n; i++) {
        if (e[i].op <= EMU_OP_EXCHANGE && e[i].word == word && !(last && same_event(last, &e[i]))) {
            print_event(&e[i], 1, 1);
            last = &e[i];
        }
    }
}

/* The stories of the last words that the adversary did something to. */
static void print_stories(void)
{
    size_t n, i;
    const emu_event *e = emu_trace(&n);
    uint32_t words[STORIES], known = 0;
    for (i = n; i-- > 0 && known < STORIES;) {
        int new = e[i].op <= EMU_OP_EXCHANGE && e[i].age > 0;
        for (uint32_t k = 0; k < known; k++)
            new = new && words[k] != e[i].word;
        if (new) {
            words[known++] = e[i].word;
            print_story(e[i].word);
        }
    }
}

const char *finding_print(const finding *f)
{
    const char *violation = run(&f->scenario, f->random ? EMU_RANDOM : EMU_REPLAY, &f->list, 0, 1);
    char who[40];
    run_print(&f->scenario);
    if (f->random)
        printf("adversary from the seed: %s\n", choice_text());
    else
        printf("%zu deviations from the harmless run:\n", f->list.n);
    for (size_t i = 0; i < f->list.n; i++) {
        const emu_deviation *d = &f->list.at[i];
        emu_who(d->fibre, who, sizeof who);
        printf("  %s at its operation %u: ", who, d->op);
        emu_who((int)d->value, who, sizeof who);
        if (d->kind == EMU_SWITCH)
            printf("%s goes on\n", who);
        else
            printf("ages %u %u %u %u\n", d->value & 255u, d->value >> 8 & 255u, d->value >> 16 & 255u, d->value >> 24);
    }
    print_steps();
    print_stories();
    printf("%s\n", violation ? violation : "nothing is wrong");
    return violation;
}
