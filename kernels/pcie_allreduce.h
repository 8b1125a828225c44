/*
 * pcie_allreduce.h: the C interface of libpar.so, an all-reduce for GPUs that talk over PCIe.
 *
 * What it does. N ranks (2 to 8, any number) each hold a vector of the same length and type; after the call each
 * holds the element-wise sum. Sums are taken in fp32 along one fixed tree per world size and rounded once, so every
 * rank gets the same bits, and the bits depend neither on the size nor on the algorithm, grid or transport.
 *
 * Calling sequence. Every rank calls par_create() with its rank, the world size, its CUDA device, an all-gather
 * callback and options; the callback is used only inside par_create(). All ranks then enqueue the same sequence of
 * par_all_reduce() calls (same count, dtype and algorithm), eagerly or inside a CUDA graph that all ranks replay the
 * same number of times and in the same order. par_close() ends it. Tests may hold all ranks in one process with
 * par_create_local() and par_all_reduce_local().
 *
 * Transports. `host`: a shared-memory segment (memfd) that every GPU maps; needs no P2P. `push` and `pull`: CUDA IPC
 * mappings of the peers' memory, written or read by the SMs; both need P2P access between all pairs. Inputs and
 * outputs are never registered or mapped: any device pointer will do, also from a captured graph's pool.
 *
 * Order. Calls on one communicator must be ordered one after the other. Outside capture the library orders them itself
 * when the stream changes; graphs that are replayed on several streams must be ordered by the caller. Two calls that
 * really overlap on a GPU are detected there, and the communicator is aborted (PAR_ERR_OVERLAP).
 * Calls of several communicators on the same GPUs must be in the same order on all ranks too, as with any collective:
 * each may fill a GPU while it waits for its peers. But two at a time may meet in any order where no two ranks share a
 * GPU: a few multiprocessors stay free, which is enough for the one to end beside the other.
 * A communicator is used by one host thread at a time; par_abort(), par_status() and par_last_report() may be called
 * from any thread. Several communicators in one process are independent of each other.
 *
 * Failure. No wait is unbounded. A host thread per communicator watches the peers' processes. It is told when one begins
 * to end, names rank and process in the log and aborts, in a millisecond or so: before the sockets of the dying process
 * close, by which an engine would notice and end the others. Where the system cannot tell so early it is when the
 * process is gone, within a second. A rank that is late is named after 30 s and the call is aborted at the time limit.
 * An abort reaches all ranks through a word in host memory. What was waiting leaves a report (rank, algorithm, phase,
 * peer, lane, expected and seen value). In engine mode the kernel then traps, so that the engine's own next
 * synchronisation fails instead of using garbage; in status mode the kernel returns and par_status() tells. After an
 * abort a communicator is dead: every call returns PAR_ERR_ABORTED, with the report as its text, until it is closed and
 * created anew.
 *
 * Errors. Functions return 0 or one of the negative PAR_ERR_ values; par_last_error() has the text for the calling
 * thread: what failed, where, why. If par_create() fails on one rank it fails on all of them, each with a text that
 * names the rank whose failure it was; but a rank that names no world, rank or callback cannot tell the others.
 *
 * Compatibility. Option structs start with their size; a newer library accepts an older caller's smaller struct and
 * takes defaults for the rest. par_abi() tells the interface version of the library.
 */
#ifndef PCIE_ALLREDUCE_H
#define PCIE_ALLREDUCE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define PAR_ABI 1          /* interface version; par_abi() must return this */
#define PAR_MAX_WORLD 8    /* largest world size */

#if defined(__GNUC__)
#define PAR_API __attribute__((visibility("default")))
#else
#define PAR_API
#endif

/* --- errors ------------------------------------------------------------------------------------------------------- */

