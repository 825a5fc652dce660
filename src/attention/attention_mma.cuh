// Belongs to bonus_attention, which explains it: what its rungs by mma.sync share, and the last of
// them, mma_staged.
#pragma once

#include "attention/attention.cuh"
#include "demo/contender.cuh"
#include "demo/launch.cuh"
#include "matmul/matmul_mma.cuh"
#include "ptx.cuh"
#include "rows/max_sum.cuh"

namespace attention_mma {

using matmul_mma::swizzled;
using softmax::kLog2E, softmax::kNothing;
using Operands = demo::AttentionOperands;

constexpr int kKeys = 64;                          // rows of K and V in a tile
constexpr int kWarps = 4, kThreads = 32 * kWarps;  // of a block

/// What a warp holds of its kSlabs slabs of 16 rows of Q: the tile's scores, which become weights,
/// and the sums so far. Of every 16 x 8 sums a thread has two pairs of neighbors, in rows lane / 4
/// and lane / 4 + 8: see ptx::mma_m16n8k16. So of each 16 rows it has two.
template <int kSlabs, int D>
struct Rows {
    float s[kSlabs][kKeys / 8][4];
    float o[kSlabs][D / 8][4] = {};  // of weight times v
    float max[kSlabs][2], sum[kSlabs][2] = {};

    __device__ Rows() {
        for (auto& of_16_rows : max) of_16_rows[0] = of_16_rows[1] = kNothing;
    }

    /// s = Q K^T. Lane i names the 16 bytes of a row that ldmatrix loads. mma wants its right
    /// operand in pairs down a column. A column of K^T is a row of K, so K is loaded as it lies.
    __device__ void multiply_keys(const half* Q, const half* K) {
        const int lane = threadIdx.x % 32, q_at = swizzled<D>(lane % 16, lane / 16 * 8);
        const int k_at = swizzled<D>(lane / 16 * 8 + lane % 8, lane / 8 % 2 * 8);
#pragma unroll
        for (int i = 0; i < kSlabs; ++i)
#pragma unroll
            for (int n = 0; n < kKeys / 8; ++n)
                for (float& score : s[i][n]) score = 0;
#pragma unroll
        for (int d = 0; d < D; d += 16) {  // ^ d moves a swizzled place d columns on: D is 2^n
            uint32_t q[kSlabs][4];
#pragma unroll
            for (int i = 0; i < kSlabs; ++i) ptx::ldmatrix_x4(q[i], &Q[(q_at ^ d) + i * 16 * D]);
#pragma unroll
            for (int n = 0; n < kKeys / 8; n += 2) {
                uint32_t k[4];
                ptx::ldmatrix_x4(k, &K[(k_at ^ d) + n * 8 * D]);
#pragma unroll
                for (int i = 0; i < kSlabs; ++i) {
                    ptx::mma_m16n8k16(s[i][n], q[i], k[0], k[1]);
                    ptx::mma_m16n8k16(s[i][n + 1], q[i], k[2], k[3]);
                }
            }
        }
    }

    /// Row r attends to the first keys_of(r) of the tile's keys: the scores of the others go.
    template <class KeysOf>
    __device__ void mask(KeysOf keys_of) {
        const int lane = threadIdx.x % 32;
#pragma unroll
        for (int i = 0; i < kSlabs; ++i)
#pragma unroll
            for (int n = 0; n < kKeys / 8; ++n)
#pragma unroll
                for (int e = 0; e < 4; ++e) {
                    const int row = i * 16 + e / 2 * 8 + lane / 4;
                    if (n * 8 + lane % 4 * 2 + e % 2 >= keys_of(row)) s[i][n][e] = kNothing;
                }
    }

