// fused_mma: the suite's fastest fused gating on GPUs other than Hopper, of any shape but the
// talk's (K and H multiples of 8). It belongs to bonus_gating_mma, which explains it; lesson 6 and
// bonus_benchmark_fused run it too.
#pragma once

#include "gating/gating.cuh"
#include "matmul/matmul_mma.cuh"

namespace gating_mma {

using namespace matmul_mma;  // the main loop, and how its tiles lie in shared memory

/// sigmoid(v1) * v2. 1.44 = log2(e): the GPU has an instruction for 2^x, and none for e^x.
__device__ inline float gate(float v1, float v2) {
    return v2 * ptx::rcp_approx(1.0f + ptx::ex2_approx(-1.44269504f * v1));
}

/// The gates of two neighbors in a row, as fp16.
__device__ inline uint32_t gate_pair(const float* v1, const float* v2) {
    return ptx::cvt_rn_x2<half>(gate(v1[0], v2[0]), gate(v1[1], v2[1]));
}

/// Transposes a 4 x 4 matrix of pairs, of which each of four neighboring threads t holds a row:
///
///     v[j]: columns 8 j + 2 t, 8 j + 2 t + 1     ->     v[j]: columns 8 t + 2 j, 8 t + 2 j + 1
///
/// mma leaves a thread with scattered pairs; afterwards it has 8 neighbors, 16 bytes to store.
__device__ inline void transpose_in_four(uint32_t (&v)[4]) {
#pragma unroll
    for (int distance = 1; distance <= 2; distance *= 2)
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            if (i & distance) continue;
            const bool upper = threadIdx.x & distance;
            const uint32_t got = __shfl_xor_sync(~0u, upper ? v[i] : v[i + distance], distance);
            v[i] = upper ? got : v[i];
            v[i + distance] = upper ? v[i + distance] : got;
        }
}

/// A block computes [kM, kN / 2] of out. The left half of its tile of weights is of W1, the right
/// half of W2, and each warp multiplies by the same 32 columns of both. So a thread holds both sums
/// of an element: sums[i][j] and sums[i][j + 4].
template <class T>
__global__ void __launch_bounds__(T::kThreads, 256 / T::kThreads)
    fused_mma(const half* x,   // [M, K] row-major
              const half* W1,  // [K, H] row-major
              const half* b1,  // [H]
              const half* W2,  // [K, H] row-major
              const half* b2,  // [H]
              half* out,       // [M, H] row-major
              size_t M, size_t K, size_t H) {
    extern __shared__ __align__(128) unsigned char shared[];
    const uint2 position = block_position((M + T::kM - 1) / T::kM, (2 * H + T::kN - 1) / T::kN);
    const size_t block_row = size_t(position.y) * T::kM, block_col = size_t(position.x) * T::kN / 2;
    const int lane = threadIdx.x % 32;
    const size_t row = block_row + T::warp_row() + lane / 4;  // the first of this thread's
    const size_t col = block_col + T::warp_col() / 2;         // the warp's first

    Sums sums;  // they begin as the biases
#pragma unroll
    for (int j = 0; j < 4; ++j)
#pragma unroll
        for (int e = 0; e < 4; ++e) {
            const size_t c = col + j * 8 + lane % 4 * 2 + e % 2;
            const float bias1 = c < H ? float(b1[c]) : 0, bias2 = c < H ? float(b2[c]) : 0;
#pragma unroll
            for (int i = 0; i < kWarp / 16; ++i) sums[i][j][e] = bias1, sums[i][j + 4][e] = bias2;
        }

    const int c = T::copied_col();
    const size_t copied_col = block_col + c % (T::kN / 2);
    multiply<T, true>(sums, reinterpret_cast<typename T::Stage*>(shared), K, &x[block_row * K], K,
                      M - block_row, &(c < T::kN / 2 ? W1 : W2)[copied_col], H, copied_col < H);

#pragma unroll
    for (int i = 0; i < kWarp / 16; ++i)
#pragma unroll
        for (int e = 0; e < 4; e += 2) {
            uint32_t v[4];
#pragma unroll
            for (int j = 0; j < 4; ++j) v[j] = gate_pair(&sums[i][j][e], &sums[i][j + 4][e]);
            transpose_in_four(v);
            const size_t r = row + i * 16 + e / 2 * 8, c = col + lane % 4 * 8;
            if (r < M && c < H)  // __stcs: nobody reads it again, so no cache need keep it
                __stcs(reinterpret_cast<uint4*>(&out[r * H + c]),
                       make_uint4(v[0], v[1], v[2], v[3]));
        }
}

/// Prepares a launch, with the tiles that suit the GPU and the shape.
inline std::function<void()> prepare_fused_mma(const demo::GatingOperands& g,
                                               const demo::Gpu& gpu) {
    return with_tiles(gpu, g.M, 2 * g.H, [&]<class T>(T) {
        demo::allow_shared_bytes(fused_mma<T>, T::kSharedBytes);
        return std::function<void()>([g] {
            fused_mma<T><<<T::blocks(g.M, 2 * g.H), T::kThreads, T::kSharedBytes>>>(
                g.x, g.W1, g.b1, g.W2, g.b2, g.out, g.M, g.K, g.H);
        });
    });
}

inline demo::Contender contender(const demo::Gating& g, const demo::Gpu& gpu) {
    return g.fused_prepared("fused_mma", [&] { return prepare_fused_mma(g, gpu); });
}

}  // namespace gating_mma