enum {
    PAR_OK = 0,
    PAR_ERR_ARGUMENT = -1,     /* an argument is out of range or null; the text names it */
    PAR_ERR_UNSUPPORTED = -2,  /* valid, but not by this algorithm, transport or device (no P2P, too many bytes) */
    PAR_ERR_MEMORY = -3,       /* host or device memory; the text names RLIMIT_MEMLOCK if that is why */
    PAR_ERR_CUDA = -4,         /* a CUDA call failed; the text has the call and CUDA's reason */
    PAR_ERR_SYSTEM = -5,       /* a system call failed; the text has the call and errno */
    PAR_ERR_MISMATCH = -6,     /* ranks disagree: version, world, options, machine */
    PAR_ERR_BOOTSTRAP = -7,    /* the all-gather callback failed, or a peer failed during par_create() */
    PAR_ERR_ABORTED = -8,      /* the communicator was aborted; see par_last_report() */
    PAR_ERR_TIMEOUT = -9,      /* report only: a peer did not come within the time limit */
    PAR_ERR_PEER_DIED = -10,   /* report only: a peer's process is gone */
    PAR_ERR_OVERLAP = -11      /* in and out overlap partly; as a report: two calls ran at the same time */
};

/* Short constant name of an error ("timeout"); never null. */
PAR_API const char *par_error_name(int error);

/* Text of the calling thread's last error; empty if there was none. Owned by the library, valid until the thread's
 * next failing call. */
PAR_API const char *par_last_error(void);

/* Interface version (PAR_ABI of the library) and its release as text. */
PAR_API int par_abi(void);
PAR_API const char *par_version(void);

/* --- what there is ------------------------------------------------------------------------------------------------ */

typedef enum { PAR_FP16 = 0, PAR_BF16 = 1, PAR_FP32 = 2, PAR_DTYPES = 3 } par_dtype;

typedef enum { PAR_HOST = 0, PAR_PUSH = 1, PAR_PULL = 2, PAR_TRANSPORTS = 3 } par_transport;

/*
 * One-shot: every rank gets every rank's vector and sums it. Two-shot: reduce-scatter, then all-gather.
 * Plain, validity travels inside the data (all-ones sentinel): lowest latency, bounded size. Tagged, it does so by one
 * bit of each word, whose own bit travels apart: slots need no reset, which through the host is a third of the traffic.
 * Chunked: fence and flag per chunk on a small staging window that is used again and again; any size. Pull is always
 * so.
 */
typedef enum {
    PAR_AUTO = 0, /* by the profile; see par_set_profile() */
    PAR_HOST_ONE_SHOT = 1,
    PAR_HOST_TWO_SHOT = 2,
    PAR_HOST_ONE_SHOT_CHUNKED = 3,
    PAR_HOST_TWO_SHOT_CHUNKED = 4,
    PAR_PUSH_ONE_SHOT = 5,
    PAR_PUSH_TWO_SHOT = 6,
    PAR_PUSH_ONE_SHOT_CHUNKED = 7,
    PAR_PUSH_TWO_SHOT_CHUNKED = 8,
    PAR_PULL_ONE_SHOT = 9,
    PAR_PULL_TWO_SHOT = 10,
    PAR_HOST_ONE_SHOT_TAGGED = 11,
    PAR_HOST_TWO_SHOT_TAGGED = 12,
    PAR_ALGORITHMS = 13 /* one past the last */
} par_algorithm;

/* Names as used in profiles and reports: "host-one-shot", "bf16", "push"; null outside the range. */
PAR_API const char *par_algorithm_name(int algorithm);
PAR_API const char *par_transport_name(int transport);
PAR_API const char *par_dtype_name(int dtype);
/* Algorithm with that name; -1 if none. */
PAR_API int par_algorithm_by_name(const char *name);
/* Transport of an algorithm; -1 outside the range or for PAR_AUTO. */
PAR_API int par_algorithm_transport(int algorithm);
/* Bytes of one element; 0 outside the range. */
PAR_API size_t par_dtype_size(int dtype);

/* --- options ------------------------------------------------------------------------------------------------------ */

enum {
    PAR_WITH_HOST = 1,                       /* set up the host transport */
    PAR_WITH_PEER = 2,                       /* set up push and pull */
    PAR_WITH_ALL = PAR_WITH_HOST | PAR_WITH_PEER
};

