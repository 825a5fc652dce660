#include "current_thread.hpp"

#include "call_site.hpp"
#include "cuda/device_launch_parameters.h"

constinit thread_local uint3 threadIdx{}, blockIdx{};
constinit thread_local dim3 blockDim, gridDim;

namespace simulator {

constinit thread_local const Launch* running_launch = nullptr;
constinit thread_local unsigned int running_rank = 0;

std::string running_thread() {
    if (!running_launch) return "";
    return "kernel " + running_launch->name() + ", block " + text(blockIdx) + ", thread " +
           text(threadIdx);
}

}  // namespace simulator
