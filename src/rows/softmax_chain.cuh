// Softmax as a framework runs it eagerly, with one kernel per operation: max, subtract, exp, sum,
// divide. It belongs to 8_softmax.
#pragma once

#include <algorithm>

#include "rows/max_sum.cuh"

namespace softmax {

constexpr int kChainThreads = 256;

/// A block per row. Maxima and sums are fp32 whatever T is: a sum of 131072 terms exceeds fp16.
template <class T>
__global__ void row_max(const T* x, float* max, size_t rows, size_t cols) {
    for (size_t row = blockIdx.x; row < rows; row += gridDim.x) {
        float own = kNothing;
        for (size_t col = threadIdx.x; col < cols; col += blockDim.x)
            own = fmaxf(own, float(x[row * cols + col]));
        const MaxSum whole = merge_block({own, 0});
        if (threadIdx.x == 0) max[row] = whole.max;
        __syncthreads();  // merge_block's memory may be used again
    }
}

template <class T>
__global__ void row_sum(const T* e, float* sum, size_t rows, size_t cols) {
    for (size_t row = blockIdx.x; row < rows; row += gridDim.x) {
        float own = 0;
        for (size_t col = threadIdx.x; col < cols; col += blockDim.x)
            own += float(e[row * cols + col]);
        const MaxSum whole = merge_block({0, own});  // with equal maxima, merging is adding
        if (threadIdx.x == 0) sum[row] = whole.sum;
        __syncthreads();  // merge_block's memory may be used again
    }
}

template <class T>
__global__ void subtract(const T* x, const float* max, T* t, size_t size, size_t cols) {
    const size_t i = size_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i < size) t[i] = T(float(x[i]) - max[i / cols]);
}

template <class T>
__global__ void exponential(const T* t, T* e, size_t size) {
    const size_t i = size_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i < size) e[i] = T(expf(float(t[i])));
}

template <class T>
__global__ void divide(const T* e, const float* sum, T* out, size_t size, size_t cols) {
    const size_t i = size_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i < size) out[i] = T(float(e[i]) / sum[i / cols]);
}

/// out = softmax of each row of x. x, temporary, out: [rows, cols] row-major; max, sum: [rows].
template <class T>
void chain(const T* x, T* temporary, float* max, float* sum, T* out, size_t rows, size_t cols) {
    const size_t size = rows * cols, blocks = (size + kChainThreads - 1) / kChainThreads;
    const size_t row_blocks = std::min<size_t>(rows, 1 << 24);
    row_max<T><<<row_blocks, kChainThreads>>>(x, max, rows, cols);
    subtract<T><<<blocks, kChainThreads>>>(x, max, out, size, cols);
    exponential<T><<<blocks, kChainThreads>>>(out, temporary, size);
    row_sum<T><<<row_blocks, kChainThreads>>>(temporary, sum, rows, cols);
    divide<T><<<blocks, kChainThreads>>>(temporary, sum, out, size, cols);
}

}  // namespace softmax
