/*
 * The page of `report`: one HTML file that shows what a bundle says, for people.
 *
 * A pure function of the bundle, and of the redacted one: what is not in the bundle cannot be on the page. It needs no
 * network, no script, no font and no other program: style and pictures are inside, and a policy in its head forbids a
 * browser to load anything at all. Every text of the bundle is escaped (out.h). What is missing (no install, nothing
 * measured) is said in its place, with the command that brings it.
 *
 *     page.c             the frame, what comes after what
 *     page_state.c       how far this machine is: patched, built, proved, measured, enabled; the next command
 *     page_savings.c     what is saved
 *     page_bench.c       the measurements as tables
 *     page_chart.c       and as a picture
 *     page_topology.c    the machine as a picture, pairs, what was found in it
 *     page_profile.c     which size is served by what
 *     page_checks.c      what verify proved
 *     page_install.c     files of the install, what doctor found
 *     page_style.c       what it looks like
 */
#ifndef SP_PAGE_PAGE_H
#define SP_PAGE_PAGE_H

#include "base/file.h"

#include <jansson.h>

/* Appended to out. SP_EFAIL: the bundle is none, with the field that is wrong. */
int sp_page_make(struct sp_buf *out, const json_t *bundle);

#endif
