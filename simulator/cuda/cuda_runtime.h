// CUDA's runtime API and kernel language for a host compiler: the part that the demos use, with
// CUDA's names and meanings. The build includes it in front of every program, as nvcc does.
//
// Kernels run on CPU cores: a block's threads are fibers of one worker thread (blocks.cpp), device
// memory is host memory between guard pages (memory.cpp). A launch is over when it returns, so
// streams have nothing to do and events are plain times.
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
#include "device_functions.h"
#include "device_launch_parameters.h"
#include "driver_types.h"
#include "host_defines.h"
#include "vector_types.h"

const char* cudaGetErrorName(cudaError_t);
const char* cudaGetErrorString(cudaError_t);
cudaError_t cudaGetLastError();  // and forgets it
cudaError_t cudaPeekAtLastError();

cudaError_t cudaDriverGetVersion(int* version);
cudaError_t cudaRuntimeGetVersion(int* version);
cudaError_t cudaGetDeviceCount(int* count);
cudaError_t cudaGetDevice(int* device);
cudaError_t cudaSetDevice(int device);
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device);
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device);
cudaError_t cudaDeviceSynchronize();
cudaError_t cudaDeviceReset();

// `file` and `line`, which CUDA does not have, tell later which buffer a kernel overran.
cudaError_t cudaMalloc(void** pointer, size_t bytes, const char* file = __builtin_FILE(),
                       int line = __builtin_LINE());
cudaError_t cudaMallocHost(void** pointer, size_t bytes, const char* file = __builtin_FILE(),
                           int line = __builtin_LINE());
cudaError_t cudaFree(void* pointer);
cudaError_t cudaFreeHost(void* pointer);
cudaError_t cudaMemGetInfo(size_t* free_bytes, size_t* total_bytes);
cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind);
cudaError_t cudaMemcpy2D(void* to, size_t to_pitch, const void* from, size_t from_pitch,
                         size_t width, size_t height, cudaMemcpyKind kind);  // pitches in bytes
cudaError_t cudaMemset(void* pointer, int value, size_t bytes);

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
inline cudaError_t cudaFreeAsync(void* pointer, cudaStream_t) { return cudaFree(pointer); }
inline cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind,
                                   cudaStream_t = nullptr) {
    return cudaMemcpy(to, from, bytes, kind);
}
inline cudaError_t cudaMemcpy2DAsync(void* to, size_t to_pitch, const void* from, size_t from_pitch,
                                     size_t width, size_t height, cudaMemcpyKind kind,
                                     cudaStream_t = nullptr) {
    return cudaMemcpy2D(to, to_pitch, from, from_pitch, width, height, kind);
}
inline cudaError_t cudaMemsetAsync(void* pointer, int value, size_t bytes, cudaStream_t = nullptr) {
    return cudaMemset(pointer, value, bytes);
}
inline cudaError_t cudaCtxResetPersistingL2Cache() { return cudaSuccess; }  // there is no cache
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

cudaError_t cudaStreamCreate(cudaStream_t* stream);
cudaError_t cudaStreamDestroy(cudaStream_t stream);
inline cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned int) {
    return cudaStreamCreate(stream);
}
inline cudaError_t cudaStreamSynchronize(cudaStream_t) { return cudaDeviceSynchronize(); }
inline cudaError_t cudaStreamWaitEvent(cudaStream_t, cudaEvent_t, unsigned int = 0) {
    return cudaSuccess;
}

cudaError_t cudaEventCreate(cudaEvent_t* event);
cudaError_t cudaEventDestroy(cudaEvent_t event);
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t = nullptr);
cudaError_t cudaEventSynchronize(cudaEvent_t event);
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t begin, cudaEvent_t end);
inline cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned int) {
    return cudaEventCreate(event);
}
inline cudaError_t cudaEventQuery(cudaEvent_t) { return cudaSuccess; }

template <class Kernel>
cudaError_t cudaFuncSetAttribute(Kernel* kernel, cudaFuncAttribute attribute, int value) {
    return simulator::set_function_attribute(reinterpret_cast<const void*>(kernel), attribute,
                                             value);
}
template <class Kernel>
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, Kernel, int threads,
                                                          size_t shared_bytes) {
    return simulator::blocks_per_multiprocessor(blocks, threads, shared_bytes);
}

// Clusters of blocks are refused.
template <class... Parameters, class... Arguments>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config, void (*kernel)(Parameters...),
                               Arguments&&... arguments) {
    for (unsigned int i = 0; i < config->numAttrs; ++i) {
        const auto [x, y, z] = config->attrs[i].val.clusterDim;
        if (size_t(x) * y * z > 1) return cudaErrorNotSupported;
    }
    SIMULATOR_LAUNCH((kernel), (config->gridDim, config->blockDim, config->dynamicSmemBytes),
                     (std::forward<Arguments>(arguments)...));
    return cudaPeekAtLastError();
}

template <class Kernel>
cudaError_t cudaOccupancyMaxActiveClusters(int*, Kernel, const cudaLaunchConfig_t*) {
    return cudaErrorNotSupported;
}
