// The host's side of CUDA's runtime: devices, memory, streams and events.
#pragma once

#include <cstddef>
#include <string>

#include "driver_types.h"

const char* cudaGetErrorName(cudaError_t);
const char* cudaGetErrorString(cudaError_t);
cudaError_t cudaGetLastError();  // and forgets it
cudaError_t cudaPeekAtLastError();

cudaError_t cudaDriverGetVersion(int* version);
cudaError_t cudaRuntimeGetVersion(int* version);
cudaError_t cudaGetDeviceCount(int* count);
cudaError_t cudaGetDevice(int* device);
cudaError_t cudaSetDevice(int device);
inline cudaError_t cudaDeviceCanAccessPeer(int* can, int, int) { return *can = 1, cudaSuccess; }
inline cudaError_t cudaDeviceEnablePeerAccess(int, unsigned int) { return cudaSuccess; }
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device);
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device);
/// Finds a function of the driver API by its name.
enum cudaDriverEntryPointQueryResult {
    cudaDriverEntryPointSuccess = 0,
    cudaDriverEntryPointSymbolNotFound = 1,
};
enum { cudaEnableDefault = 0 };
cudaError_t cudaGetDriverEntryPoint(const char* name, void** function, unsigned long long flags,
                                    cudaDriverEntryPointQueryResult* result = nullptr);

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
namespace simulator {
/// Whether kernels may only read the buffer that this pointer is in. Copies may write to it still.
/// CUDA has no such thing, so calls of it stand under #ifdef SIMULATOR.
void set_read_only(const void* pointer, bool read_only);

/// What the buffer that this pointer is in holds, for messages and traces: its name, the type and
/// how many columns. And an element of one that the program found wrong.
void name_buffer(const void* pointer, const std::string& name, const std::string& type,
                 size_t columns);
#ifdef SIMULATOR_COUNT
void found_wrong(const void* element);
#else
inline void found_wrong(const void*) {}
#endif
}  // namespace simulator
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

cudaError_t cudaStreamCreate(cudaStream_t* stream);
cudaError_t cudaStreamDestroy(cudaStream_t stream);
inline cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned int, int) {
    return cudaStreamCreate(stream);
}
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

// What a stream is given between the first two of these is not done, but noted for the graph.
cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode);
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph);
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* exec, cudaGraph_t graph,
                                 unsigned long long flags = 0);
cudaError_t cudaGraphDestroy(cudaGraph_t graph);
cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream);
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec);
inline cudaError_t cudaEventQuery(cudaEvent_t) { return cudaSuccess; }
