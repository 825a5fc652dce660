// Belongs to bonus_matmul_mma, which explains it: the record of fp16 matmuls on GPUs other than
// Hopper, mma_ptx, and its parts. The portable gating kernels are made of the same parts.
#pragma once

#include <functional>

#include "demo.cuh"
#include "demo/launch.cuh"
#include "ptx.cuh"

namespace matmul_mma {

constexpr int kDepth = 64;  // k of a stage
constexpr int kWarp = 64;   // a warp computes 64 x 64 of C: 4 x 8 products of 16 x 8
constexpr int kChunk = 8;   // halfs in 16 bytes, the unit of copies and of the swizzle

/// A thread's part of a warp's 64 x 64 sums. ptx::mma_m16n8k16 says which elements these are.
using Sums = float[kWarp / 16][kWarp / 8][4];
/// A thread's part of 16 columns of A, 64 rows each, or of 16 rows of B, 64 columns each.
using Fragments = uint32_t[kWarp / 16][4];

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

    /// How many blocks cover a matrix [M, N].
    static size_t blocks(size_t M, size_t N) { return ((M + kM - 1) / kM) * ((N + kN - 1) / kN); }
    /// Where this thread's warp stands in the block's tile of C.
    __device__ static int warp_row() { return int(threadIdx.x) / 32 / (kN / kWarp) * kWarp; }
    __device__ static int warp_col() { return int(threadIdx.x) / 32 % (kN / kWarp) * kWarp; }
    /// The first column of B's tile that this thread copies.
    __device__ static int copied_col() { return int(threadIdx.x) % (kN / kChunk) * kChunk; }
};

/// Where [row, col] stands in a swizzled tile; `col` is a multiple of kChunk. Chunk c of a row is
/// in place c ^ (row % 8), so that the same chunk of 8 rows, which ldmatrix reads at a time, is in
/// all 32 banks. bonus_matmul_mma has a picture.
template <int kColumns>
__device__ int swizzled(int row, int col) {
    static_assert(kColumns % 64 == 0);
    return row * kColumns + ((col / kChunk) ^ (row % 8)) * kChunk;
}

/// Starts the asynchronous copy of a tile [kRows, kColumns]. Each thread copies one column of
/// chunks, every kStride-th row. `from` is its chunk in the tile's first row. The matrix has `rows`
/// rows from there on; what is below becomes 0.
template <int kRows, int kColumns, int kThreads>
__device__ void cp_async_tile(half* to, const half* from, size_t pitch, size_t rows) {
    constexpr int kChunks = kColumns / kChunk, kStride = kThreads / kChunks;  // chunks of a row
    const int row = threadIdx.x / kChunks, col = threadIdx.x % kChunks * kChunk;
    const int below = int(min(rows, size_t(kRows))) - row;
    from += row * pitch;
#pragma unroll ptx::kCopiesInARow
    for (int i = 0; i < kRows; i += kStride, from += kStride * pitch)
        ptx::cp_async_16(&to[swizzled<kColumns>(row + i, col)], from, i < below);
}

/// sums += a b, for 16 of k: fragments of a warp's 64 rows of A and 64 columns of B.
__device__ void multiply_fragments(Sums& sums, const Fragments& a, const Fragments& b) {
#pragma unroll
    for (int i = 0; i < kWarp / 16; ++i)
#pragma unroll
        for (int n = 0; n < kWarp / 8; ++n) {
            const int j = i % 2 ? kWarp / 8 - 1 - n : n;  // back and forth: this b was just used
            ptx::mma_m16n8k16(sums[i][j], a[i], b[j / 2][j % 2 * 2], b[j / 2][j % 2 * 2 + 1]);
        }
}

/// The main loop: sums += A[kM, K] B[K, kN] for the warp's part of the block's tile: 64 columns of
/// B, or with kHalves 32 of its tile's left half and the same 32 of the right one.
template <class T, bool kHalves = false>
__device__ void multiply(Sums& sums, typename T::Stage* stages, size_t K,
                         const half* A,  // the block's first row, of `rows`
                         size_t A_pitch, size_t rows,
                         const half* B,  // its first row, from this thread's copied_col() on
                         size_t B_pitch, bool inside) {  // whether that column is inside of B
    constexpr int kMmaSteps = kDepth / 16;
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
    // i % 16 of four matrices, 16 x 16, and the left or the right half.
    Fragments a[2], b[2];
    int a_at[kMmaSteps], b_at[kWarp / 16];  // where the lane's rows are in a stage
#pragma unroll
    for (int k = 0; k < kMmaSteps; ++k)
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
        for (int k = 0; k < kMmaSteps; ++k) {
            if (k + 1 == kMmaSteps) {  // the next fragments are the next tile's
                ptx::cp_async_wait_group<T::kStages - 2>();
                __syncthreads();  // it is complete, and nobody needs this one any more
                reading = reading + 1 == T::kStages ? 0 : reading + 1;
            }
            load(stages[reading], (k + 1) % kMmaSteps);
            if (k == 0) {
                copy(stages[writing], t + T::kStages - 1);
                writing = writing + 1 == T::kStages ? 0 : writing + 1;
            }
            multiply_fragments(sums, a[k % 2], b[k % 2]);
        }
    }
}

