/*
 * overlay.cu: the C interface around a checkout's custom_all_reduce.cuh.
 *
 * Compiled with shim/ before everything else on the include path, so that "utils.h" is ours and no torch is needed. No
 * anonymous namespaces: their names would depend on paths.
 */
#include "overlay.h"

#include "shim/utils.h"

#include "custom_all_reduce.cuh"

#include <dlfcn.h>

/* The texts differ in their namespace; both are searched, and one has the class. */
namespace vllm {
}
namespace sglang {
}
using namespace vllm;
using namespace sglang;

static_assert(sizeof(cudaIpcMemHandle_t) == UPSTREAM_HANDLE_BYTES, "handles of another size");

static thread_local std::string last_error;
static thread_local bool closing;

/* --- errors ---------------------------------------------------------------------------------- */

void upstream_check(cudaError_t error, const char *call)
{
    std::string name(call);

    if (error == cudaSuccess)
        return;
    (void)cudaGetLastError(); /* not to be found again by the next call */
    if (!closing)
        throw std::runtime_error(name.substr(0, name.find('(')) + ": " + cudaGetErrorString(error) + " (" +
                                 cudaGetErrorName(error) + ")");
}

/* What the driver offers is looked up when it is needed: a machine without a driver can load this library. */
CUresult CUDAAPI cuPointerGetAttribute(void *data, CUpointer_attribute attribute, CUdeviceptr pointer)
{
    using function = CUresult(CUDAAPI *)(void *, CUpointer_attribute, CUdeviceptr);
    static const function found = [] {
        void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
        return driver != nullptr ? reinterpret_cast<function>(dlsym(driver, "cuPointerGetAttribute")) : nullptr;
    }();

    return found != nullptr ? found(data, attribute, pointer) : CUDA_ERROR_NOT_INITIALIZED;
}

/* The device of a call, for as long as it lasts. */
struct upstream_device {
    int before = -1;

    explicit upstream_device(int device)
    {
        upstream_check(cudaGetDevice(&before), "cudaGetDevice");
        if (device == before)
            before = -1;
        else
            upstream_check(cudaSetDevice(device), "cudaSetDevice");
    }
    ~upstream_device()
    {
        if (before >= 0)
            (void)cudaSetDevice(before);
    }
    upstream_device(const upstream_device &) = delete;
};

/* Run it on the device; what it throws becomes the last error, and `bad` is returned. */
template <typename R, typename F> static R guarded(int device, R bad, F run)
{
    try {
        upstream_device here(device);
        return run();
    } catch (const std::exception &error) {
        last_error = error.what();
    } catch (...) {
        last_error = "an exception that is none of the standard ones";
    }
    if (last_error.empty())
        last_error = "an error without a text";
    return bad;
}

static CustomAllreduce &of(void *handle)
{
    if (handle == nullptr)
        throw std::runtime_error("the handle is null");
    return *static_cast<CustomAllreduce *>(handle);
}

/* --- life ------------------------------------------------------------------------------------ */

int upstream_abi(void)
{
    return UPSTREAM_ABI;
}

const char *upstream_last_error(void)
{
    return last_error.c_str();
}

int64_t upstream_meta_size(void)
{
    return static_cast<int64_t>(sizeof(Signal));
}

void *upstream_init_custom_ar(int device, void *const *signals, int world, int rank, void *rank_data,
                              size_t rank_data_bytes, int full_nvlink)
{
    return guarded<void *>(device, nullptr, [&]() -> void * {
        Signal *all[8] = {};
        if (world < 2 || world > 8 || world % 2 != 0)
            throw std::runtime_error("custom all-reduce is for 2, 4, 6 or 8 ranks, not " + std::to_string(world));
        if (rank < 0 || rank >= world)
            throw std::runtime_error("there is no rank " + std::to_string(rank) + " of " + std::to_string(world));
        for (int i = 0; i < world; i++)
            all[i] = static_cast<Signal *>(signals[i]);
        return new CustomAllreduce(all, rank_data, rank_data_bytes, rank, world, full_nvlink != 0);
    });
}

int upstream_dispose(int device, void *handle)
{
    return guarded(device, -1, [&] {
        CustomAllreduce *self = &of(handle);
        closing = true;
        delete self;
        closing = false;
        return 0;
    });
}

