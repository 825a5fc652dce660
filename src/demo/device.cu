// The GPU: finding it, its memory, and what to say when a call fails.
#include <algorithm>
#include <cstring>
#include <fstream>

#include "demo/device.cuh"
#include "internal.hpp"

namespace demo {

void check(cudaError_t status, const std::string& call) {
    if (status == cudaSuccess) return;
    ExitCode code = kFailed;
    std::string advice = cudaGetErrorString(status);
    switch (status) {
        case cudaErrorMemoryAllocation:
            advice = "not enough GPU memory; try a smaller size";
            break;
        case cudaErrorNoDevice:
            code = kSkipped;
            advice = "there is no GPU that CUDA can use (CUDA_VISIBLE_DEVICES or MIG may hide it)";
            break;
        case cudaErrorInsufficientDriver:
            code = kSkipped, advice = "the NVIDIA driver is older than this program; update it";
            break;
        case cudaErrorNoKernelImageForDevice:
        case cudaErrorInvalidDeviceFunction:
        case cudaErrorUnsupportedPtxVersion:
            code = kSkipped;
            advice = "built for other GPUs; build it here with scons (needs 7.5, Turing, or later)";
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

std::string name_of(const char* call) { return {call, std::strcspn(call, "(")}; }

// --- The GPU ------------------------------------------------------------------------------------

__global__ void probe() {}  // does nothing: launching it tells whether this GPU can run our code

/// Of the data sheet, or else by the memory's clock.
static double memory_gb_per_s(const std::string& gpu, int device) {
    const double listed = peak_gb_per_s(gpu);
    if (kSimulator || listed > 0) return listed;
    int khz = 0, bits = 0;  // of the memory's clock, of its bus
    DEMO_CHECK(cudaDeviceGetAttribute(&khz, cudaDevAttrMemoryClockRate, device));
    DEMO_CHECK(cudaDeviceGetAttribute(&bits, cudaDevAttrGlobalMemoryBusWidth, device));
    return 2e-6 * khz * bits / 8;  // two transfers a cycle
}

static std::string describe_machine(const cudaDeviceProp& properties, double gb_per_s) {
    if (kSimulator) return "";
    return "machine: " + std::to_string(properties.multiProcessorCount) + " SMs of " +
           human_bytes(4.0 * properties.regsPerMultiprocessor) + " registers and " +
           human_bytes(double(properties.sharedMemPerMultiprocessor)) + " shared memory each;\n  " +
           human_bytes(double(properties.l2CacheSize)) + " L2 cache, " +
           human_bytes(double(properties.totalGlobalMem)) + " memory" +
           (gb_per_s > 0 ? " at " + std::to_string(int(gb_per_s + 0.5)) + " GB/s" : "");
}

Gpu::Gpu(const Options& options) {
    int driver = 0, count = 0, khz = 0, launches = 0;
    cudaDriverGetVersion(&driver);
    if (driver == 0) fail(kSkipped, "no NVIDIA driver, so no GPU, on this machine");
    check(cudaGetDeviceCount(&count), "cudaGetDeviceCount");
    if (options.device >= count)
        fail(kUsage, "--device takes a GPU's index, here from 0 to " + std::to_string(count - 1) +
                         ", not " + std::to_string(options.device));
    DEMO_CHECK(cudaSetDevice(options.device));
    cudaDeviceProp properties;
    DEMO_CHECK(cudaGetDeviceProperties(&properties, options.device));
    DEMO_CHECK(cudaDeviceGetAttribute(&khz, cudaDevAttrClockRate, options.device));
    DEMO_CHECK(cudaDeviceGetAttribute(&launches, cudaDevAttrClusterLaunch, options.device));
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
    clusters = launches != 0;
    gb_per_s = memory_gb_per_s(name, options.device);
    machine = describe_machine(properties, gb_per_s);
}

size_t Gpu::flush_bytes() const { return std::max(2 * l2_bytes, size_t(256) << 20); }

std::string Gpu::why_no_room(size_t bytes) const {
    if (dry_run) return "";
    const size_t taken = kSimulator ? 0 : flush_bytes(), free_bytes = free_device_memory();
    const size_t room = free_bytes > taken ? free_bytes - taken : 0;  // measuring takes the rest
    if (bytes <= room) return "";
    return "needs " + human_bytes(double(bytes)) + " of GPU memory, " + human_bytes(double(room)) +
           " free";
}

double Gpu::peak(const std::string& dtype) const {
    return peak_tflops(name, compute_capability, multiprocessors, boost_ghz, dtype);
}

// --- Memory -------------------------------------------------------------------------------------

Plan* dry_run = nullptr;

void* allocate(size_t bytes) {
    void* memory = nullptr;
    plan_on_device(bytes);
    DEMO_CHECK(cudaMalloc(&memory, bytes));
    DEMO_CHECK(cudaMemset(memory, 0xFF, bytes));
    return memory;
}

void release(void* memory, size_t bytes) {
    if (dry_run && dry_run->taken < SIZE_MAX) dry_run->taken -= bytes;
    if (!dry_run) cudaFree(memory);
}

void plan_on_device(size_t bytes) {
    if (!dry_run) return;
    dry_run->taken = saturating_sum(dry_run->taken, bytes);
    dry_run->device_bytes = std::max(dry_run->device_bytes, dry_run->taken);
}

void plan_on_host(size_t bytes) {
    if (dry_run) dry_run->host_bytes = saturating_sum(dry_run->host_bytes, bytes);
}

size_t free_device_memory() {
    size_t free_bytes = 0, total = 0;
    check(cudaMemGetInfo(&free_bytes, &total), "cudaMemGetInfo");
    const size_t reserve = kSimulator ? 0 : size_t(128) << 20;
    return free_bytes > reserve ? free_bytes - reserve : 0;
}

size_t free_host_memory() {
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

// --- Time ---------------------------------------------------------------------------------------

EventTimer::EventTimer() {
    DEMO_CHECK(cudaEventCreate(&begin_));
    DEMO_CHECK(cudaEventCreate(&end_));
}

EventTimer::~EventTimer() {
    if (begin_) cudaEventDestroy(begin_), cudaEventDestroy(end_);
}

double EventTimer::elapsed_ms(const std::string& who) const {
    float ms = 0;
    if (!dry_run) check(cudaEventSynchronize(end_), who);
    DEMO_CHECK(cudaEventElapsedTime(&ms, begin_, end_));
    return double(ms);
}

}  // namespace demo
