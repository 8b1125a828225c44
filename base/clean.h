/*
 * Text for people: the name of a file may hold anything, also what a terminal takes as an order.
 */
#ifndef SP_BASE_CLEAN_H
#define SP_BASE_CLEAN_H

/* Control characters, those of UTF-8 included, become '?', in place; lines: ends of lines and tabs stay. Returns text.
 */
char *sp_clean(char *text, int lines);

#endif