    /// Scores become weights e^(scale (s - max)), and the sums so far are brought to the new
    /// maximum. Four lanes share a row. They exchange its maximum; its sum they keep in parts.
    __device__ void weigh(float scale) {
        const float factor = scale * kLog2E;
#pragma unroll
        for (int i = 0; i < kSlabs; ++i)
#pragma unroll
            for (int r = 0; r < 2; ++r) {
                float most = max[i][r];
#pragma unroll
                for (int n = 0; n < kKeys / 8; ++n)
                    most = fmaxf(most, fmaxf(s[i][n][2 * r], s[i][n][2 * r + 1]));
                for (int lanes = 1; lanes <= 2; lanes *= 2)
                    most = fmaxf(most, __shfl_xor_sync(~0u, most, lanes));
                const float rescale = ptx::ex2_approx((max[i][r] - most) * factor);  // often 1
                const float shift = most * factor;  // so a weight takes one fmaf, and e^x
                max[i][r] = most, sum[i][r] *= rescale;
#pragma unroll
                for (int n = 0; n < kKeys / 8; ++n)
                    for (int e = 2 * r; e < 2 * r + 2; ++e) {
                        s[i][n][e] = ptx::ex2_approx(fmaf(s[i][n][e], factor, -shift));
                        sum[i][r] += s[i][n][e];
                    }
                // Without a new maximum o stays. (For D = 64 the test costs what it saves.)
                if (D == 64 || __any_sync(~0u, rescale != 1))
#pragma unroll
                    for (int n = 0; n < D / 8; ++n)
                        o[i][n][2 * r] *= rescale, o[i][n][2 * r + 1] *= rescale;
            }
    }

    /// o += weights V. Two neighboring 16 x 8 sums are a left operand. V is the right one: a pair
    /// down its column comes from two rows, so ldmatrix transposes.
    __device__ void multiply_values(const half* V) {
        const int lane = threadIdx.x % 32, v_at = swizzled<D>(lane % 16, lane / 16 * 8);
#pragma unroll
        for (int k = 0; k < kKeys; k += 16) {
            uint32_t weights[kSlabs][4];
#pragma unroll
            for (int i = 0; i < kSlabs; ++i)
#pragma unroll
                for (int r = 0; r < 4; ++r) {
                    const float* const pair = &s[i][k / 8 + r / 2][r % 2 * 2];
                    weights[i][r] = ptx::cvt_rn_x2<half>(pair[0], pair[1]);
                }
#pragma unroll
            for (int d = 0; d < D; d += 16) {
                uint32_t v[4];
                ptx::ldmatrix_x4_trans(v, &V[(v_at ^ d) + k * D]);
#pragma unroll
                for (int i = 0; i < kSlabs; ++i) {
                    ptx::mma_m16n8k16(o[i][d / 8], weights[i], v[0], v[1]);
                    ptx::mma_m16n8k16(o[i][d / 8 + 1], weights[i], v[2], v[3]);
                }
            }
        }
    }

