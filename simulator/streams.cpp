// Streams, events and graphs. All work is done when a call returns, so streams order nothing.
#include <chrono>
#include <vector>

#include "cuda/cuda_runtime_api.h"
#include "errors.hpp"
#include "graphs.hpp"
#include "memory.hpp"

using simulator::set_error;

struct CUstream_st {};
struct CUgraph_st {
    std::vector<std::function<void()>> work;
};
struct CUgraphExec_st : CUgraph_st {};
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

// --- Graphs -------------------------------------------------------------------------------------

namespace {

cudaStream_t captured = nullptr;  // one at a time, as demos need it
bool is_invalid = false;
CUgraph_st capture;

}  // namespace

bool simulator::noted_for_graph(cudaStream_t stream, const std::function<void()>& work) {
    if (!captured) return false;
    if (!stream) return set_error(cudaErrorStreamCaptureImplicit), is_invalid = true;
    if (stream == captured) capture.work.push_back(work);
    return stream == captured;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
    if (!stream || captured) return set_error(cudaErrorNotSupported);
    captured = stream, is_invalid = false;
    return capture.work.clear(), cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
    if (!captured || stream != captured) return set_error(cudaErrorStreamCaptureUnmatched);
    captured = nullptr;
    if (is_invalid) return set_error(cudaErrorStreamCaptureInvalidated);
    return *graph = new CUgraph_st(capture), cudaSuccess;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* exec, cudaGraph_t graph, unsigned long long) {
    return *exec = new CUgraphExec_st{*graph}, cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) { return delete graph, cudaSuccess; }
cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream) {
    if (!exec) return set_error(cudaErrorInvalidValue);
    for (const auto& work : exec->work)
        if (!simulator::noted_for_graph(stream, work)) work();
    return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) { return delete exec, cudaSuccess; }
