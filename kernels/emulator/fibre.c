/* fibre.c: see fibre.h. */
#undef _FORTIFY_SOURCE /* its longjmp() takes a jump to another stack for a mistake */

#include "fibre.h"

#include <setjmp.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <ucontext.h>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#define LEAVE(keep, to) __sanitizer_start_switch_fiber(keep, (to)->bottom, (to)->size)
#define ARRIVE(keep) __sanitizer_finish_switch_fiber(keep, 0, 0)
#else
#define LEAVE(keep, to) ((void)(keep), (void)(to))
#define ARRIVE(keep) ((void)(keep))
#endif

enum { STACK_BYTES = 256 * 1024 }; /* address space; pages that are never touched cost nothing */

struct fibre {
    jmp_buf where;
    ucontext_t start;
    fibre *(*entry)(void *);
    void *argument;
    void *bottom; /* of the stack; null: the caller's own */
    size_t size;
    void *shadow; /* of the address sanitizer, while away */
    int started;
};

static fibre *alive; /* handed to run(), since makecontext() passes only int */

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
    f->size = STACK_BYTES;
    f->bottom = mmap(0, f->size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (f->bottom == MAP_FAILED) {
        free(f);
        f = 0;
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
    ARRIVE(me->shadow);
    for (;;)
        fibre_switch(me, me->entry(me->argument));
}

static void enter(fibre *to)
{
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
        LEAVE(&from->shadow, to);
        if (to->bottom && !to->started)
            enter(to);
        _longjmp(to->where, 1);
    }
    ARRIVE(from->shadow);
}
