/* reduce.c: the call itself, and the test switches. */
#include <cuda_runtime_api.h>
#include <string.h>

#include "comm.h"
#include "device.h"
#include "error.h"

/* --- checks ------------------------------------------------------------------------------------------------------- */

static int check_buffers(const void *in, const void *out, size_t bytes, size_t element)
{
    uintptr_t a = (uintptr_t)in, b = (uintptr_t)out;
    if (!in || !out)
        return par_error(PAR_ERR_ARGUMENT, "in and out must not be null");
    if (a % element || b % element)
        return par_error(PAR_ERR_ARGUMENT, "in or out is not aligned to its element of %zu bytes", element);
    if (a != b && a < b + bytes && b < a + bytes)
        return par_error(PAR_ERR_OVERLAP, "in and out overlap without being equal");
    return PAR_OK;
}

/* The profile's entry for a message; null if it serves none so large. */
static const par_choice *choose(const struct par_comm *comm, size_t bytes)
{
    const par_choice *found = NULL;
    for (size_t i = comm->choices; i > 0; i--)
        if (bytes <= comm->choice[i - 1].max_bytes)
            found = &comm->choice[i - 1];
    return found;
}

/* Settle algorithm and cutting. */
static int plan_call(const struct par_comm *comm, par_plan *plan, par_algorithm algorithm, size_t bytes)
{
    const uint64_t *debug = comm->debug;
    uint32_t lanes = (uint32_t)debug[PAR_DEBUG_LANES], workers = (uint32_t)debug[PAR_DEBUG_THREADS];
    int chosen = (int)algorithm, error;
    if (algorithm == PAR_AUTO) {
        const par_choice *c = choose(comm, bytes);
        if (!c)
            return par_error(PAR_ERR_UNSUPPORTED, "the profile serves no message of %zu bytes", bytes);
        chosen = c->algorithm;
        lanes = lanes ? lanes : (uint32_t)c->lanes;
        workers = workers ? workers : (uint32_t)c->threads;
    }
    if (chosen < 0 || chosen >= PAR_ALGORITHMS)
        return par_error(PAR_ERR_ARGUMENT, "there is no algorithm %d", chosen);
    if (par_max_bytes(comm, (par_algorithm)chosen) == 0)
        return par_error(PAR_ERR_UNSUPPORTED, "%s is not set up", par_algorithm_name(chosen));
    error = par_plan_init(plan, comm->geometry, chosen, comm->world, bytes, lanes, workers,
                          (uint32_t)debug[PAR_DEBUG_CHUNK]);
    if (error)
        error = par_error(error, "%s serves at most %zu bytes, not %zu", par_algorithm_name(chosen),
                          par_max_bytes(comm, (par_algorithm)chosen), bytes);
    return error;
}

/* The error of a call on a communicator that was aborted: who is to blame, and why. */
static int aborted(const struct par_comm *comm)
{
    par_report report;
    par_last_report(comm, &report);
    return par_error(PAR_ERR_ABORTED, "the communicator was aborted: %s", report.text);
}

static int check_call(const struct par_comm *comm, const void *in, const void *out, size_t count, par_dtype dtype)
{
    size_t element = par_dtype_size((int)dtype);
    if (!comm)
        return par_error(PAR_ERR_ARGUMENT, "comm must not be null");
    if (element == 0)
        return par_error(PAR_ERR_ARGUMENT, "there is no dtype %d", (int)dtype);
    if (count > SIZE_MAX / 16 || count * element / 16 > UINT32_MAX)
        return par_error(PAR_ERR_ARGUMENT, "count %zu is too large", count);
    if (par_abort_seen(comm))
        return aborted(comm);
    return check_buffers(in, out, count * element, element);
}

/* --- the launch --------------------------------------------------------------------------------------------------- */

static void fill_call(const struct par_comm *comm, par_call *call, const par_plan *plan, const void *in, void *out,
                      size_t bytes)
{
    *call = comm->call[plan->algorithm];
    par_call_plan(call, comm->geometry, plan);
    par_call_message(call, in, out, bytes);
    call->delay_ns = comm->debug[PAR_DEBUG_DELAY_NS];
    call->jitter_ns = comm->debug[PAR_DEBUG_JITTER_NS];
    call->dawdle = call->delay_ns || call->jitter_ns;
}

