// The words that nvcc adds to C++, for a host compiler.
#pragma once

#define SIMULATOR 1  // for what has to know that it is no GPU

// Headers ask for it before they say __device__.
#define __CUDACC__ 1

// Kernels are those for Hopper (sm_90a), whose instructions ptx_hopper.cuh has.
#define __CUDA_ARCH__ 900
#define __CUDA_ARCH_FEAT_SM90_ALL 1

// As nvcc does for --enable-tile: tile kernels can be compiled.
#define __CUDACC_TILE__ 1

#define __global__
#define __tile_global__  // translate.py has told of it
#define __tile__
#define __device__
#define __host__
#define __constant__
#define __managed__
#define __grid_constant__
#define __forceinline__ inline __attribute__((always_inline))
#define __align__(bytes) __attribute__((aligned(bytes)))
#define __launch_bounds__(...)
#define __cluster_dims__(...)  // translate.py has told of it
