// CUDA's runtime API and kernel language for a host compiler: the part that the demos use, with
// CUDA's names and meanings. The build includes it in front of every program, as nvcc does.
//
// Kernels run on CPU cores: a block's threads are fibers of one worker thread (blocks.cpp), device
// memory is host memory between guard pages (memory.cpp). A launch is over when it returns, so
// streams have nothing to do and events are plain times.
#pragma once

#define DEMO_CPU_LANE 1
#define __CUDACC__ \
    1  // headers ask it whether they may say __device__; __CUDA_ARCH__ stays undefined

#include <bit>
#include <climits>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <type_traits>

#define __global__
#define __device__
#define __host__
#define __constant__
#define __managed__
#define __grid_constant__
#define __shared__ static thread_local  // a worker has one block at a time
#define __forceinline__ inline __attribute__((always_inline))
#define __align__(bytes) __attribute__((aligned(bytes)))
#define __launch_bounds__(...)
#define __cluster_dims__(...)

// --- Vector types -------------------------------------------------------------------------------

#define DEMO_CPU_VECTOR(T, name, pair, quad)                              \
    struct name##1 {                                                      \
        T x;                                                              \
    };                                                                    \
    struct alignas(pair) name##2 {                                        \
        T x, y;                                                           \
    };                                                                    \
    struct name##3 {                                                      \
        T x, y, z;                                                        \
    };                                                                    \
    struct alignas(quad) name##4 {                                        \
        T x, y, z, w;                                                     \
    };                                                                    \
    constexpr name##1 make_##name##1(T x) { return {x}; }                 \
    constexpr name##2 make_##name##2(T x, T y) { return {x, y}; }         \
    constexpr name##3 make_##name##3(T x, T y, T z) { return {x, y, z}; } \
    constexpr name##4 make_##name##4(T x, T y, T z, T w) { return {x, y, z, w}; }
DEMO_CPU_VECTOR(signed char, char, 2, 4)
DEMO_CPU_VECTOR(unsigned char, uchar, 2, 4)
DEMO_CPU_VECTOR(short, short, 4, 8)
DEMO_CPU_VECTOR(unsigned short, ushort, 4, 8)
DEMO_CPU_VECTOR(int, int, 8, 16)
DEMO_CPU_VECTOR(unsigned int, uint, 8, 16)
DEMO_CPU_VECTOR(long long, longlong, 16, 16)
DEMO_CPU_VECTOR(unsigned long long, ulonglong, 16, 16)
DEMO_CPU_VECTOR(float, float, 8, 16)
DEMO_CPU_VECTOR(double, double, 16, 16)

struct dim3 {
    unsigned int x, y, z;
    constexpr dim3(unsigned int x = 1, unsigned int y = 1, unsigned int z = 1) : x(x), y(y), z(z) {}
    constexpr dim3(uint3 v) : x(v.x), y(v.y), z(v.z) {}
    constexpr operator uint3() const { return {x, y, z}; }
};

extern constinit thread_local uint3 threadIdx, blockIdx;
extern constinit thread_local dim3 blockDim, gridDim;
inline constexpr int warpSize = 32;

// --- The runtime API ----------------------------------------------------------------------------

#define DEMO_CPU_ERRORS(ERROR)                                                      \
    ERROR(cudaSuccess, 0, "no error")                                               \
    ERROR(cudaErrorInvalidValue, 1, "invalid argument")                             \
    ERROR(cudaErrorMemoryAllocation, 2, "out of memory")                            \
    ERROR(cudaErrorInitializationError, 3, "initialization error")                  \
    ERROR(cudaErrorInvalidConfiguration, 9, "invalid configuration argument")       \
    ERROR(cudaErrorInvalidSymbol, 13, "invalid device symbol")                      \
    ERROR(cudaErrorInvalidMemcpyDirection, 21, "invalid copy direction for memcpy") \
    ERROR(cudaErrorInsufficientDriver, 35, "driver too old for this runtime")       \
    ERROR(cudaErrorInvalidDeviceFunction, 98, "invalid device function")            \
    ERROR(cudaErrorNoDevice, 100, "no CUDA-capable device is detected")             \
    ERROR(cudaErrorInvalidDevice, 101, "invalid device ordinal")                    \
    ERROR(cudaErrorNoKernelImageForDevice, 209, "no kernel image for the device")   \
    ERROR(cudaErrorUnsupportedPtxVersion, 222, "PTX of an unsupported toolchain")   \
    ERROR(cudaErrorInvalidResourceHandle, 400, "invalid resource handle")           \
    ERROR(cudaErrorNotReady, 600, "device not ready")                               \
    ERROR(cudaErrorIllegalAddress, 700, "an illegal memory access was encountered") \
    ERROR(cudaErrorLaunchOutOfResources, 701, "too many resources requested")       \
    ERROR(cudaErrorMisalignedAddress, 716, "misaligned address")                    \
    ERROR(cudaErrorLaunchFailure, 719, "unspecified launch failure")                \
    ERROR(cudaErrorNotSupported, 801, "operation not supported")                    \
    ERROR(cudaErrorUnknown, 999, "unknown error")

