// The record of fp16 matmuls on GPUs other than Hopper, mma_ptx, and its parts, which the portable
// gating kernels use too. bonus_matmul_mma builds it up step by step, and explains it.
#pragma once

#include <functional>

#include "demo.cuh"
#include "ptx.cuh"

namespace matmul_mma {

constexpr int kDepth = 64;  // k of a stage
constexpr int kWarp = 64;   // a warp computes 64 x 64 of C: 4 x 8 products of 16 x 8
constexpr int kChunk = 8;   // halfs in 16 bytes, the unit of copies and of the swizzle

/// A thread's part of a warp's 64 x 64 sums. ptx::mma_m16n8k16 says which elements these are.
using Sums = float[kWarp / 16][kWarp / 8][4];

/// The tiles of a block, and its stages in shared memory.
template <int kRows, int kColumns, int kStageCount>
struct Tiles {
    static constexpr int kM = kRows, kN = kColumns, kStages = kStageCount;
    static constexpr int kThreads = 32 * (kM / kWarp) * (kN / kWarp);
    struct Stage {
        half A[kM * kDepth];  // [kM, kDepth], swizzled
        half B[kDepth * kN];  // [kDepth, kN], swizzled
    };

    static constexpr size_t kSharedBytes = kStages * sizeof(Stage);

