// The GPU: finding it, its memory, launching on it, and what to say when a call fails.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <fstream>
#include <string>
#include <type_traits>
#include <vector>

#include "command_line.hpp"
#include "error_bounds.hpp"
#include "errors.hpp"
#include "numbers.hpp"
#include "peak.hpp"
#include "plan.hpp"

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

/// Makes and checks a CUDA call: DEMO_CHECK(cudaMalloc(&pointer, bytes)). A dry run leaves it out.
#define DEMO_CHECK(call) \
    (demo::dry_run       \
         ? void()        \
         : demo::check((call), std::string(#call).substr(0, std::string(#call).find('('))))

__global__ void probe() {}  // does nothing: launching it tells whether this GPU can run our code

/// A GPU.
struct Gpu {
    std::string name = "";        // "NVIDIA H200"
    std::string arch = "";        // "sm_90"; empty where no GPU was looked for
    int compute_capability = 0;   // 90
    int multiprocessors = 0;      // SMs
    double boost_ghz = 0;         // the highest clock
    size_t l2_bytes = 0;          // size of the L2 cache
    size_t shared_per_block = 0;  // most shared memory that a block may ask for, bytes
    std::string machine = "";     // what it has of everything, for people

    /// None: for dry runs that need no GPU.
    Gpu() = default;

    /// The one that --device chose. Exits with 77 and the reason where nothing here runs kernels.
    explicit Gpu(const Options& options) {
        int driver = 0, count = 0, khz = 0;
        cudaDriverGetVersion(&driver);
        if (driver == 0) fail(kSkipped, "no NVIDIA driver, so no GPU, on this machine");
        check(cudaGetDeviceCount(&count), "cudaGetDeviceCount");
        if (options.device >= count)
            fail(kUsage, "--device takes a GPU's index, here from 0 to " +
                             std::to_string(count - 1) + ", not " + std::to_string(options.device));
        DEMO_CHECK(cudaSetDevice(options.device));
        cudaDeviceProp properties;
        DEMO_CHECK(cudaGetDeviceProperties(&properties, options.device));
        DEMO_CHECK(cudaDeviceGetAttribute(&khz, cudaDevAttrClockRate, options.device));
        probe<<<1, 1>>>();
        check(cudaGetLastError(), "launching a kernel on " + std::string(properties.name));
        DEMO_CHECK(cudaDeviceSynchronize());

        name = properties.name;
        compute_capability = 10 * properties.major + properties.minor;
        arch = kSimulator ? "not a GPU" : "sm_" + std::to_string(compute_capability);
        multiprocessors = properties.multiProcessorCount;
        boost_ghz = khz / 1e6;
        l2_bytes = size_t(std::max(properties.l2CacheSize, 0));
        shared_per_block = properties.sharedMemPerBlockOptin;
        machine = describe_machine(properties, options.device);
    }

    /// Bytes of the buffer that empties the cache between launches: its old lines must all go.
    size_t flush_bytes() const { return std::max(2 * l2_bytes, size_t(256) << 20); }

    /// Its dense TFLOP/s in a data type, 0 if unknown.
    double peak(const std::string& dtype) const {
        return peak_tflops(name, compute_capability, multiprocessors, boost_ghz, dtype);
    }

  private:
    static std::string describe_machine(const cudaDeviceProp& properties, int device) {
        if (kSimulator) return "";
        int khz = 0, bits = 0;  // of the memory's clock, of its bus
        DEMO_CHECK(cudaDeviceGetAttribute(&khz, cudaDevAttrMemoryClockRate, device));
        DEMO_CHECK(cudaDeviceGetAttribute(&bits, cudaDevAttrGlobalMemoryBusWidth, device));
        const double gb_per_s = 2e-6 * khz * bits / 8;  // two transfers a cycle
        return "machine: " + std::to_string(properties.multiProcessorCount) + " SMs of " +
               human_bytes(4.0 * properties.regsPerMultiprocessor) + " registers and " +
               human_bytes(double(properties.sharedMemPerMultiprocessor)) +
               " shared memory each;\n  " + human_bytes(double(properties.l2CacheSize)) +
               " L2 cache, " + human_bytes(double(properties.totalGlobalMem)) + " memory" +
               (gb_per_s > 0 ? " at " + std::to_string(int(gb_per_s + 0.5)) + " GB/s" : "");
    }
};

// --- Memory -------------------------------------------------------------------------------------

/// GPU memory that may be asked for: what is free, less a reserve for what libraries and the
/// driver take by themselves. In bytes.
inline size_t free_device_memory() {
    size_t free_bytes = 0, total = 0;
    check(cudaMemGetInfo(&free_bytes, &total), "cudaMemGetInfo");
    const size_t reserve = kSimulator ? 0 : size_t(128) << 20;
    return free_bytes > reserve ? free_bytes - reserve : 0;
}

/// Host memory that may be asked for, in bytes: the machine's, or what the limit of its container
/// (cgroup v2 or v1) leaves. SIZE_MAX where the system does not say.
inline size_t free_host_memory() {
    auto number_in = [](const std::string& path) {
        size_t number = 0;
        return std::ifstream(path) >> number ? number : SIZE_MAX;  // "max": no limit
    };
    size_t free_bytes = SIZE_MAX, kib = 0;
    std::ifstream file("/proc/meminfo");
    for (std::string word; file >> word;)
        if (word == "MemAvailable:" && file >> kib) free_bytes = kib * 1024;
    const std::string cgroup = "/sys/fs/cgroup/memory";
    for (const auto& [limit, used] :
         {std::pair{number_in(cgroup + ".max"), number_in(cgroup + ".current")},
          {number_in(cgroup + "/memory.limit_in_bytes"),
           number_in(cgroup + "/memory.usage_in_bytes")}})
        if (used != SIZE_MAX) free_bytes = std::min(free_bytes, limit > used ? limit - used : 0);
    return free_bytes;
}

/// Device memory for `size` elements, freed at the end of its scope. It starts as NaN bytes, so
/// that an element that was never written shows. In a dry run there is none, only its size.
template <class T>
class Buffer {
  public:
    explicit Buffer(size_t size) : size_(size) {
        if (dry_run) dry_run->take(bytes());
        DEMO_CHECK(cudaMalloc(&data_, bytes()));
        DEMO_CHECK(cudaMemset(data_, 0xFF, bytes()));
    }
    /// rows x columns elements.
    Buffer(size_t rows, size_t columns) : Buffer(saturating_product(rows, columns)) {}
    ~Buffer() {
        if (dry_run)
            dry_run->give_back(bytes());
        else
            cudaFree(data_);
    }
    Buffer(const Buffer&) = delete;
    Buffer& operator=(const Buffer&) = delete;

    T* data() const { return data_; }
    size_t size() const { return size_; }
    size_t bytes() const { return saturating_product(size_, sizeof(T)); }

  private:
    T* data_ = nullptr;
    size_t size_;
};

/// Host memory for rows x columns elements; in a dry run only its size.
template <class T>
class HostBuffer : public std::vector<T> {
  public:
    HostBuffer(size_t rows, size_t columns) : std::vector<T>(dry_run ? 0 : rows * columns) {
        if (dry_run) dry_run->take_on_host(saturating_product(rows, columns, sizeof(T)));
    }
};

/// The same where the GPU's copy engines reach it by themselves: pinned, so that it stays in place.
template <class T>
class PinnedBuffer {
  public:
    explicit PinnedBuffer(size_t size) : size_(size) {
        if (dry_run) dry_run->take_on_host(bytes());
        DEMO_CHECK(cudaMallocHost(&data_, bytes()));
    }
    ~PinnedBuffer() {
        if (data_) cudaFreeHost(data_);
    }
    PinnedBuffer(const PinnedBuffer&) = delete;

    T* data() const { return data_; }
    size_t bytes() const { return saturating_product(size_, sizeof(T)); }

  private:
    T* data_ = nullptr;
    size_t size_;
};

// --- Launching ----------------------------------------------------------------------------------

/// A kernel's blocks may have more than 48 KiB of shared memory only if that is asked for.
template <class Kernel>
void allow_shared_bytes(Kernel kernel, size_t bytes) {
    DEMO_CHECK(
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, int(bytes)));
}

/// The same for more than some GPUs have: returns why the kernel cannot run then; empty where it
/// can. (What no block may have is not asked for: compute-sanitizer reports calls that fail.)
template <class Kernel>
std::string try_shared_bytes(Kernel kernel, size_t bytes) {
    if (dry_run) return "";
    int device = 0, most = 0;
    DEMO_CHECK(cudaGetDevice(&device));
    DEMO_CHECK(cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device));
    cudaFuncAttributes own;  // static shared memory counts, too
    DEMO_CHECK(cudaFuncGetAttributes(&own, kernel));
    const auto attribute = cudaFuncAttributeMaxDynamicSharedMemorySize;
    if (own.sharedSizeBytes + bytes <= size_t(most) &&
        cudaFuncSetAttribute(kernel, attribute, int(bytes)) == cudaSuccess)
        return "";
    cudaGetLastError();  // or the next check would find it
    return "needs " + human_bytes(double(bytes)) + " of shared memory in a block";
}

/// How many blocks of a kernel one multiprocessor holds at a time.
template <class Kernel>
int blocks_per_multiprocessor(Kernel kernel, int threads, size_t shared_bytes) {
    int blocks = 0;
    DEMO_CHECK(
        cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel, threads, shared_bytes));
    return blocks;
}