enum {
    PAR_MODE_ENGINE = 0, /* a wait that fails traps: the context is lost, the next synchronisation reports it */
    PAR_MODE_STATUS = 1  /* a wait that fails makes the kernel return early; outputs are then undefined */
};

/* Called with one line of text without newline. May come from the watcher thread. Must not call into the library. */
typedef void (*par_log_fn)(void *context, const char *line);

typedef struct {
    size_t size;             /* sizeof(par_options) */
    uint32_t with;           /* PAR_WITH_ bits; 0: all that work is an error, so name what you want */
    uint32_t mode;           /* PAR_MODE_ */
    uint64_t sentinel_bytes; /* largest message of the plain and tagged algorithms; 0: 1 MiB */
    double timeout_s;        /* time limit of a wait in a call, and of a step of par_create(); 0: 240 */
    double late_s;           /* a rank is named in the log after this; 0: 30 */
    par_log_fn log;          /* null: standard error */
    void *log_context;
    uint32_t no_watcher;     /* 1: no watcher thread (in-process tests) */
    uint32_t reserved;       /* 0 */
} par_options;

#define PAR_OPTIONS_INIT { sizeof(par_options), PAR_WITH_ALL, PAR_MODE_ENGINE, 0, 0.0, 0.0, 0, 0, 0, 0 }

/*
 * Upper bounds of what one rank's communicator allocates, in bytes. The host figure is that rank's share of the
 * segment; the segment is world times as large. Pure arithmetic: needs no GPU.
 */
PAR_API int par_memory_bound(int world, const par_options *options, uint64_t *device_bytes, uint64_t *host_bytes);

/* --- life --------------------------------------------------------------------------------------------------------- */

typedef struct par_comm par_comm;

/*
 * All-gather over the ranks: copy `bytes` bytes of `mine` from rank r to all + r * bytes on every rank.
 * Returns 0, anything else makes par_create() fail. Blocking; must bound its own waits.
 */
typedef int (*par_allgather_fn)(void *context, const void *mine, void *all, size_t bytes);

/*
 * Create this rank's end of a communicator; collective, blocking. Leaves the calling thread's current device as it was.
 * All ranks must be processes of one machine that share a network namespace (abstract Unix sockets pass the segment).
 * When it returns 0 every kernel is loaded and every rank is ready: the first call may be captured.
 * *out is null on failure. Errors: all of the above except the report-only ones.
 */
PAR_API int par_create(par_comm **out, int rank, int world, int device, par_allgather_fn allgather, void *context,
                       const par_options *options);

/*
 * All ranks in this process: out[r] for r < world on devices[r]; several ranks may share a device. For tests.
 * The ranks of one device run inside one launch, so only par_all_reduce_local() may be called when devices repeat.
 */
PAR_API int par_create_local(par_comm **out, int world, const int *devices, const par_options *options);

/*
 * Free a communicator; null is allowed. Not collective and never blocks for a peer: it waits at most two seconds for
 * the peers to drop their mappings of this rank's memory, and leaks that memory when they do not (the driver frees it
 * at process exit). Work that still runs is waited for until the time limit unless the communicator was aborted.
 * In a child that was forked since par_create() it does nothing: the communicator is its parent's.
 * A local communicator's ranks must all be closed, when none of them has work under way; shared parts go with the last.
 */
PAR_API void par_close(par_comm *comm);

PAR_API int par_rank(const par_comm *comm);
PAR_API int par_world(const par_comm *comm);

/* --- the call ----------------------------------------------------------------------------------------------------- */

/*
 * Enqueue one all-reduce. in, out: device pointers on the communicator's device to `count` elements, equal (in-place)
 * or disjoint, aligned to the element size; 16-byte alignment is fast, anything less is slower. count 0 is a no-op.
 * stream: a cudaStream_t, capturing or not; null is the legacy default stream. Never allocates or synchronises.
 * Errors: PAR_ERR_ARGUMENT, PAR_ERR_OVERLAP, PAR_ERR_UNSUPPORTED (see par_max_bytes()), PAR_ERR_ABORTED, PAR_ERR_CUDA;
 * on error nothing was enqueued.
 */
