// Streams and events. All work is done when a call returns, so they order nothing.
#include <chrono>

#include "cuda/cuda_runtime_api.h"
#include "errors.hpp"
#include "memory.hpp"

using simulator::set_error;

struct CUstream_st {};
struct CUevent_st {
    std::chrono::steady_clock::time_point time;
    bool recorded = false;
};

cudaError_t cudaDeviceSynchronize() {
    return simulator::give_access(simulator::Access::kNobody), cudaSuccess;
}

cudaError_t cudaStreamCreate(cudaStream_t* stream) {
    return *stream = new CUstream_st, cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) { return delete stream, cudaSuccess; }

cudaError_t cudaEventCreate(cudaEvent_t* event) { return *event = new CUevent_st, cudaSuccess; }
cudaError_t cudaEventDestroy(cudaEvent_t event) { return delete event, cudaSuccess; }
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t) {
    if (!event) return set_error(cudaErrorInvalidResourceHandle);
    event->time = std::chrono::steady_clock::now();
    event->recorded = true;
    return cudaSuccess;
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
    simulator::give_access(simulator::Access::kNobody);
    return event ? cudaSuccess : set_error(cudaErrorInvalidResourceHandle);
}
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t begin, cudaEvent_t end) {
    if (!begin || !end || !begin->recorded || !end->recorded)
        return set_error(cudaErrorInvalidResourceHandle);
    *milliseconds = std::chrono::duration<float, std::milli>(end->time - begin->time).count();
    return cudaSuccess;
}
