// The GPU: finding it, its memory, and what to say when a call fails.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <fstream>
#include <string>

#include "bounds.hpp"
#include "command_line.hpp"
#include "errors.hpp"
#include "numbers.hpp"

namespace demo {

/// Exits with one line if a CUDA call failed: the call, the error's name, what to do about it.
inline void check(cudaError_t status, const std::string& call) {
    if (status == cudaSuccess) return;
    ExitCode code = kFailed;
    std::string advice = cudaGetErrorString(status);
    switch (status) {
        case cudaErrorMemoryAllocation:
            advice = "not enough GPU memory; try a smaller size";
            break;
        case cudaErrorNoDevice:
            code = kSkipped, advice = "there is no GPU that CUDA can use";
            break;
        case cudaErrorInsufficientDriver:
            code = kSkipped, advice = "the NVIDIA driver is missing, or older than this program";
            break;
        case cudaErrorNoKernelImageForDevice:
        case cudaErrorInvalidDeviceFunction:
        case cudaErrorUnsupportedPtxVersion:
            code = kSkipped, advice = "built for other GPUs; build it here with scons";
            break;
        case cudaErrorIllegalAddress:
        case cudaErrorMisalignedAddress:
        case cudaErrorLaunchFailure:
            advice += "; compute-sanitizer shows where";
            break;
        default:
            break;
    }
    fail(code, call + ": " + cudaGetErrorName(status) + ": " + advice);
}

/// Checks a CUDA call: DEMO_CHECK(cudaMalloc(&pointer, bytes));
#define DEMO_CHECK(call) \
    demo::check((call), std::string(#call).substr(0, std::string(#call).find('(')))

__global__ void probe() {}  // does nothing: launching it tells whether this GPU can run our code

/// The GPU that --device chose. Exits with 77 and the reason where nothing here can run kernels.
struct Gpu {
    std::string name;         // "NVIDIA H200"
    std::string arch;         // "sm_90"
    int compute_capability;   // 90
    int multiprocessors;      // SMs
    size_t l2_bytes;          // size of the L2 cache
    size_t shared_per_block;  // most shared memory that a block may ask for, bytes

    explicit Gpu(const Options& options) {
        int driver = 0, count = 0;
        cudaDriverGetVersion(&driver);
        if (driver == 0) fail(kSkipped, "no NVIDIA driver, so no GPU, on this machine");
        check(cudaGetDeviceCount(&count), "cudaGetDeviceCount");
        if (options.device >= count)
            fail(kUsage, "--device takes a GPU's index, here from 0 to " +
                             std::to_string(count - 1) + ", not " + std::to_string(options.device));
        DEMO_CHECK(cudaSetDevice(options.device));
        cudaDeviceProp properties;
        DEMO_CHECK(cudaGetDeviceProperties(&properties, options.device));
        probe<<<1, 1>>>();
        check(cudaGetLastError(), "launching a kernel on " + std::string(properties.name));
        DEMO_CHECK(cudaDeviceSynchronize());

        name = properties.name;
        compute_capability = 10 * properties.major + properties.minor;
        arch = kCpuLane ? "not a GPU" : "sm_" + std::to_string(compute_capability);
        multiprocessors = properties.multiProcessorCount;
        l2_bytes = size_t(std::max(properties.l2CacheSize, 0));
        shared_per_block = properties.sharedMemPerBlockOptin;
    }

    /// Bytes of the buffer that empties the cache between launches: its old lines must all go.
    size_t flush_bytes() const { return std::max(2 * l2_bytes, size_t(256) << 20); }
};

/// GPU memory that may be asked for: what is free, less a reserve for what libraries and the
/// driver take by themselves. In bytes.
inline size_t free_device_memory() {
    size_t free_bytes = 0, total = 0;
    DEMO_CHECK(cudaMemGetInfo(&free_bytes, &total));
    const size_t reserve = kCpuLane ? 0 : size_t(128) << 20;
    return free_bytes > reserve ? free_bytes - reserve : 0;
}

/// Host memory that may be asked for, in bytes; SIZE_MAX where the system does not say.
inline size_t free_host_memory() {
    std::ifstream file("/proc/meminfo");
    size_t kib = 0;
    for (std::string word; file >> word;)
        if (word == "MemAvailable:" && file >> kib) return kib * 1024;
    return SIZE_MAX;
}

/// Exits unless there is room for options.size. `device_bytes` and `host_bytes` map a size to the
/// bytes it needs.
template <class DeviceBytes, class HostBytes = size_t (*)(size_t)>
void require_memory(
    const Options& options, DeviceBytes device_bytes,
    HostBytes host_bytes = [](size_t) { return size_t(0); }) {
    const std::string name = options.size.name;
    const size_t size = options.size.value, step = options.size.step;
    auto require = [&](const std::string& where, auto bytes, size_t free_bytes) {
        if (bytes(size) <= free_bytes) return;
        fail(kFailed, name + " = " + std::to_string(size) + " needs " +
                          human_bytes(double(bytes(size))) + " of " + where + " memory, but " +
                          human_bytes(double(free_bytes)) + " are free; the largest " + name +
                          " that fits is " +
                          std::to_string(largest_that_fits(step, free_bytes, bytes)));
    };
    require("GPU", device_bytes, free_device_memory());
    require("host", host_bytes, free_host_memory());
}

/// Device memory for `size` elements, freed at the end of its scope. It starts as NaN bytes, so
/// that what nobody wrote shows.
template <class T>
class Buffer {
  public:
    explicit Buffer(size_t size) : size_(size) {
        DEMO_CHECK(cudaMalloc(&data_, bytes()));
        DEMO_CHECK(cudaMemset(data_, 0xFF, bytes()));
    }
    ~Buffer() { cudaFree(data_); }
    Buffer(const Buffer&) = delete;
    Buffer& operator=(const Buffer&) = delete;

    T* data() const { return data_; }
    size_t size() const { return size_; }
    size_t bytes() const { return size_ * sizeof(T); }

  private:
    T* data_ = nullptr;
    size_t size_;
};

template <class T>
__global__ void fill_uniform_kernel(T* data, size_t size, uint64_t seed, float scale) {
    const size_t stride = size_t(gridDim.x) * blockDim.x;
    for (size_t i = size_t(blockIdx.x) * blockDim.x + threadIdx.x; i < size; i += stride)
        data[i] = T(scale * random_uniform(seed, i));
}

/// Fills `buffer` with the data set `seed`: uniform in [-scale, scale], rounded to T.
template <class T>
void fill_uniform(const Buffer<T>& buffer, uint64_t seed, float scale = 1) {
    fill_uniform_kernel<<<1024, 256>>>(buffer.data(), buffer.size(), seed, scale);
    DEMO_CHECK(cudaGetLastError());
}

}  // namespace demo