    /// Stores o / sum, the first `rows` rows, by way of the warp's rows in Q's tile, where a thread
    /// finds 8 neighbors: 16 bytes in one store.
    __device__ void store(half* Q, half* O, size_t rows) {
        const int lane = threadIdx.x % 32;
#pragma unroll
        for (int i = 0; i < kSlabs; ++i)
#pragma unroll
            for (int r = 0; r < 2; ++r) {
                float total = sum[i][r];
                for (int lanes = 1; lanes <= 2; lanes *= 2)
                    total += __shfl_xor_sync(~0u, total, lanes);
                const float inverse = 1 / total;
                const int row = i * 16 + r * 8 + lane / 4;
#pragma unroll
                for (int n = 0; n < D / 8; ++n)
                    *reinterpret_cast<uint32_t*>(&Q[swizzled<D>(row, n * 8) + lane % 4 * 2]) =
                        ptx::cvt_rn_x2<half>(o[i][n][2 * r] * inverse,
                                             o[i][n][2 * r + 1] * inverse);
            }
        __syncwarp();
        constexpr int kLanes = D / 8;  // for a row
        const int col = lane % kLanes * 8;
        for (int row = lane / kLanes; row < 16 * kSlabs; row += 32 / kLanes)
            if (size_t(row) < rows)
                *reinterpret_cast<uint4*>(&O[row * D + col]) =
                    *reinterpret_cast<uint4*>(&Q[swizzled<D>(row, col)]);
    }
};

template <int D, int kSlabs, int kStages>
struct Shared {
    half Q[kWarps * 16 * kSlabs * D];                   // the block's rows, [rows, D], swizzled
    half K[kStages][kKeys * D], V[kStages][kKeys * D];  // [kKeys, D] each, swizzled
};

/// A block's rows of O. With one stage it waits for each tile; with two it copies the next tiles
/// while it uses these.
template <int D, int kSlabs, int kStages>
__device__ void attend(const Operands& operands) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800  // on Turing registers would be spilled
    const auto [Q, K, V, O, N, scale, causal] = operands;
    extern __shared__ __align__(128) unsigned char memory[];
    auto& shared = *reinterpret_cast<Shared<D, kSlabs, kStages>*>(memory);
    constexpr int kRows = kWarps * 16 * kSlabs;
    // Of a head's blocks those with the most keys come first, so that no long one comes last.
    const size_t blocks = (N + kRows - 1) / kRows, start = blockIdx.x / blocks * N * D;  // the head
    const size_t block_row = (blocks - 1 - blockIdx.x % blocks) * kRows;
    const size_t end = causal ? min(block_row + kRows, N) : N;  // of the block's keys
    const int own = threadIdx.x / 32 * 16 * kSlabs;             // the warp's first row in the block
    const size_t row = block_row + own;
    const int col = threadIdx.x % (D / 8) * 8;  // that this thread copies, and 7 more
    auto copy_tiles = [=, &shared](size_t key) {
        const auto [Q, K, V, O, N, scale, causal] = operands;  // not captured before clang 16
        const size_t stage = key / kKeys % kStages, from = start + key * D + col;
        if (key < end) {
            matmul_mma::cp_async_tile<kKeys, D, kThreads>(shared.K[stage], &K[from], D, N - key);
            matmul_mma::cp_async_tile<kKeys, D, kThreads>(shared.V[stage], &V[from], D, N - key);
        }
        ptx::cp_async_commit_group();
    };
    matmul_mma::cp_async_tile<kRows, D, kThreads>(shared.Q, &Q[start + block_row * D + col], D,
                                                  N - block_row);  // past the head: zeros
    if (kStages == 2) copy_tiles(0);
    Rows<kSlabs, D> rows;
    for (size_t key = 0; key < end; key += kKeys) {
        if (kStages == 1) copy_tiles(key);
        ptx::cp_async_wait_group<0>();
        __syncthreads();  // they are complete, and the tiles before are used up
        if (kStages == 2) copy_tiles(key + kKeys);
        const size_t stage = key / kKeys % kStages;
        if (!causal || key < row + 16 * kSlabs) {  // else all of the warp's rows come before it
            rows.multiply_keys(&shared.Q[own * D], shared.K[stage]);
            if (causal && key + kKeys > row + 1)
                rows.mask([=](int r) { return int(min(row + r + 1, end)) - int(key); });
            else if (key + kKeys > N)
                rows.mask([=](int) { return int(end - key); });
            rows.weigh(scale);
            rows.multiply_values(shared.V[stage]);
        }
        if (kStages == 1) __syncthreads();  // the tiles may be overwritten
    }
    if (row < N) rows.store(&shared.Q[own * D], &O[start + row * D], N - row);
#endif
}

// --- Rung 3 of bonus_attention: tiles that are copied early --------------------------------------
//
// Adds:    a second stage. The next tiles of K and V are copied while these are used.
// Costs:   96 KiB of shared memory for D = 128, where one stage takes 64.
// Limits:  a warp that computes weights multiplies nothing, and the other block fills in only in
//          part: the tensor cores are busy 59% of the time (H200, N = 4096, D = 128). The gain is
//          15% for D = 64; for D = 128 it is 7% at N = 512, and from 8192 on it costs 1 to 2%.
// Source:  Dao, "FlashAttention-2", 2023, arXiv 2307.08691, section 3.
template <int D>
__global__ void __launch_bounds__(kThreads, 2) mma_staged(Operands operands) {
    attend<D, 2, 2>(operands);
}

/// A rung as a contender. kSlabs and kStages are those of `kernel`.
template <int D, int kSlabs, int kStages>
demo::Contender contender_of(const std::string& name, void (*kernel)(Operands),
                             const demo::Attention& a, const demo::Gpu& gpu) {
    constexpr int kRows = kWarps * 16 * kSlabs;
    const size_t bytes = sizeof(Shared<D, kSlabs, kStages>);
    const unsigned int blocks = unsigned((a.shape.N + kRows - 1) / kRows * a.shape.heads());
    const Operands operands = a;
    return {.kernel = name,
            .launch = [=] { kernel<<<blocks, kThreads, bytes>>>(operands); },
            .moved_bytes = 4 * a.Q.bytes(),
            .why_not = gpu.compute_capability < 80 ? "needs compute capability 8.0"
                                                   : demo::try_shared_bytes(kernel, bytes)};
}

/// The last rung.
template <int D>
demo::Contender contender(const demo::Attention& a, const demo::Gpu& gpu) {
    return contender_of<D, 2, 2>("mma_staged", mma_staged<D>, a, gpu);
}

}  // namespace attention_mma
