/* error.h: one error text per thread. */
#ifndef PAR_ERROR_H
#define PAR_ERROR_H

/* Set the thread's error text; returns `error`, so that a function can end with it. */
__attribute__((format(printf, 2, 3))) int par_error(int error, const char *format, ...);

#endif
