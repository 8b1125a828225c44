/*
 * What stays of us in a folder that has lost its SGLang: pip removes the files of SGLang, and no command of ours works
 * on a folder without one.
 */
#ifndef SP_PATCHER_REST_H
#define SP_PATCHER_REST_H

/* Where something of ours lies in that folder, say so after the present message, and hint at what removes it. Returns
 * code. */
int sp_rest_hint(int code, const char *site);

#endif
