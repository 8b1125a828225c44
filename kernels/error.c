/* error.c: one error text per thread. */
#include "error.h"

#include <stdarg.h>
#include <stdio.h>

#include "pcie_allreduce.h"

static _Thread_local char text[512];

int par_error(int error, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    return error;
}

const char *par_last_error(void)
{
    return text;
}
