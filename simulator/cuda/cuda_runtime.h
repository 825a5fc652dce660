// CUDA's runtime API and kernel language for a host compiler: the part that the demos use, with
// CUDA's names and meanings. The build includes it in front of every program, as nvcc does.
//
// Kernels run on CPU cores: a block's threads are fibers of one worker thread (scheduler.cpp),
// device memory is host memory between guard pages (memory.cpp). A launch is over when it returns,
// so streams have nothing to do and events are plain times.
#pragma once

#include <bit>
#include <climits>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <type_traits>
#include <utility>

#include "../device.hpp"
#include "../launch.hpp"
#include "cuda_runtime_api.h"
#include "device_functions.h"
#include "device_launch_parameters.h"
#include "driver_types.h"
#include "host_defines.h"
#include "vector_types.h"

template <class T>
cudaError_t cudaMalloc(T** pointer, size_t bytes, const char* file = __builtin_FILE(),
                       int line = __builtin_LINE()) {
    return cudaMalloc(reinterpret_cast<void**>(pointer), bytes, file, line);
}
template <class T>
cudaError_t cudaMallocHost(T** pointer, size_t bytes, const char* file = __builtin_FILE(),
                           int line = __builtin_LINE()) {
    return cudaMallocHost(reinterpret_cast<void**>(pointer), bytes, file, line);
}
template <class T>
cudaError_t cudaHostAlloc(T** pointer, size_t bytes, unsigned int) {
    return cudaMallocHost(pointer, bytes);
}
template <class T>
cudaError_t cudaMallocAsync(T** pointer, size_t bytes, cudaStream_t) {
    return cudaMalloc(pointer, bytes);
}
template <class T>
cudaError_t cudaMemcpyToSymbol(T& symbol, const void* from, size_t bytes, size_t offset = 0,
                               cudaMemcpyKind = cudaMemcpyHostToDevice) {
    if (offset + bytes > sizeof(T)) return cudaErrorInvalidValue;
    std::memcpy(reinterpret_cast<char*>(&symbol) + offset, from, bytes);
    return cudaSuccess;
}
template <class T>
cudaError_t cudaMemcpyFromSymbol(void* to, const T& symbol, size_t bytes, size_t offset = 0,
                                 cudaMemcpyKind = cudaMemcpyDeviceToHost) {
    if (offset + bytes > sizeof(T)) return cudaErrorInvalidValue;
    std::memcpy(to, reinterpret_cast<const char*>(&symbol) + offset, bytes);
    return cudaSuccess;
}

template <class Kernel>
cudaError_t cudaFuncSetAttribute(Kernel* kernel, cudaFuncAttribute attribute, int value) {
    return simulator::set_function_attribute(reinterpret_cast<const void*>(kernel), attribute,
                                             value);
}
template <class Kernel>
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, Kernel*) {
    *attributes = {};
    return cudaSuccess;
}
template <class Kernel>
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, Kernel, int threads,
                                                          size_t shared_bytes) {
    return simulator::blocks_per_multiprocessor(blocks, threads, shared_bytes);
}

/// What SIMULATOR_LAUNCH makes of kernel<<<...>>>, with clusters.
template <class... Parameters, class... Arguments>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config, void (*kernel)(Parameters...),
                               Arguments&&... arguments) {
    simulator::Launch launch("(kernel)", "", __FILE__, __LINE__, config->gridDim, config->blockDim,
                             config->dynamicSmemBytes, config->stream);
    launch.cluster = simulator::cluster_of(*config);
    simulator::launch(
        launch, kernel, [&](const auto&... parameters) { kernel(parameters...); },
        std::forward<Arguments>(arguments)...);
    return cudaPeekAtLastError();
}

template <class Kernel>
cudaError_t cudaOccupancyMaxActiveClusters(int* clusters, Kernel,
                                           const cudaLaunchConfig_t* config) {
    return simulator::clusters_at_once(clusters, config);
}
