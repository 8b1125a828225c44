/*
 * sentinel.pml: the hand-shake of the sentinel protocol, by itself, for spin. Independent of the emulator: other tool,
 * other memory, other hands.
 *
 * Two ranks, one lane, one word per call, host transport: each rank has an outbox of SLOTS words in host memory that it
 * alone writes. A call e of a rank:
 *     store data(e) to its slot e % SLOTS; store EMPTY to its slot of e-RESET; fence; poll the peer's slot e % SLOTS until
 *     it is not EMPTY; take it.
 * Claims: what is taken in call e is the peer's data of call e, and every call ends.
 *
 * Memory. Each rank has a queue of its stores on the way to the peer's eyes. Stores to different words may overtake each
 * other; a fence is a mark in the queue that nothing overtakes. Data carries the call number modulo VALUES, enough to
 * tell a call from those that share its slot.
 *
 * Faults to try: -DNO_FENCE, -DNO_RESET, -DRESET=1, -DSLOTS=3, -DSLOTS=2.
 */
#ifndef SLOTS
#define SLOTS 4
#endif
#ifndef RESET
#define RESET 2
#endif
#define VALUES 12      /* call numbers are kept modulo this; a multiple of SLOTS 2, 3 and 4 */
#define EMPTY VALUES
#define FENCE 255
#define QUEUE 9        /* stores of a rank that are on their way: three calls */
#define BEFORE(e, n) ((e + VALUES - n) % VALUES)

typedef rank_state {
    byte seen[SLOTS];      /* the outbox as the peer sees it */
    byte slot[QUEUE];      /* stores on their way: to which slot, or FENCE */
    byte value[QUEUE];
    byte n
};
rank_state r[2];
byte calls[2];             /* call number of each rank, modulo VALUES */

/* A store joins the queue. */
inline post(me, s, v)
{
    atomic {
        r[me].n < QUEUE;
        r[me].slot[r[me].n] = s;
        r[me].value[r[me].n] = v;
        r[me].n++
    }
}

/* Entry i leaves the queue. */
inline drop(me, i)
{
    k = i;
    do
    :: k + 1 < r[me].n -> r[me].slot[k] = r[me].slot[k + 1]; r[me].value[k] = r[me].value[k + 1]; k++
    :: else -> break
    od;
    r[me].n--;
    r[me].slot[r[me].n] = 0;
    r[me].value[r[me].n] = 0
}

/* The link: any store may arrive that stands before the first fence and behind no store to the same slot; the first of
 * the queue always may, and does if the one that was picked may not. */
proctype link(byte me)
{
    byte i, j, k;
end:
    do
    :: atomic {
        r[me].n > 0 ->
        select(i : 0 .. QUEUE - 1);
        if
        :: i >= r[me].n || r[me].slot[i] == FENCE -> i = 0
        :: else
        fi;
        j = 0;
        do
        :: j >= i -> break
        :: j < i && (r[me].slot[j] == FENCE || r[me].slot[j] == r[me].slot[i]) -> i = 0
        :: else -> j++
        od;
        if
        :: r[me].slot[i] != FENCE -> r[me].seen[r[me].slot[i]] = r[me].value[i]
        :: else
        fi;
        drop(me, i);
        i = 0; j = 0; k = 0
      }
    od
}

proctype rank(byte me)
{
    byte e, got;
end:
    do
    :: post(me, e % SLOTS, e);
#ifndef NO_RESET
       post(me, BEFORE(e, RESET) % SLOTS, EMPTY);
#endif
#ifndef NO_FENCE
       post(me, FENCE, 0);
#endif
       atomic {
           r[1 - me].seen[e % SLOTS] != EMPTY ->
           got = r[1 - me].seen[e % SLOTS];
           assert(got == e);
           got = 0
       };
       e = (e + 1) % VALUES;
       calls[me] = e
    od
}

init {
    byte i;
    atomic {
        do
        :: i < SLOTS -> r[0].seen[i] = EMPTY; r[1].seen[i] = EMPTY; i++
        :: else -> break
        od;
        i = 0;
        run link(0);
        run link(1);
        run rank(0);
        run rank(1)
    }
}

/* Progress of each rank, under weak fairness: it is in every call again and again. */
ltl goes_on { ([]<> (calls[0] == 1)) && ([]<> (calls[1] == 1)) }
