// The device that programs see, and its limits.
#pragma once

#include <cstddef>

#include "cuda/driver_types.h"
#include "launch.hpp"

namespace simulator {

/// Dynamic shared memory per block, in bytes: with cudaFuncSetAttribute(), and without.
inline constexpr size_t kMaxSharedBytes = 227 << 10, kSharedBytes = 48 << 10;

/// The most blocks of a cluster, where the kernel says so with
/// cudaFuncAttributeNonPortableClusterSizeAllowed, and otherwise.
inline constexpr unsigned int kMaxClusterBlocks = 16, kClusterBlocks = 8;

/// What CUDA says of such a launch: cudaSuccess where nothing is wrong with its configuration.
cudaError_t check_launch(const void* kernel, const Launch& launch);

cudaError_t set_function_attribute(const void* kernel, cudaFuncAttribute attribute, int value);
cudaError_t blocks_per_multiprocessor(int* blocks, int threads, size_t shared_bytes);
cudaError_t clusters_at_once(int* clusters, const cudaLaunchConfig_t* config);

/// The blocks of a cluster that a launch's attributes ask for.
unsigned int cluster_of(const cudaLaunchConfig_t& config);

}  // namespace simulator
