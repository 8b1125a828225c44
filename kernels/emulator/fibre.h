/*
 * fibre.h: user-level threads for the emulator.
 *
 * On glibc alone: makecontext() builds a stack, _setjmp() and _longjmp() switch (10 ns; swapcontext() would enter the
 * kernel for the signal mask at every switch). QEMU's coroutines work the same way. Debian has no C library for fibres
 * that is kept up, Boost.Context would bring C++ and hand-written assembly for the same speed.
 *
 * A fibre runs entry() again and again: each time it returns, whoever it names continues, and the next switch to the
 * fibre starts entry() afresh. A fibre may be abandoned at any switch; fibre_restart() makes it start afresh.
 */
#ifndef EMU_FIBRE_H
#define EMU_FIBRE_H

typedef struct fibre fibre;

/* The fibre that stands for the caller's own stack. Null when out of memory. */
fibre *fibre_of_caller(void);

/* A fibre; entry returns the fibre that continues. Null when out of memory. */
fibre *fibre_new(fibre *(*entry)(void *argument), void *argument);
void fibre_free(fibre *f);

/* Leave `from`, which is running, and continue `to`. */
void fibre_switch(fibre *from, fibre *to);

/* Forget where the fibre stood; it must not be running. */
void fibre_restart(fibre *f);

#endif
