// A device copy: the yardstick of kernels that move data.
#pragma once

#include "data.cuh"

namespace demo {

/// The contender "copy", of as many bytes as `work` must move at least: by a vectorized kernel or
/// by cudaMemcpyAsync, whichever is faster here. `only`: as Contender's.
Contender copy_contender(const Session& session, const Workload& work,
                         const std::string& only = "");

}  // namespace demo
