// CUDA graphs: work that a stream was given while it was captured, done when the graph is launched.
#pragma once

#include <functional>

#include "cuda/driver_types.h"

namespace simulator {

/// Whether `work` was noted for a graph, because `stream` is being captured: then it is not done
/// now. Work of the default stream beside a capture is an error, which ends the capture.
bool noted_for_graph(cudaStream_t stream, const std::function<void()>& work);

}  // namespace simulator
