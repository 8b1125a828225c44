/*
 * segment.h: the shared host memory of a communicator.
 *
 * Rank 0 makes a memfd and offers it on an abstract Unix socket, whose name goes through the all-gather; the others
 * fetch the descriptor from there (SCM_RIGHTS needs no privilege and no file system). The memory lives as long as
 * somebody maps it, so nothing is left when the ranks are gone, however they went.
 *
 *   par_segment_offer()   rank 0, before the all-gather that carries the name
 *   par_segment_serve()   rank 0, after it; par_segment_fetch() the others
 *   par_segment_map()     every rank: map
 *   par_segment_place()   every rank: its own part, before anybody touches it
 *   par_segment_free()    any state, also zero
 */
#ifndef PAR_SEGMENT_H
#define PAR_SEGMENT_H

#include <stddef.h>

typedef struct {
    int fd;       /* memfd; -1 if none */
    int listener; /* rank 0's socket; -1 if none */
    char *base;   /* mapping; null if none */
    size_t bytes;
} par_segment;

enum { PAR_SOCKET_NAME = 48 };

#define PAR_SEGMENT_INIT { -1, -1, 0, 0 }

/* Errors of all of these: PAR_ERR_SYSTEM, PAR_ERR_MEMORY, PAR_ERR_TIMEOUT becomes PAR_ERR_BOOTSTRAP; text is set. */
int par_segment_offer(par_segment *s, size_t bytes, char name[PAR_SOCKET_NAME]);
int par_segment_create(par_segment *s, size_t bytes); /* no socket: all ranks in one process */
int par_segment_serve(par_segment *s, int takers, double timeout_s);
int par_segment_fetch(par_segment *s, const char *name, double timeout_s);
int par_segment_map(par_segment *s, size_t bytes);

/* Prefer a NUMA node for a page-aligned part; node < 0: leave it. Returns 0 or errno; failure costs speed only. */
int par_segment_place(void *part, size_t bytes, int node);

void par_segment_free(par_segment *s);

#endif
