// Which thread of which kernel runs on this thread of the host.
#pragma once

#include <string>

#include "launch.hpp"

namespace simulator {

/// Null outside of kernels. The block and the thread are blockIdx and threadIdx.
extern constinit thread_local const Launch* running_launch;

/// The block's rank in its cluster.
extern constinit thread_local unsigned int running_rank;

/// "kernel K, block (0,0,0), thread (0,0,0)"; empty outside of kernels.
std::string running_thread();

}  // namespace simulator
