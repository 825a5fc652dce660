// The types of CUDA's runtime API: errors, streams, events, what a device tells of itself.
#pragma once

#include <cstddef>

#include "vector_types.h"

#define SIMULATOR_ERRORS(ERROR)                                                     \
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
    ERROR(cudaErrorStreamCaptureInvalidated, 901, "the capture has failed")         \
    ERROR(cudaErrorStreamCaptureUnmatched, 905, "no capture of this stream")        \
    ERROR(cudaErrorStreamCaptureImplicit, 906, "work beside a capture")             \
    ERROR(cudaErrorInvalidClusterSize, 912, "cluster misconfiguration")             \
    ERROR(cudaErrorUnknown, 999, "unknown error")

#define SIMULATOR_ENUMERATOR(name, value, text) name = value,
enum cudaError_t { SIMULATOR_ERRORS(SIMULATOR_ENUMERATOR) };

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
    cudaFuncAttributeNonPortableClusterSizeAllowed = 14,
};
/// Static shared memory is not known here before a block runs: it counts as none.
struct cudaFuncAttributes {
    size_t sharedSizeBytes = 0;
};
enum cudaDeviceAttr {
    cudaDevAttrMaxThreadsPerBlock = 1,
    cudaDevAttrMaxSharedMemoryPerBlock = 8,
    cudaDevAttrWarpSize = 10,
    cudaDevAttrClockRate = 13,
    cudaDevAttrMultiProcessorCount = 16,
    cudaDevAttrMemoryClockRate = 36,
    cudaDevAttrGlobalMemoryBusWidth = 37,
    cudaDevAttrL2CacheSize = 38,
    cudaDevAttrComputeCapabilityMajor = 75,
    cudaDevAttrComputeCapabilityMinor = 76,
    cudaDevAttrMaxSharedMemoryPerBlockOptin = 97,
    cudaDevAttrClusterLaunch = 120,
};

struct cudaDeviceProp {
    char name[256];
    size_t totalGlobalMem, sharedMemPerBlock, sharedMemPerBlockOptin, sharedMemPerMultiprocessor;
    int major, minor, multiProcessorCount, warpSize, l2CacheSize;
    int regsPerBlock, regsPerMultiprocessor;
    int maxThreadsPerBlock, maxThreadsPerMultiProcessor, maxThreadsDim[3], maxGridSize[3];
};

using cudaStream_t = struct CUstream_st*;
using cudaEvent_t = struct CUevent_st*;
enum { cudaEventDefault = 0, cudaEventBlockingSync = 1, cudaEventDisableTiming = 2 };
enum { cudaStreamDefault = 0, cudaStreamNonBlocking = 1, cudaHostAllocDefault = 0 };
using cudaGraph_t = struct CUgraph_st*;
using cudaGraphExec_t = struct CUgraphExec_st*;
enum cudaStreamCaptureMode { cudaStreamCaptureModeGlobal = 0 };

enum cudaLaunchAttributeID {
    cudaLaunchAttributeClusterDimension = 4,
    cudaLaunchAttributeProgrammaticStreamSerialization = 6,
};
union cudaLaunchAttributeValue {
    struct {
        unsigned int x, y, z;
    } clusterDim;
    int programmaticStreamSerializationAllowed;
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