    /// How many of them cover a matrix [M, N].
    static size_t blocks(size_t M, size_t N) { return ((M + kM - 1) / kM) * ((N + kN - 1) / kN); }
    /// Where this thread's warp stands in the block's tile of C.
    __device__ static int warp_row() { return int(threadIdx.x) / 32 / (kN / kWarp) * kWarp; }
    __device__ static int warp_col() { return int(threadIdx.x) / 32 % (kN / kWarp) * kWarp; }
    /// Which column of B's tile is the first that this thread copies.
    __device__ static int copied_col() { return int(threadIdx.x) % (kN / kChunk) * kChunk; }
};

/// Where [row, col] lies in a swizzled tile; `col` is a multiple of kChunk. Rows below each other
/// begin in the same bank. So each keeps its chunks in an order of its own: chunk c lies in place
/// c ^ (row % 8), and 8 rows, which is what ldmatrix reads at a time, lie in all 32 banks.
template <int kColumns>
__device__ int swizzled(int row, int col) {
    static_assert(kColumns % 64 == 0);
    return row * kColumns + ((col / kChunk) ^ (row % 8)) * kChunk;
}

/// Starts the asynchronous copy of a tile [kRows, kColumns]. Each thread takes one column of
/// chunks, and of that every kStep-th row. `from` is its chunk in the tile's first row; the matrix
/// has `rows` more rows from there on: what lies below becomes 0.
template <int kRows, int kColumns, int kThreads>
__device__ void cp_async_tile(half* to, const half* from, size_t pitch, size_t rows) {
    constexpr int kChunks = kColumns / kChunk, kStep = kThreads / kChunks;
    const int row = threadIdx.x / kChunks, col = threadIdx.x % kChunks * kChunk;
    const int below = int(min(rows, size_t(kRows))) - row;
    from += row * pitch;
#pragma unroll ptx::kCopiesInARow
    for (int i = 0; i < kRows; i += kStep, from += kStep * pitch)
        ptx::cp_async_16(&to[swizzled<kColumns>(row + i, col)], from, i < below);
}

/// The main loop: sums += A[kM, K] B[K, kN] for the warp's part of the block's tile: 64 columns of
/// B, or with kHalves 32 of its tile's left half and the same 32 of the right one.
template <class T, bool kHalves = false>
__device__ void multiply(Sums& sums, typename T::Stage* stages, size_t K,
                         const half* A,  // the block's first row, of `rows`
                         size_t A_pitch, size_t rows,
                         const half* B,  // the first row, at the thread's copied_col() ...
                         size_t B_pitch, bool inside) {  // ... which may lie outside of B
    constexpr int kSteps = kDepth / 16;
    const int lane = threadIdx.x % 32;

    // Tile t of A and of B, into a stage. Past the last tile, zeros.
    const int k_copied = threadIdx.x % (kDepth / kChunk) * kChunk;  // the thread's column of A
    auto copy = [&](typename T::Stage& stage, size_t t) {
        const size_t k = t * kDepth;
        cp_async_tile<T::kM, kDepth, T::kThreads>(stage.A, &A[k + k_copied], A_pitch,
                                                  k + k_copied < K ? rows : 0);
        cp_async_tile<kDepth, T::kN, T::kThreads>(stage.B, &B[k * B_pitch], B_pitch,
                                                  inside && k < K ? K - k : 0);
        ptx::cp_async_commit_group();
    };

    // Fragments for two steps of k: one is multiplied while the other is loaded. Lane i names row
    // i % 16 of a 16 x 16 tile, and its left or right half.
    uint32_t a[2][kWarp / 16][4], b[2][kWarp / 16][4];
    int a_at[kSteps], b_at[kWarp / 16];  // where the lane's rows lie in a stage
#pragma unroll
    for (int k = 0; k < kSteps; ++k)
        a_at[k] = swizzled<kDepth>(T::warp_row() + lane % 16, k * 16 + lane / 16 * kChunk);
#pragma unroll
    for (int j = 0; j < kWarp / 16; ++j) {
        const int col =
            kHalves ? T::warp_col() / 2 + j / 2 * (T::kN / 2) + j % 2 * 16 : T::warp_col() + j * 16;
        b_at[j] = swizzled<T::kN>(lane % 16, col + lane / 16 * kChunk);
    }
    auto load = [&](const typename T::Stage& stage, int k) {
#pragma unroll
        for (int i = 0; i < kWarp / 16; ++i)
            ptx::ldmatrix_x4(a[k % 2][i], &stage.A[a_at[k] + i * 16 * kDepth]);
#pragma unroll
        for (int j = 0; j < kWarp / 16; ++j)
            ptx::ldmatrix_x4_trans(b[k % 2][j], &stage.B[b_at[j] + k * 16 * T::kN]);
    };

    for (int t = 0; t < T::kStages - 1; ++t) copy(stages[t], t);
    ptx::cp_async_wait_group<T::kStages - 2>();
    __syncthreads();  // tile 0 is complete
    load(stages[0], 0);

    int reading = 0, writing = T::kStages - 1;  // stages
#pragma unroll 1
    for (size_t t = 0; t * kDepth < K; ++t) {
#pragma unroll
        for (int k = 0; k < kSteps; ++k) {
            if (k + 1 == kSteps) {  // the next fragments are the next tile's
                ptx::cp_async_wait_group<T::kStages - 2>();
                __syncthreads();  // it is complete, and nobody needs this one any more
                reading = reading + 1 == T::kStages ? 0 : reading + 1;
            }
            load(stages[reading], (k + 1) % kSteps);
            if (k == 0) {
                copy(stages[writing], t + T::kStages - 1);
                writing = writing + 1 == T::kStages ? 0 : writing + 1;
            }
#pragma unroll
            for (int i = 0; i < kWarp / 16; ++i)
#pragma unroll
                for (int n = 0; n < kWarp / 8; ++n) {
                    const int j = i % 2 ? kWarp / 8 - 1 - n : n;  // back and forth: b is at hand
                    const uint32_t(&pair)[4] = b[k % 2][j / 2];
                    ptx::mma_m16n8k16(sums[i][j], a[k % 2][i], pair[j % 2 * 2],
                                      pair[j % 2 * 2 + 1]);
                }
        }
    }
}

/// The row and column of blocks that this one computes. Blocks that run at the same time shall find
/// each other's rows of A and columns of B in the L2 cache, so they stand in a square, nearly: the
/// walk goes down a group of 16 rows of blocks, then on to the next column.
__device__ uint2 block_position(unsigned int rows, unsigned int columns) {
    constexpr unsigned int kGroup = 16;
    const unsigned int group = blockIdx.x / (kGroup * columns), i = blockIdx.x % (kGroup * columns);
    const unsigned int height = min(kGroup, rows - group * kGroup);
    return {i / height, group * kGroup + i % height};
}

// Two blocks of four warps, or one of eight, share an SM's registers: 255 per thread.
template <class T>
__global__ void __launch_bounds__(T::kThreads, 256 / T::kThreads)
    mma_ptx(const half* A,  // [N, N] row-major
            const half* B,  // [N, N] row-major
            half* C,        // [N, N] row-major
            size_t N) {
    extern __shared__ __align__(128) unsigned char shared[];
    const uint2 position = block_position((N + T::kM - 1) / T::kM, (N + T::kN - 1) / T::kN);
    const size_t block_row = size_t(position.y) * T::kM, block_col = size_t(position.x) * T::kN;

    Sums sums = {};
    const size_t copied_col = block_col + T::copied_col();
    multiply<T>(sums, reinterpret_cast<typename T::Stage*>(shared), N, &A[block_row * N], N,
                N - block_row, &B[copied_col], N, copied_col < N);

    // The way out: by way of shared memory each thread gets 8 neighbours of a row, 16 bytes.
    ptx::cp_async_wait_group<0>();
    __syncthreads();  // the stages are used up: each warp takes 64 x 64 halfs of their memory
    half* const patch = reinterpret_cast<half*>(shared) + threadIdx.x / 32 * (kWarp * kWarp);
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < kWarp / 16; ++i)
#pragma unroll
        for (int j = 0; j < kWarp / 8; ++j)
#pragma unroll
            for (int e = 0; e < 4; e += 2)  // sums 2 and 3 are of 8 rows below
                *reinterpret_cast<uint32_t*>(
                    &patch[swizzled<kWarp>(i * 16 + e * 4 + lane / 4, j * 8) + lane % 4 * 2]) =
                    ptx::cvt_rn_x2<half>(sums[i][j][e], sums[i][j][e + 1]);
    __syncwarp();
#pragma unroll
    for (int i = 0; i < kWarp; i += 4) {
        const int r = i + lane / 8, c = lane % 8 * kChunk;
        const size_t row = block_row + T::warp_row() + r, col = block_col + T::warp_col() + c;
        if (row < N && col < N)  // N is a multiple of 8: all of them are inside or none
            *reinterpret_cast<uint4*>(&C[row * N + col]) =
                *reinterpret_cast<uint4*>(&patch[swizzled<kWarp>(r, c)]);
    }
}

