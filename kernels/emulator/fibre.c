/* fibre.c: see fibre.h. */
#undef _FORTIFY_SOURCE /* its longjmp() takes a jump to another stack for a mistake */

#include "fibre.h"

#include <setjmp.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <ucontext.h>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#else
#define __asan_unpoison_memory_region(bottom, size) ((void)(bottom), (void)(size))
#define __sanitizer_start_switch_fiber(keep, bottom, size) ((void)(keep), (void)(bottom), (void)(size))
#define __sanitizer_finish_switch_fiber(keep, bottom, size) ((void)(keep), (void)(bottom), (void)(size))
#endif

enum { STACK_BYTES = 256 * 1024 }; /* address space; pages that are never touched cost nothing */

struct fibre {
    jmp_buf where;
    ucontext_t start;
    fibre *(*entry)(void *);
    void *argument;
    void *bottom; /* of the stack; null: the caller's own */
    size_t size;
    int started;
    void *shadow; /* the address sanitizer's, while away */
    const void *seen_bottom; /* stack as the sanitizer has seen it, which is how the caller's own becomes known */
    size_t seen_size;
};

static fibre *alive;  /* handed to run(), since makecontext() passes only int */
static fibre *before; /* who has switched */

fibre *fibre_of_caller(void)
{
    return calloc(1, sizeof(fibre));
}

fibre *fibre_new(fibre *(*entry)(void *), void *argument)
{
    fibre *f = calloc(1, sizeof *f);
    if (!f)
        goto out;
    f->entry = entry;
    f->argument = argument;
    f->size = f->seen_size = STACK_BYTES;
    f->bottom = mmap(0, f->size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (f->bottom == MAP_FAILED) {
        free(f);
        f = 0;
    } else {
        f->seen_bottom = f->bottom;
    }
out:
    return f;
}

void fibre_free(fibre *f)
{
    if (f && f->bottom)
        munmap(f->bottom, f->size);
    free(f);
}

void fibre_restart(fibre *f)
{
    f->started = 0;
}

static void run(void)
{
    fibre *me = alive;
    __sanitizer_finish_switch_fiber(me->shadow, &before->seen_bottom, &before->seen_size);
    for (;;)
        fibre_switch(me, me->entry(me->argument));
}

static void enter(fibre *to)
{
    __asan_unpoison_memory_region(to->bottom, to->size); /* whatever an abandoned fibre left there */
    getcontext(&to->start);
    to->start.uc_stack.ss_sp = to->bottom;
    to->start.uc_stack.ss_size = to->size;
    to->start.uc_link = 0;
    makecontext(&to->start, run, 0);
    to->started = 1;
    to->shadow = 0;
    alive = to;
    setcontext(&to->start);
}

void fibre_switch(fibre *from, fibre *to)
{
    if (!_setjmp(from->where)) {
        before = from;
        __sanitizer_start_switch_fiber(&from->shadow, to->seen_bottom, to->seen_size);
        if (to->bottom && !to->started)
            enter(to);
        _longjmp(to->where, 1);
    }
    __sanitizer_finish_switch_fiber(from->shadow, 0, 0);
}
