#include "device.hpp"

#include <algorithm>
#include <climits>
#include <cstdint>
#include <cstring>
#include <map>
#include <mutex>
#include <set>
#include <utility>

#include "cuda/cuda_runtime_api.h"
#include "cuda/device_launch_parameters.h"
#include "errors.hpp"
#include "host_threads.hpp"

using simulator::set_error;

namespace simulator {
namespace {

constexpr unsigned int kMaxThreadsPerBlock = 1024, kMaxGridYZ = 65535, kMaxBlockZ = 64;
constexpr int kVersion = 13000;  // of CUDA, whose meanings these are

std::mutex attributes_mutex;
std::map<const void*, size_t> dynamic_limits;  // of kernels that asked for more
std::set<const void*> large_clusters;          // kernels that asked for more than 8 blocks

}  // namespace

cudaError_t check_launch(const void* kernel, const Launch& launch) {
    const auto [grid, block] = std::pair(launch.grid, launch.block);
    const uint64_t threads = uint64_t(block.x) * block.y * block.z;
    if (threads == 0 || threads > kMaxThreadsPerBlock || block.x > threads || block.y > threads ||
        block.z > kMaxBlockZ || grid.x == 0 || grid.y == 0 || grid.z == 0 || grid.x > INT_MAX ||
        grid.y > kMaxGridYZ || grid.z > kMaxGridYZ)
        return cudaErrorInvalidConfiguration;
    std::lock_guard lock(attributes_mutex);
    const unsigned int most = large_clusters.count(kernel) ? kMaxClusterBlocks : kClusterBlocks;
    if (launch.cluster == 0 || launch.cluster > most || grid.x % launch.cluster != 0)
        return cudaErrorInvalidClusterSize;
    const auto asked = dynamic_limits.find(kernel);
    const size_t limit = asked == dynamic_limits.end() ? kSharedBytes : asked->second;
    return launch.shared_bytes > limit ? cudaErrorInvalidValue : cudaSuccess;
}

cudaError_t set_function_attribute(const void* kernel, cudaFuncAttribute attribute, int value) {
    std::lock_guard lock(attributes_mutex);
    if (attribute == cudaFuncAttributeNonPortableClusterSizeAllowed && value)
        large_clusters.insert(kernel);
    if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize) return cudaSuccess;
    if (value < 0 || size_t(value) > kMaxSharedBytes) return set_error(cudaErrorInvalidValue);
    dynamic_limits[kernel] = std::max(size_t(value), kSharedBytes);
    return cudaSuccess;
}

unsigned int cluster_of(const cudaLaunchConfig_t& config) {
    unsigned int blocks = 1;
    for (unsigned int i = 0; i < config.numAttrs; ++i) {
        if (config.attrs[i].id != cudaLaunchAttributeClusterDimension) continue;
        const auto [x, y, z] = config.attrs[i].val.clusterDim;
        if (y != 1 || z != 1) unsupported("clusters of more than one dimension");
        blocks = x;
    }
    return blocks;
}

/// As on a GPU where a block fills a multiprocessor. A single cluster can run in any case: it needs
/// no more than one worker.
cudaError_t clusters_at_once(int* clusters, const cudaLaunchConfig_t* config) {
    if (!clusters || !config) return set_error(cudaErrorInvalidValue);
    const unsigned int blocks = cluster_of(*config);
    const bool possible = blocks > 0 && blocks <= kMaxClusterBlocks;
    *clusters = possible ? std::max(1, worker_count() / int(blocks)) : 0;
    return cudaSuccess;
}

cudaError_t blocks_per_multiprocessor(int* blocks, int threads, size_t shared_bytes) {
    if (!blocks || threads < 1) return set_error(cudaErrorInvalidValue);
    *blocks =
        int(std::min<size_t>(2048 / threads, kMaxSharedBytes / std::max<size_t>(shared_bytes, 1)));
    return cudaSuccess;
}

}  // namespace simulator

cudaError_t cudaDriverGetVersion(int* version) {
    return *version = simulator::kVersion, cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int* version) {
    return *version = simulator::kVersion, cudaSuccess;
}
cudaError_t cudaGetDeviceCount(int* count) { return *count = 1, cudaSuccess; }
cudaError_t cudaGetDevice(int* device) { return *device = 0, cudaSuccess; }
cudaError_t cudaSetDevice(int device) {
    return device == 0 ? cudaSuccess : set_error(cudaErrorInvalidDevice);
}
cudaError_t cudaDeviceReset() { return cudaSuccess; }

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
    if (device != 0) return set_error(cudaErrorInvalidDevice);
    *properties = {};
    std::strcpy(properties->name, "CPU simulation");
    size_t free_bytes = 0;
    cudaMemGetInfo(&free_bytes, &properties->totalGlobalMem);
    properties->major = 9;  // the instructions that it has
    properties->sharedMemPerBlock = simulator::kSharedBytes;
    properties->sharedMemPerBlockOptin = simulator::kMaxSharedBytes;
    properties->sharedMemPerMultiprocessor = simulator::kMaxSharedBytes + 1024;
    properties->multiProcessorCount = simulator::worker_count();
    properties->warpSize = warpSize;
    properties->l2CacheSize = 1 << 20;
    properties->regsPerBlock = properties->regsPerMultiprocessor = 65536;
    properties->maxThreadsPerBlock = simulator::kMaxThreadsPerBlock;
    properties->maxThreadsPerMultiProcessor = 2048;
    const int block[] = {1024, 1024, 64}, grid[] = {INT_MAX, 65535, 65535};
    std::copy(block, block + 3, properties->maxThreadsDim);
    std::copy(grid, grid + 3, properties->maxGridSize);
    return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
    cudaDeviceProp p;
    if (cudaError_t error = cudaGetDeviceProperties(&p, device)) return error;
    switch (attribute) {
        case cudaDevAttrMaxThreadsPerBlock:
            *value = p.maxThreadsPerBlock;
            break;
        case cudaDevAttrMaxSharedMemoryPerBlock:
            *value = int(p.sharedMemPerBlock);
            break;
        case cudaDevAttrClockRate:
        case cudaDevAttrMemoryClockRate:
        case cudaDevAttrGlobalMemoryBusWidth:
            *value = 0;  // it is no GPU's
            break;
        case cudaDevAttrWarpSize:
            *value = p.warpSize;
            break;
        case cudaDevAttrMultiProcessorCount:
            *value = p.multiProcessorCount;
            break;
        case cudaDevAttrL2CacheSize:
            *value = p.l2CacheSize;
            break;
        case cudaDevAttrComputeCapabilityMajor:
            *value = p.major;
            break;
        case cudaDevAttrComputeCapabilityMinor:
            *value = p.minor;
            break;
        case cudaDevAttrMaxSharedMemoryPerBlockOptin:
            *value = int(p.sharedMemPerBlockOptin);
            break;
        case cudaDevAttrClusterLaunch:
            *value = 1;
            break;
        default:
            return set_error(cudaErrorInvalidValue);
    }
    return cudaSuccess;
}
