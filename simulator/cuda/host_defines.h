// The words that nvcc adds to C++, for a host compiler.
#pragma once

#define SIMULATOR 1  // for what has to know that it is no GPU

// Headers ask for it before they say __device__. __CUDA_ARCH__ stays undefined.
#define __CUDACC__ 1

#define __global__
#define __device__
#define __host__
#define __constant__
#define __managed__
#define __grid_constant__
#define __shared__ static thread_local  // a worker has one block at a time
#define __forceinline__ inline __attribute__((always_inline))
#define __align__(bytes) __attribute__((aligned(bytes)))
#define __launch_bounds__(...)
#define __cluster_dims__(...)
