// The pair (maximum, sum), and how pairs merge: within a thread, a warp and a block. It belongs to
// 8_softmax, which draws a merge above its kernel `online`. bonus_softmax_rows uses it again.
#pragma once

#include <cuda_runtime.h>

#include <cmath>

#include "ptx.cuh"

namespace softmax {

constexpr float kNothing = -INFINITY;  // the maximum of no numbers
constexpr float kLog2E = 1.44269504f;  // e^x = 2^(x log2 e), and 2^x is one instruction

/// Some elements of a row: their maximum, and the sum of their e^(x - max).
struct MaxSum {
    float max, sum;
};

/// What to subtract: `max`, but 0 if that is -infinity, since -infinity minus itself is NaN.
__device__ inline float shift(float max) { return max == kNothing ? 0 : max; }

/// e^(x - max). Subtract first, then scale: around 1e10, rounding x log2 e is off by up to 512, so
/// that even e^(max - max) would not be 1.
__device__ inline float power(float x, float max) { return ptx::ex2_approx((x - max) * kLog2E); }

/// The rule itself: each sum is rescaled to the larger maximum. bonus_softmax_rows calls it. (The
/// lesson calls the functions below, which find the maximum of all first, so as to rescale once.)
__device__ inline MaxSum merge(MaxSum a, MaxSum b) {
    const float max = fmaxf(a.max, b.max);
    return {max, a.sum * power(a.max, shift(max)) + b.sum * power(b.max, shift(max))};
}

/// Merges the pairs of a warp's 32 threads. All of them get the result, by warp shuffles: lane i
/// reads a register of lane i ^ lanes, without memory or barrier. After 16, 8, 4, 2 and 1 each lane
/// has combined all 32.
__device__ inline MaxSum merge_warp(MaxSum own) {
    float max = own.max;
#pragma unroll
    for (int lanes = 16; lanes > 0; lanes /= 2) max = fmaxf(max, __shfl_xor_sync(~0u, max, lanes));
    float sum = own.sum * power(own.max, shift(max));  // rescaled once: now the sums just add up
#pragma unroll
    for (int lanes = 16; lanes > 0; lanes /= 2) sum += __shfl_xor_sync(~0u, sum, lanes);
    return {max, sum};
}

/// Merges the pairs of a block's threads (up to 32 whole warps). All of them get the result. Each
/// warp writes one pair to shared memory, then every warp merges them all: a single barrier.
/// Alternate `slot` between 0 and 1 to call it again without another barrier in between: the other
/// slot's barrier shows that all have read this one.
__device__ inline MaxSum merge_block(MaxSum own, int slot = 0) {
    __shared__ MaxSum pairs[2][32];
    own = merge_warp(own);
    const unsigned int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    if (lane == 0) pairs[slot][warp] = own;
    __syncthreads();  // every warp's pair is there
    own = lane < blockDim.x / 32 ? pairs[slot][lane] : MaxSum{kNothing, 0};
    return merge_warp(own);
}

}  // namespace softmax
