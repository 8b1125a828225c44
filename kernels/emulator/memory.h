/*
 * memory.h: memory that does everything PCIe and the PTX memory model allow.
 *
 * A place is one 32-bit word. It keeps the writes it got, in coherence order, the last EMU_KEPT of them. A thread has a
 * floor per place: the oldest write that it may still read, and behind which its own next write must go. Floors rise by
 *   reading and writing            coherence per place and reader
 *   fences and acquires            a fence joins what the writes that were read (relaxed) had published
 *   block barriers                 all threads of a block take the highest floors of all of them
 *   kernel boundaries              the threads of the next kernel of that GPU start with the highest floors of the last
 * and by nothing else. A write publishes the floors that its thread had at its last fence (release); a write that no
 * fence came before publishes nothing. In terms of links: a write stands in the queue from its GPU to whoever reads,
 * each reader has a queue of its own, words leave a queue in any order, words of one address leave it in coherence
 * order, and nothing but a fence that the reader has learned of forces a word out. A write may also land behind writes
 * that were issued later, as long as its thread had not learned of those. There is no other order: 16-byte stores are
 * four words, host memory is a home like any other, the end of a kernel publishes nothing.
 *
 * What is not modelled: a store that is seen before an earlier load of the same thread has got its value (load
 * buffering). docs/memory-model.md says why none of the protocols is exposed to it.
 *
 * The choices (which old write is read, before which writes a new one goes) are the caller's, as an `age`: 0 is the
 * newest, k the k-th before it.
 */
#ifndef EMU_MEMORY_H
#define EMU_MEMORY_H

#include <stddef.h>
#include <stdint.h>

enum {
    EMU_THREADS = 80,       /* 64 fibres, and for each rank its host and what its last kernel knew */
    EMU_KEPT = 8,           /* writes that a place remembers */
    EMU_PENDING = 32,       /* publications that a thread has read and not fenced, before they are joined in a heap */
    EMU_NOBODY = 0xffff     /* writer of the first value */
};

typedef uint16_t emu_stamp; /* position in a place's coherence order */

typedef struct {
    uint32_t value;
    uint32_t published; /* view, 0: none */
    emu_stamp stamp;
    uint16_t by; /* thread */
} emu_write;

typedef struct {
    emu_write kept[EMU_KEPT]; /* rising stamps */
    uint32_t n;
    uint32_t word;     /* which word of the arena */
    uint64_t watchers; /* for the scheduler: fibres that have read the newest write and poll */
    uint8_t readers, writers; /* ranks that may */
    uint8_t home;             /* rank, or EMU_HOST */
} emu_place;

/* What a kernel boundary is trusted with; taken away only to see which protocols need it. Numbers as in
 * docs/memory-model.md. */
enum {
    EMU_WITHOUT_A7 = 1, /* a kernel's start acquires what the kernel before it had read */
    EMU_WITHOUT_A15 = 2 /* a fence in a kernel holds for the stores of the next kernel's threads */
};

/* Forget everything; `words` is the size of the arena. First call: allocate. 0, or -1 when out of memory. */
int mem_reset(uint32_t words, uint32_t without);
void mem_free(void);

/* The place of a word; created at first use as emu_describe() has it. */
emu_place *mem_place(uint32_t word);
uint32_t mem_index(const emu_place *place);
const emu_place *mem_known(uint32_t word); /* null when nobody has used it */

/* A thread begins: floors of `from`, which is another thread (-1: none), as after a kernel boundary. */
void mem_begin(int thread, int from);

/* How many ages a read, a write may have: 1 means no choice. */
uint32_t mem_read_ages(int thread, const emu_place *place);
uint32_t mem_write_ages(int thread, const emu_place *place);

/* Read; *again: the thread had read or written that very write before. */
emu_write mem_read(int thread, emu_place *place, uint32_t age, int acquire, int *again);
void mem_write(int thread, emu_place *place, uint32_t age, uint32_t value);
/* Read the newest and replace it, indivisibly. */
uint32_t mem_exchange(int thread, emu_place *place, uint32_t value);

/* Acquire and release. */
void mem_fence(int thread);

/* Whether the newest write of a place is covered by a fence of its thread, or of another of its rank since: it has been
 * performed, and who reads later, by whatever way, sees it. */
int mem_is_performed(const emu_place *place);

/* A barrier of threads first..first+n-1. */
void mem_barrier(int first, int n);

/* Half a barrier: what a thread knows now, for another to learn later. */
uint32_t mem_tell(int thread);
void mem_learn(int thread, uint32_t told);

/* A thread ends: `sum` learns all that it knew, and what its fences published stays so for the next kernel. */
void mem_end(int thread, int sum);

/* Newest write of a place, in coherence order. */
static inline const emu_write *mem_newest(const emu_place *place) { return &place->kept[place->n - 1]; }

#endif
