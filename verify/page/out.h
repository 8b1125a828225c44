/*
 * Text that is put together from many pieces, with one error at the end: the first that did not fit stops the rest.
 *
 *     struct sp_out out = {.rc = SP_OK};
 *     sp_put(&out, "<td>%g</td>", us);
 *     sp_put_html(&out, name);               // a text from anywhere
 *     ...
 *     if (out.rc < 0) ...                    // the message is set
 *     sp_buf_free(&out.buf);
 */
#ifndef SP_PAGE_OUT_H
#define SP_PAGE_OUT_H

#include "base/file.h"

struct sp_out {
    struct sp_buf buf;
    int rc;
};

void sp_put(struct sp_out *out, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* As the content of an element or of an attribute in double quotes: escaped, control characters and bytes that are not
 * UTF-8 as U+FFFD. */
void sp_put_html(struct sp_out *out, const char *text);

/* As a string of gnuplot: in single quotes, where nothing has a meaning but the quote itself. */
void sp_put_quoted(struct sp_out *out, const char *text);

#endif
