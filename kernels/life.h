/*
 * life.h: a word in shared memory that tells when the process of another rank ends, however it ends.
 *
 * The kernel keeps a list of robust futexes for each thread. When a thread ends, by a SIGKILL too, it marks those that
 * the thread held and wakes who waits for them, before anything else: a process with much memory takes 100 ms and more
 * from there until its sockets and pipes close and its pidfd becomes readable. What a child inherits makes no
 * difference, as it does with descriptors: only the thread that holds the word counts.
 *
 *   par_life_hold()    the thread whose end is to be seen; `life` must live until it has called par_life_leave()
 *   par_life_wait()    the others: until the word changes, somebody rings, or the time is up
 *   par_life_ended()   the holder ended without par_life_leave()
 *   par_life_ring()    wake all that wait for this word
 *
 * Where the system has no robust futexes (a sandbox may not) words never end; the caller needs a second witness.
 */
#ifndef PAR_LIFE_H
#define PAR_LIFE_H

#include <linux/futex.h>
#include <stddef.h>
#include <stdint.h>

typedef struct {
    struct robust_list_head head;
    struct robust_list link;            /* the one entry */
    struct robust_list_head *displaced; /* the C library's, back in place after par_life_leave() */
    size_t displaced_bytes;
} par_life;

void par_life_hold(par_life *life, uint32_t *word);
void par_life_leave(par_life *life, uint32_t *word);
int par_life_ended(const uint32_t *word);
/* Sleep at most `ms` while the word is `seen`, as it was read before whatever the caller decided on. */
void par_life_wait(uint32_t *word, uint32_t seen, int ms);
void par_life_ring(uint32_t *word);

#endif