/// Calls f with the tiles that suit this GPU and an output [M, N]. The wide ones read the fewest
/// bytes per multiply-add; but there has to be room for their stages, 144 KiB, and a block for
/// every SM. On Turing, with 64 KiB, two stages of the others have to do.
template <class F>
auto with_tiles(const demo::Gpu& gpu, size_t M, size_t N, F f) {
    using Wide = Tiles<128, 256, 3>;
    using Square = Tiles<128, 128, 3>;
    if (Wide::kSharedBytes <= gpu.shared_per_block && Wide::kN <= N &&
        Wide::blocks(M, N) >= size_t(gpu.multiprocessors))
        return f(Wide());
    if (Square::kSharedBytes <= gpu.shared_per_block) return f(Square());
    return f(Tiles<128, 128, 2>());
}

/// What launches C = A B, all [N, N] row-major, by mma_ptx with the tiles that suit this GPU. (A
/// template, so that a program that does not call it does not compile the kernel.)
template <class Half>
std::function<void()> prepare_mma_ptx(const Half* A, const Half* B, Half* C, size_t N,
                                      const demo::Gpu& gpu) {
    return with_tiles(gpu, N, N, [&]<class T>(T) {
        demo::allow_shared_bytes(mma_ptx<T>, T::kSharedBytes);
        return std::function<void()>(
            [=] { mma_ptx<T><<<T::blocks(N, N), T::kThreads, T::kSharedBytes>>>(A, B, C, N); });
    });
}

}  // namespace matmul_mma