/// A launch in clusters of blocks, prepared once: launch(kernel, arguments...) enqueues it.
class ClusterLaunch {
  public:
    ClusterLaunch(size_t clusters, unsigned int blocks_per_cluster, unsigned int threads,
                  size_t shared_bytes, cudaStream_t stream = nullptr) {
        cluster_.id = cudaLaunchAttributeClusterDimension;
        cluster_.val.clusterDim = {blocks_per_cluster, 1, 1};
        config_.gridDim = dim3(clusters * blocks_per_cluster);
        config_.blockDim = dim3(threads);
        config_.dynamicSmemBytes = shared_bytes, config_.stream = stream;
        config_.numAttrs = blocks_per_cluster > 1 ? 1 : 0;
    }

    template <class... Parameters, class... Arguments>
    void operator()(void (*kernel)(Parameters...), Arguments... arguments) const {
        const cudaLaunchConfig_t config = this->config();
        DEMO_CHECK(cudaLaunchKernelEx(&config, kernel, arguments...));
    }

    /// How many such clusters this GPU runs at once, 0 if none fits. (A cluster lies within one
    /// group of multiprocessors, and their number need not be a multiple of its size.)
    template <class Kernel>
    int room(Kernel kernel) const {
        int clusters = 0;
        const cudaLaunchConfig_t config = this->config();
        if (config.numAttrs == 0) {  // the call below knows no single blocks
            int device = 0, count = 0;
            DEMO_CHECK(cudaGetDevice(&device));
            DEMO_CHECK(cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device));
            return count * blocks_per_multiprocessor(kernel, int(config.blockDim.x),
                                                     config.dynamicSmemBytes);
        }
        DEMO_CHECK(cudaOccupancyMaxActiveClusters(&clusters, kernel, &config));
        return clusters;
    }

    /// The same where one must run.
    template <class Kernel>
    int at_once(Kernel kernel) const {
        const int clusters = room(kernel);
        if (clusters == 0 && !dry_run)
            fail(kSkipped, "no room for a cluster of " + std::to_string(cluster_.val.clusterDim.x) +
                               " blocks on this part of a GPU");
        return clusters;
    }

  private:
    cudaLaunchConfig_t config() const {
        cudaLaunchConfig_t config = config_;
        config.attrs = const_cast<cudaLaunchAttribute*>(&cluster_);
        return config;
    }

    cudaLaunchConfig_t config_{};
    cudaLaunchAttribute cluster_{};
};

/// Times launches on the GPU's own clock: by an event before and one after.
class EventTimer {
  public:
    EventTimer() {
        DEMO_CHECK(cudaEventCreate(&begin_));
        DEMO_CHECK(cudaEventCreate(&end_));
    }
    ~EventTimer() {
        if (begin_) cudaEventDestroy(begin_), cudaEventDestroy(end_);
    }
    EventTimer(const EventTimer&) = delete;

    /// Milliseconds of what launch() enqueues, which is done then. `who`: to name in an error.
    template <class Launch>
    double ms(Launch launch, const std::string& who = "cudaEventSynchronize") const {
        float ms = 0;
        DEMO_CHECK(cudaEventRecord(begin_));
        launch();
        DEMO_CHECK(cudaEventRecord(end_));
        if (!dry_run) check(cudaEventSynchronize(end_), who);
        DEMO_CHECK(cudaEventElapsedTime(&ms, begin_, end_));
        return double(ms);
    }

  private:
    cudaEvent_t begin_ = nullptr, end_ = nullptr;
};

/// 16 bytes, the most that one thread can load or store at a time.
template <class T>
struct alignas(16) Vector {
    static constexpr int kSize = 16 / sizeof(T);
    T at[kSize];
};

}  // namespace demo