static int launch_on(const par_launch *launch, unsigned ranks, const par_plan *plan, par_dtype dtype, int world,
                     cudaStream_t stream)
{
    const dim3 grid = {plan->lanes, ranks, 1}, block = {plan->workers + PAR_KEEPER_THREADS, 1, 1};
    void *arguments[1];
    cudaError_t error;
    memcpy(&arguments[0], &launch, sizeof launch); /* the runtime takes a pointer to non-const */
    error = cudaLaunchKernel(par_kernel(plan->algorithm, (int)dtype, world, ranks), grid, block, arguments, 0, stream);
    return error == cudaSuccess ? PAR_OK : par_cuda_error(error, "cudaLaunchKernel");
}

/*
 * Calls must run one after the other. Outside capture: wait for the last call when the stream has changed. In a capture
 * the caller orders the graph.
 */
static int order_before(struct par_comm *comm, cudaStream_t stream, int *capturing)
{
    enum cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    cudaError_t error = cudaStreamIsCapturing(stream, &status);
    *capturing = status != cudaStreamCaptureStatusNone;
    if (error == cudaSuccess && !*capturing && comm->recorded && comm->last_stream != (void *)stream)
        error = cudaStreamWaitEvent(stream, comm->event, 0);
    return error == cudaSuccess ? PAR_OK : par_cuda_error(error, "cudaStreamWaitEvent");
}

static int order_after(struct par_comm *comm, cudaStream_t stream, int capturing)
{
    cudaError_t error = cudaSuccess;
    if (!capturing) {
        error = cudaEventRecord(comm->event, stream);
        comm->recorded = error == cudaSuccess;
        comm->last_stream = stream;
    }
    return error == cudaSuccess ? PAR_OK : par_cuda_error(error, "cudaEventRecord");
}

/* Launch the ranks of one device; their first one's stream and event stand for all. */
static int launch_ranks(struct par_comm *first, const par_launch *launch, unsigned ranks, const par_plan *plan,
                        par_dtype dtype, void *stream)
{
    int before = first->device, capturing = 0, error = PAR_OK;
    cudaError_t failed = cudaGetDevice(&before);
    if (failed == cudaSuccess && before != first->device)
        failed = cudaSetDevice(first->device);
    if (failed != cudaSuccess)
        error = par_cuda_error(failed, "cudaSetDevice");
    if (!error)
        error = order_before(first, stream, &capturing);
    if (!error)
        error = launch_on(launch, ranks, plan, dtype, first->world, stream);
    if (!error)
        error = order_after(first, stream, capturing);
    if (before != first->device)
        cudaSetDevice(before);
    return error;
}

int par_all_reduce(par_comm *comm, const void *in, void *out, size_t count, par_dtype dtype, par_algorithm algorithm,
                   void *stream)
{
    par_launch launch;
    par_plan plan;
    int error;
    if (count == 0 && comm)
        return PAR_OK;
    error = check_call(comm, in, out, count, dtype);
    if (!error && comm->device_repeats)
        error = par_error(PAR_ERR_UNSUPPORTED, "ranks that share a device need par_all_reduce_local()");
    if (!error)
        error = plan_call(comm, &plan, algorithm, count * par_dtype_size((int)dtype));
    if (!error) {
        fill_call(comm, &launch.call[0], &plan, in, out, count * par_dtype_size((int)dtype));
        error = launch_ranks(comm, &launch, 1, &plan, dtype, stream);
    }
    return error;
}

/* Whether rank r is the first one on its device. */
static int is_first(par_comm *const *comms, int r)
{
    int first = 1;
    for (int p = 0; p < r; p++)
        first = first && comms[p]->device != comms[r]->device;
    return first;
}

