/*
 * A topology for people: the tree of bridges down to the chosen GPUs, and a table of all pairs.
 */
#ifndef SP_MACHINE_PICTURE_H
#define SP_MACHINE_PICTURE_H

#include "base/table.h"
#include "verify/machine/topology.h"

/* Lines of a tree, each ended. utf8: with lines drawn. */
int sp_picture_tree(struct sp_buf *out, const struct sp_topology *topology, bool utf8);

enum { SP_PICTURE_PAIR = 24 };

/* "PIX ok", "SYS NS", "NV ok": the label and what the driver grants; "-" for a GPU and itself. */
void sp_picture_pair(char out[SP_PICTURE_PAIR], const struct sp_topology *topology, size_t from, size_t to);

/* All of them: a row for each GPU that writes. */
int sp_picture_pairs(struct sp_table **out, const struct sp_topology *topology);

#endif
