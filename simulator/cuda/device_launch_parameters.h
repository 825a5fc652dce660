// Where a kernel's thread is in its grid (current_thread.cpp has it, scheduler.cpp sets it).
#pragma once

#include "vector_types.h"

extern constinit thread_local uint3 threadIdx, blockIdx;
extern constinit thread_local dim3 blockDim, gridDim;
inline constexpr int warpSize = 32;