int par_all_reduce_local(par_comm *const *comms, const void *const *in, void *const *out, size_t count, par_dtype dtype,
                         par_algorithm algorithm, void *const *streams)
{
    par_plan plan;
    size_t bytes = count * par_dtype_size((int)dtype);
    int error = PAR_OK, world;
    if (!comms || !comms[0] || !in || !out || !streams || !comms[0]->local)
        return par_error(PAR_ERR_ARGUMENT, "an argument is null or the communicators are not local");
    world = comms[0]->world;
    for (int r = 0; r < world && count && !error; r++)
        error = check_call(comms[r], in[r], out[r], count, dtype);
    if (!error && count)
        error = plan_call(comms[0], &plan, algorithm, bytes);
    for (int r = 0; r < world && count && !error; r++) {
        par_launch launch;
        unsigned ranks = 0;
        for (int p = r; p < world && is_first(comms, r); p++)
            if (comms[p]->device == comms[r]->device)
                fill_call(comms[p], &launch.call[ranks++], &plan, in[p], out[p], bytes);
        if (ranks)
            error = launch_ranks(comms[r], &launch, ranks, &plan, dtype, streams[r]);
    }
    return error;
}

/* --- test switches ------------------------------------------------------------------------------------------------ */

static int fill_words(uint32_t *at, uint64_t words, uint32_t value)
{
    /* cudaMemset has bytes only, and the driver API is not linked: copy from a small pattern. */
    uint32_t pattern[1024];
    cudaError_t error = cudaSuccess;
    for (size_t i = 0; i < 1024; i++)
        pattern[i] = value;
    for (uint64_t done = 0; done < words && error == cudaSuccess; done += 1024) {
        uint64_t n = words - done < 1024 ? words - done : 1024;
        error = cudaMemcpy(at + done, pattern, n * sizeof *at, cudaMemcpyDefault);
    }
    return error == cudaSuccess ? PAR_OK : par_cuda_error(error, "cudaMemcpy");
}

/* As if so many calls and steps had been made. Fresh slots, no extents. */
static int set_epoch(struct par_comm *comm, uint32_t epoch)
{
    int error = PAR_OK;
    for (int a = 1; a < PAR_ALGORITHMS && !error; a++) {
        const par_geometry *g = &comm->geometry[a];
        par_lane lanes[PAR_LANES];
        if (par_max_bytes(comm, (par_algorithm)a) == 0)
            continue;
        memset(lanes, 0, sizeof lanes);
        for (int l = 0; l < PAR_LANES; l++)
            lanes[l].epoch = epoch;
        error = fill_words(comm->call[a].box[comm->rank], g->box_bytes / 4, PAR_EMPTY);
        if (!error)
            error = fill_words(comm->call[a].flag[comm->rank], g->flag_bytes / 4, epoch);
        if (!error && cudaMemcpy(comm->call[a].lane, lanes, sizeof lanes, cudaMemcpyHostToDevice) != cudaSuccess)
            error = par_error(PAR_ERR_CUDA, "cudaMemcpy failed");
    }
    return error;
}

int par_debug(par_comm *comm, int what, uint64_t value)
{
    int before = -1, error = PAR_OK;
    if (!comm || what < PAR_DEBUG_DELAY_NS || what > PAR_DEBUG_CHUNK)
        return par_error(PAR_ERR_ARGUMENT, "comm is null or switch %d is unknown", what);
    if (what == PAR_DEBUG_THREADS && (value > PAR_MAX_WORKERS || value % 32))
        return par_error(PAR_ERR_ARGUMENT, "%llu threads: not a multiple of 32 up to %d", (unsigned long long)value,
                         PAR_MAX_WORKERS);
    if ((what == PAR_DEBUG_LANES || what == PAR_DEBUG_CHUNK || what == PAR_DEBUG_EPOCH) && value > UINT32_MAX)
        return par_error(PAR_ERR_ARGUMENT, "switch %d: value is too large", what);
    if (what == PAR_DEBUG_EPOCH) {
        cudaGetDevice(&before);
        cudaSetDevice(comm->device);
        error = set_epoch(comm, (uint32_t)value);
        if (before >= 0)
            cudaSetDevice(before);
    } else {
        comm->debug[what] = value;
    }
    return error;
}