/* --- buffers --------------------------------------------------------------------------------- */

static void check_world(const CustomAllreduce &self, int world)
{
    if (world != self.world_size_)
        throw std::runtime_error("buffers of " + std::to_string(world) + " ranks for a group of " +
                                 std::to_string(self.world_size_));
}

int upstream_register_buffer(int device, void *handle, void *const *buffers, int world)
{
    return guarded(device, -1, [&] {
        void *all[8] = {};
        check_world(of(handle), world);
        for (int i = 0; i < world; i++)
            all[i] = buffers[i];
        of(handle).register_buffer(all);
        return 0;
    });
}

int64_t upstream_get_graph_buffer_ipc_meta(int device, void *handle, unsigned char *handles, int64_t *offsets,
                                           size_t room)
{
    return guarded<int64_t>(device, -1, [&] {
        size_t count = of(handle).graph_unreg_buffers_.size();
        if (handles != nullptr && count > 0) {
            auto meta = of(handle).get_graph_buffer_ipc_meta();
            if (count > room || meta.first.size() != count * UPSTREAM_HANDLE_BYTES)
                throw std::runtime_error("no room for the handles of " + std::to_string(count) + " buffers");
            std::memcpy(handles, meta.first.data(), meta.first.size());
            std::memcpy(offsets, meta.second.data(), count * sizeof(int64_t));
        }
        return static_cast<int64_t>(count);
    });
}

int upstream_register_graph_buffers(int device, void *handle, const unsigned char *handles, const int64_t *offsets,
                                    size_t count, int world)
{
    return guarded(device, -1, [&] {
        std::vector<std::string> texts;
        std::vector<std::vector<int64_t>> numbers;
        check_world(of(handle), world);
        if (count != of(handle).graph_unreg_buffers_.size())
            throw std::runtime_error("handles of " + std::to_string(count) + " buffers, " +
                                     std::to_string(of(handle).graph_unreg_buffers_.size()) + " were captured");
        for (int i = 0; i < world; i++) {
            const char *first = reinterpret_cast<const char *>(handles) + i * count * UPSTREAM_HANDLE_BYTES;
            texts.emplace_back(first, count * UPSTREAM_HANDLE_BYTES);
            numbers.emplace_back(offsets + i * count, offsets + (i + 1) * count);
        }
        of(handle).register_graph_buffers(texts, numbers);
        return 0;
    });
}

/* --- the all-reduce -------------------------------------------------------------------------- */

static size_t size_of(int dtype)
{
    return dtype == UPSTREAM_FP32 ? 4 : 2;
}

template <typename T>
static void reduce(CustomAllreduce &self, cudaStream_t stream, void *in, void *out, size_t count)
{
    self.template allreduce<T>(stream, static_cast<T *>(in), static_cast<T *>(out), static_cast<int>(count));
}

int upstream_all_reduce(int device, void *handle, const void *in, void *out, size_t count, int dtype, void *staged,
                        size_t staged_bytes, void *stream_)
{
    return guarded(device, -1, [&] {
        CustomAllreduce &self = of(handle);
        cudaStream_t stream = static_cast<cudaStream_t>(stream_);
        size_t bytes = count * size_of(dtype);
        void *from = const_cast<void *>(in);
        if (count > static_cast<size_t>(std::numeric_limits<int>::max()))
            throw std::runtime_error("more elements than an int counts: " + std::to_string(count));
        if (staged != nullptr) {
            if (bytes > staged_bytes)
                throw std::runtime_error("registered buffer is too small to contain the input: " +
                                         std::to_string(bytes) + " bytes into " + std::to_string(staged_bytes));
            upstream_check(cudaMemcpyAsync(staged, in, bytes, cudaMemcpyDeviceToDevice, stream), "cudaMemcpyAsync");
            from = staged;
        }
        if (dtype == UPSTREAM_FP16)
            reduce<half>(self, stream, from, out, count);
        else if (dtype == UPSTREAM_BF16)
            reduce<nv_bfloat16>(self, stream, from, out, count);
        else if (dtype == UPSTREAM_FP32)
            reduce<float>(self, stream, from, out, count);
        else
            throw std::runtime_error("no such type: " + std::to_string(dtype));
        upstream_check(cudaGetLastError(), "launch");
        return 0;
    });
}