#define DEMO_CPU_ENUMERATOR(name, value, text) name = value,
enum cudaError_t { DEMO_CPU_ERRORS(DEMO_CPU_ENUMERATOR) };

enum cudaMemcpyKind {
    cudaMemcpyHostToHost,
    cudaMemcpyHostToDevice,
    cudaMemcpyDeviceToHost,
    cudaMemcpyDeviceToDevice,
    cudaMemcpyDefault,
};
enum cudaFuncAttribute {
    cudaFuncAttributeMaxDynamicSharedMemorySize = 8,
    cudaFuncAttributePreferredSharedMemoryCarveout = 9,
};
enum cudaDeviceAttr {
    cudaDevAttrMaxThreadsPerBlock = 1,
    cudaDevAttrMaxSharedMemoryPerBlock = 8,
    cudaDevAttrWarpSize = 10,
    cudaDevAttrClockRate = 13,
    cudaDevAttrMultiProcessorCount = 16,
    cudaDevAttrL2CacheSize = 38,
    cudaDevAttrComputeCapabilityMajor = 75,
    cudaDevAttrComputeCapabilityMinor = 76,
    cudaDevAttrMaxSharedMemoryPerBlockOptin = 97,
    cudaDevAttrClusterLaunch = 120,
};

struct cudaDeviceProp {
    char name[256];
    size_t totalGlobalMem, sharedMemPerBlock, sharedMemPerBlockOptin, sharedMemPerMultiprocessor;
    int major, minor, multiProcessorCount, warpSize, l2CacheSize, regsPerBlock;
    int maxThreadsPerBlock, maxThreadsPerMultiProcessor, maxThreadsDim[3], maxGridSize[3];
};

using cudaStream_t = struct CUstream_st*;
using cudaEvent_t = struct CUevent_st*;
enum { cudaEventDefault = 0, cudaEventBlockingSync = 1, cudaEventDisableTiming = 2 };
enum { cudaStreamDefault = 0, cudaStreamNonBlocking = 1, cudaHostAllocDefault = 0 };

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

namespace demo_cpu {
cudaError_t set_function_attribute(const void* kernel, cudaFuncAttribute attribute, int value);
cudaError_t blocks_per_multiprocessor(int* blocks, int threads, size_t shared_bytes);
}  // namespace demo_cpu

template <class Kernel>
cudaError_t cudaFuncSetAttribute(Kernel* kernel, cudaFuncAttribute attribute, int value) {
    return demo_cpu::set_function_attribute(reinterpret_cast<const void*>(kernel), attribute,
                                            value);
}
template <class Kernel>
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, Kernel, int threads,
                                                          size_t shared_bytes) {
    return demo_cpu::blocks_per_multiprocessor(blocks, threads, shared_bytes);
}

#include "../launch.hpp"
#include "device_functions.hpp"

// --- Launches with attributes: clusters of blocks are refused -----------------------------------

enum cudaLaunchAttributeID { cudaLaunchAttributeClusterDimension = 4 };
union cudaLaunchAttributeValue {
    struct {
        unsigned int x, y, z;
    } clusterDim;
};
struct cudaLaunchAttribute {
    cudaLaunchAttributeID id;
    cudaLaunchAttributeValue val;
};
struct cudaLaunchConfig_t {
    dim3 gridDim, blockDim;
    size_t dynamicSmemBytes = 0;
    cudaStream_t stream = nullptr;
    cudaLaunchAttribute* attrs = nullptr;
    unsigned int numAttrs = 0;
};

template <class... Parameters, class... Arguments>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config, void (*kernel)(Parameters...),
                               Arguments&&... arguments) {
    for (unsigned int i = 0; i < config->numAttrs; ++i) {
        const auto [x, y, z] = config->attrs[i].val.clusterDim;
        if (size_t(x) * y * z > 1) return cudaErrorNotSupported;
    }
    DEMO_LAUNCH((kernel), (config->gridDim, config->blockDim, config->dynamicSmemBytes),
                (std::forward<Arguments>(arguments)...));
    return cudaPeekAtLastError();
}

template <class Kernel>
cudaError_t cudaOccupancyMaxActiveClusters(int*, Kernel, const cudaLaunchConfig_t*) {
    return cudaErrorNotSupported;
}