/// The block of C to compute: y is its row of blocks, x its column. Blocks start in the order of
/// blockIdx.x. It goes down 16 rows of blocks, then on to the next column, so that blocks that run
/// together (some 16 x 16 on an H200) share rows of A and columns of B.
__device__ uint2 block_position(unsigned int rows, unsigned int columns) {
    constexpr unsigned int kGroup = 16;
    const unsigned int group = blockIdx.x / (kGroup * columns), i = blockIdx.x % (kGroup * columns);
    const unsigned int height = min(kGroup, rows - group * kGroup);
    return {i / height, group * kGroup + i % height};
}

/// Stores a block's sums as fp16. They pass through shared memory, where each thread finds 8
/// neighbors of a row: 16 bytes for one store. Each warp uses 64 x 64 halfs of `patches`, the
/// stages' memory, so all warps must have read their last fragments.
template <class T>
__device__ void store_sums(const Sums& sums, half* patches, half* C, size_t N, size_t block_row,
                           size_t block_col) {
    half* const patch = patches + threadIdx.x / 32 * (kWarp * kWarp);
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

/// A block's tile of C = A B, all [N, N] row-major.
template <class T>
__device__ void compute_tile(const half* A, const half* B, half* C, size_t N, size_t block_row,
                             size_t block_col) {
    extern __shared__ __align__(128) unsigned char shared[];
    Sums sums = {};
    const size_t copied_col = block_col + T::copied_col();
    multiply<T>(sums, reinterpret_cast<typename T::Stage*>(shared), N, &A[block_row * N], N,
                N - block_row, &B[copied_col], N, copied_col < N);
    ptx::cp_async_wait_group<0>();
    __syncthreads();  // the stages are used up
    store_sums<T>(sums, reinterpret_cast<half*>(shared), C, N, block_row, block_col);
}

// --- Rung 4 of bonus_matmul_mma: the wide tile --------------------------------------------------
//
// Adds:    128 x 256 of C per block. That reads 3/4 of the bytes that 128 x 128 reads for each
//          multiply-add.
// Costs:   144 KiB of stages, so one block per SM: nothing computes while it begins or ends. With
//          fewer wide tiles than SMs (N = 2048 on an H200) it keeps 128 x 128.
// Limits:  mma.sync. On an H200 one occupies the tensor cores of a quarter SM for 6 cycles; at the
//          data sheet's rate it would be 4, which wgmma can reach (bonus_matmul_hopper). So the
//          most is 67% of that rate, and this reaches 47%. What is lost: a block's first loads and
//          last stores, waiting at the barrier, and at large N power.
// Source:  CUTLASS, Efficient GEMM in CUDA, "Threadblock-level GEMM".

// Two blocks of four warps, or one of eight, share an SM's registers: 255 per thread.
template <class T>
__global__ void __launch_bounds__(T::kThreads, 256 / T::kThreads)
    mma_ptx(const half* A,  // [N, N] row-major
            const half* B,  // [N, N] row-major
            half* C,        // [N, N] row-major
            size_t N) {
    const uint2 position = block_position((N + T::kM - 1) / T::kM, (N + T::kN - 1) / T::kN);
    compute_tile<T>(A, B, C, N, size_t(position.y) * T::kM, size_t(position.x) * T::kN);
}

/// Calls f with tiles of 128 x 128: three stages of them, or two on Turing, which has 64 KiB.
template <class F>
auto with_square_tiles(const demo::Gpu& gpu, F f) {
    using Square = Tiles<128, 128, 3>;
    if (Square::kSharedBytes <= gpu.shared_per_block) return f(Square());
    return f(Tiles<128, 128, 2>());
}

/// Calls f with the tiles that suit this GPU and an output [M, N]: wide ones where their stages fit
/// shared memory and there is a block for every SM.
template <class F>
auto with_tiles(const demo::Gpu& gpu, size_t M, size_t N, F f) {
    using Wide = Tiles<128, 256, 3>;
    if (Wide::kSharedBytes <= gpu.shared_per_block && Wide::kN <= N &&
        Wide::blocks(M, N) >= size_t(gpu.multiprocessors))
        return f(Wide());
    return with_square_tiles(gpu, f);
}

/// A function that launches mma_ptx for C = A B, all [N, N] row-major, with the tiles that suit
/// this GPU. (A template, so that programs that do not call it do not compile mma_ptx.)
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
