// Launching with more shared memory than usual, or in clusters.
#pragma once

#include <string>

#include "device.cuh"

namespace demo {

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

}  // namespace demo