PAR_API int par_all_reduce(par_comm *comm, const void *in, void *out, size_t count, par_dtype dtype,
                           par_algorithm algorithm, void *stream);

/*
 * The same for all `world` ranks of a local communicator: in[r], out[r] on rank r's device, streams[r] a stream of that
 * device. Ranks that share a device run inside one launch on the stream of the first of them.
 */
PAR_API int par_all_reduce_local(par_comm *const *comms, const void *const *in, void *const *out, size_t count,
                                 par_dtype dtype, par_algorithm algorithm, void *const *streams);

/* Largest message of an algorithm on this communicator in bytes; 0: its transport was not set up; SIZE_MAX: no limit.
 * For PAR_AUTO: the largest the profile covers. */
PAR_API size_t par_max_bytes(const par_comm *comm, par_algorithm algorithm);

/* --- choice by size ----------------------------------------------------------------------------------------------- */

typedef struct {
    size_t max_bytes;     /* this entry serves messages up to so many bytes */
    int algorithm;        /* par_algorithm, not PAR_AUTO */
    int lanes;            /* blocks per call; 0: the library's rule by size */
    int threads;          /* worker threads per block, a multiple of 32; 0: the library's rule */
} par_choice;

/*
 * The profile: what PAR_AUTO takes, entries in rising max_bytes (copied). Larger messages are PAR_ERR_UNSUPPORTED with
 * PAR_AUTO. The caller must have agreed on it: all ranks need the same table and must set it between the same calls.
 * Graphs captured before keep what they have. A new communicator has start values for its transports.
 */
PAR_API int par_set_profile(par_comm *comm, const par_choice *choices, size_t n);

/* What PAR_AUTO would take for that many bytes; PAR_AUTO if nothing. */
PAR_API par_algorithm par_choose(const par_comm *comm, size_t bytes);

/* --- failure ------------------------------------------------------------------------------------------------------ */

typedef struct {
    int error;           /* 0: no report; else PAR_ERR_TIMEOUT, _PEER_DIED, _OVERLAP or _ABORTED (par_abort()) */
    int rank;            /* who reports */
    int peer;            /* whom it waited for, or who died, or who aborted; -1: nobody in particular */
    int algorithm;       /* par_algorithm of the call; 0 if none was waiting */
    int phase;           /* 1: scatter or one-shot data, 2: gather; 0: none */
    int lane;            /* block */
    uint32_t epoch;      /* call count of that lane (sentinel) or step (chunked) */
    uint32_t expected;   /* flag value waited for; 0 for data */
    uint32_t seen;       /* last value seen */
    uint64_t waited_ns;
    char text[256];      /* the same as a sentence */
} par_report;

/* 0, or PAR_ERR_ABORTED once the communicator is aborted. Cheap: reads host memory. */
PAR_API int par_status(const par_comm *comm);

/* Copy the report of the abort. Returns 0; out->error is 0 when there is none. */
PAR_API int par_last_report(const par_comm *comm, par_report *out);

/* Abort all ranks of the communicator; `why` (may be null) goes into this rank's report. Does not wait. */
PAR_API void par_abort(par_comm *comm, const char *why);

/* --- for tests ---------------------------------------------------------------------------------------------------- */

enum {
    PAR_DEBUG_DELAY_NS = 1,  /* the kernel of this rank's next calls waits so long before it sends (as enqueued) */
    PAR_DEBUG_JITTER_NS = 2, /* each block waits a pseudo-random time below this before it sends */
    PAR_DEBUG_LANES = 3,     /* force the number of blocks; 0: by the rule. All ranks alike */
    PAR_DEBUG_THREADS = 4,   /* force worker threads per block; 0: by the rule */
    PAR_DEBUG_EPOCH = 5,     /* set every lane's epoch and step, for wrap-around. All ranks alike, nothing in flight */
    PAR_DEBUG_CHUNK = 6      /* force the bytes of a chunk; 0: by the rule. All ranks alike */
};

/* Set a test switch. PAR_ERR_ARGUMENT for unknown switches or values. */
PAR_API int par_debug(par_comm *comm, int what, uint64_t value);

#ifdef __cplusplus
}
#endif
#endif
