// What clangd reads in front of every program (scripts/compile_commands.py): simulator/cuda in
// place of CUDA's headers, and clang's own CUDA mode, which knows <<< >>> and extern __shared__, so
// that nothing has to be translated. Never compiled into anything.
#pragma once

// In that mode a kernel may only call what is marked for the GPU. So everything is, but for
// operator new, which clang has declared before all headers. What <new> includes comes first, so
// that <new> finds it there already, and marked.
#pragma clang force_cuda_host_device begin
#if __has_include(<bits/exception.h>)  // g++'s library
#include <bits/c++config.h>
#include <bits/exception.h>
#endif
#pragma clang force_cuda_host_device end
#include <new>
#define __CLANG_CUDA_WRAPPERS_NEW           // for clang's own header of that name: it is included
#pragma clang force_cuda_host_device begin  // not ended: it holds for the program that follows

#include "cuda_runtime.h"

#undef __global__
#undef __tile_global__
#define __global__ __attribute__((global))
#define __tile_global__ __attribute__((global))
#define __shared__ __attribute__((shared))

// clang looks one of these up for <<< >>>: the second one since CUDA 9.2.
extern "C" cudaError_t cudaConfigureCall(dim3 grid, dim3 block = {}, size_t shared_bytes = 0,
                                         cudaStream_t stream = nullptr);
extern "C" cudaError_t __cudaPushCallConfiguration(dim3 grid, dim3 block = {},
                                                   size_t shared_bytes = 0,
                                                   cudaStream_t stream = nullptr);
