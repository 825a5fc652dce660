// Belongs to lesson 12, 12_mlp: gelu of a number; and the chain's kernel, for a matrix.
#pragma once

#include "demo.cuh"
#include "demo/rows.cuh"
#include "ptx.cuh"

namespace mlp {

/// v (1 + tanh(0.79788456 (v + 0.044715 v^3))) / 2: tanh is one instruction.
__device__ float gelu_of(float v) {
    const float t = ptx::tanh_approx(v * (0.79788456f + 0.035677408f * v * v));
    return 0.5f * v + 0.5f * v * t;
}

using demo::Vector;  // 16 bytes, 8 numbers

__global__ void gelu(const Vector<half>* v, Vector<half>* h, size_t vectors) {
    const size_t i = size_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i >= vectors) return;
    Vector<half> numbers = v[i];
    for (half& number : numbers.at) number = __float2half(gelu_of(__half2float(number)));
    h[i] = numbers;
}

inline void launch_gelu(const half* v, half* h, size_t size, cudaStream_t stream) {
    const size_t vectors = size / Vector<half>::kSize;  // rows are multiples of 16 numbers
    gelu<<<(vectors + 255) / 256, 256, 0, stream>>>(reinterpret_cast<const Vector<half>*>(v),
                                                    reinterpret_cast<Vector<half>*>(h), vectors);
}

}  // namespace mlp
