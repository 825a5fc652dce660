// CUDA graphs: several launches that the host hands over as one.
#pragma once

#include <functional>

#include "device.cuh"

namespace demo {

/// What enqueue(stream) puts into a stream, recorded once. A call launches it on the default
/// stream.
class Graph {
  public:
    explicit Graph(const std::function<void(cudaStream_t)>& enqueue) {
        cudaStream_t stream = nullptr;
        cudaGraph_t graph = nullptr;
        DEMO_CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
        DEMO_CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
        enqueue(stream);
        DEMO_CHECK(cudaStreamEndCapture(stream, &graph));
        DEMO_CHECK(cudaGraphInstantiate(&executable_, graph, 0));
        DEMO_CHECK(cudaGraphDestroy(graph));
        DEMO_CHECK(cudaStreamDestroy(stream));
    }
    ~Graph() {
        if (executable_) cudaGraphExecDestroy(executable_);
    }
    Graph(const Graph&) = delete;

    void operator()() const { DEMO_CHECK(cudaGraphLaunch(executable_, nullptr)); }

  private:
    cudaGraphExec_t executable_ = nullptr;
};

}  // namespace demo
