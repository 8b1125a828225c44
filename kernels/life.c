/* life.c: see life.h; set_robust_list(2) and the kernel's robust-futex-ABI describe what the words must look like. */
#include "life.h"

#include <limits.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

void par_life_hold(par_life *life, uint32_t *word)
{
    const uint32_t holder = (uint32_t)syscall(SYS_gettid);
    if (syscall(SYS_get_robust_list, 0, &life->displaced, &life->displaced_bytes) != 0)
        life->displaced_bytes = 0;
    life->link.next = &life->head.list;
    life->head.list.next = &life->link;
    life->head.list_op_pending = NULL;
    life->head.futex_offset = (long)((intptr_t)word - (intptr_t)&life->link);
    if (syscall(SYS_set_robust_list, &life->head, sizeof life->head) == 0) {
        __atomic_store_n(word, holder | FUTEX_WAITERS, __ATOMIC_RELEASE); /* as if somebody waited: it always wakes */
        par_life_ring(word);
    }
}

void par_life_leave(par_life *life, uint32_t *word)
{
    __atomic_store_n(word, 0, __ATOMIC_RELEASE);
    par_life_ring(word);
    life->head.list.next = &life->head.list;
    if (life->displaced_bytes == sizeof life->head)
        syscall(SYS_set_robust_list, life->displaced, life->displaced_bytes);
}

int par_life_ended(const uint32_t *word)
{
    return (__atomic_load_n(word, __ATOMIC_ACQUIRE) & FUTEX_OWNER_DIED) != 0;
}

void par_life_wait(uint32_t *word, uint32_t seen, int ms)
{
    const struct timespec limit = {ms / 1000, ms % 1000 * 1000000L};
    syscall(SYS_futex, word, FUTEX_WAIT, seen, &limit, NULL, 0); /* why it returned does not matter: the caller looks */
}

void par_life_ring(uint32_t *word)
{
    syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}
