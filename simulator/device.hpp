// The device that programs see, and its limits.
#pragma once

#include <cstddef>

#include "cuda/driver_types.h"

namespace simulator {

/// Dynamic shared memory per block, in bytes: with cudaFuncSetAttribute(), and without.
inline constexpr size_t kMaxSharedBytes = 99 << 10, kSharedBytes = 48 << 10;

/// What CUDA says of such a launch: cudaSuccess where nothing is wrong with its configuration.
cudaError_t check_launch(const void* kernel, dim3 grid, dim3 block, size_t shared_bytes);

cudaError_t set_function_attribute(const void* kernel, cudaFuncAttribute attribute, int value);
cudaError_t blocks_per_multiprocessor(int* blocks, int threads, size_t shared_bytes);

}  // namespace simulator
