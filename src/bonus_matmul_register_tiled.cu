// Bonus: C = A B in fp32 without tensor cores, step by step up to the library's speed.
//
// Each of a multiprocessor's four schedulers starts one instruction a cycle, for the 32 threads of
// a warp, and has units for 32 multiply-adds. So every other instruction, and every cycle in which
// no warp can go on, is a multiply-add lost. In 2_matmul_sharedmem each multiply-add reads two
// numbers from shared memory (40 loads for 32, as compiled). The way out is reuse in registers:
//
//                 b: 8 numbers            a thread's 8 x 8 sums: 16 numbers from shared memory,
//                 +-+-+-+-+-+-+-+-+       once in registers, feed 64 multiply-adds. That is a
//                 +-+-+-+-+-+-+-+-+       quarter of a load each, instead of two.
//         a: 8 +-+  . . . . . . . .
//              +-+  . . . . . . . .
//              +-+  . . . . . . . .
//
// The last rung shares the tiles out so that all multiprocessors have the same to do. Before it an
// H200's 132 had 32 tiles at N = 1024. What limits it is the register file.
//
//     ./bonus_matmul_register_tiled 4096
//
// (Percentages are ncu's, on an H200 at N = 4096.) bonus_matmul_mma starts again on tensor cores.
#include <cuda_pipeline.h>

#include "demo.cuh"
#include "demo/cublas.cuh"
#include "demo/launch.cuh"
#include "matmul/matmul.cuh"
#include "matmul/stream_k.hpp"

namespace matmul_register_tiled {

// N is a multiple of 32, but no tile's rows or columns need divide it: past the last row or column,
// a block at the edge loads it again, and does not store the results.

// --- 1: block_tiled, eight sums per thread ------------------------------------------------------
// Adds    a thread computes 8 elements of a column: it reads b once for 8 multiply-adds.
// Costs   8 registers for sums.
// Limits  shared memory, busy 75% of the time: a is read for every multiply-add, if for four k at a
//         time. And global memory's latency between the barriers. 57% of instructions multiply-add.
// Source  search for: thread coarsening, register blocking.

__global__ void __launch_bounds__(512) block_tiled(const float* A,  // [N, N] row-major
                                                   const float* B,  // [N, N] row-major
                                                   float* C,        // [N, N] row-major
                                                   size_t N) {
    constexpr int kTile = 64, kTileK = 8, kRows = 8;  // a thread's sums: 8 rows of one column
    __shared__ float tile_A[kTile][kTileK];
    __shared__ float tile_B[kTileK][kTile];
    const size_t block_row = size_t(blockIdx.y) * kTile, block_col = size_t(blockIdx.x) * kTile;
    const int x = threadIdx.x % kTile, y = threadIdx.x / kTile;  // of 64 x 8
    const int row_A = threadIdx.x / kTileK, k_A = threadIdx.x % kTileK;
    const float* const from_A = &A[min(block_row + row_A, N - 1) * N + k_A];
    const float* const from_B = &B[y * N + min(block_col + x, N - 1)];

    float sums[kRows] = {};
    for (size_t k0 = 0; k0 < N; k0 += kTileK) {
        tile_A[row_A][k_A] = from_A[k0];
        tile_B[y][x] = from_B[k0 * N];
        __syncthreads();  // the tiles are complete
        for (int k = 0; k < kTileK; ++k) {
            const float b = tile_B[k][x];  // read once, used for all eight sums
            for (int i = 0; i < kRows; ++i) sums[i] += tile_A[y * kRows + i][k] * b;
        }
        __syncthreads();  // nobody needs the tiles any more
    }

    const size_t col = block_col + x;
    for (int i = 0; i < kRows; ++i) {
        const size_t row = block_row + y * kRows + i;
        if (row < N && col < N) C[row * N + col] = sums[i];
    }
}

// --- 2: register_tiled, 8 x 8 sums per thread ---------------------------------------------------
// Adds    reuse of both a and b, and tiles of 128 x 128 instead of 64 x 64: 1/32 of a byte from
//         global memory for each operation, not 1/16. So instructions are issued more often.
// Costs   127 registers a thread, so that only 16 warps fit a multiprocessor.
// Limits  instructions: every load of 4 bytes is one, and its address others. 55% multiply-add.
// Source  CUTLASS, Efficient GEMM in CUDA, "Thread-level GEMM".

__global__ void __launch_bounds__(256) register_tiled(const float* A,  // [N, N] row-major
                                                      const float* B,  // [N, N] row-major
                                                      float* C,        // [N, N] row-major
                                                      size_t N) {
    constexpr int kTile = 128, kTileK = 8, kSums = 8, kStride = kTile / kSums;
    __shared__ float tile_A[kTile][kTileK];
    __shared__ float tile_B[kTileK][kTile];
    const size_t block_row = size_t(blockIdx.y) * kTile, block_col = size_t(blockIdx.x) * kTile;
    const int x = threadIdx.x % kStride, y = threadIdx.x / kStride;  // of columns x, x + 16, ...

    float sums[kSums][kSums] = {};
    for (size_t k0 = 0; k0 < N; k0 += kTileK) {
        for (int e = threadIdx.x; e < kTile * kTileK; e += 256) {
            const int row = e / kTileK, k = e % kTileK;
            tile_A[row][k] = A[min(block_row + row, N - 1) * N + k0 + k];
        }
        for (int e = threadIdx.x; e < kTileK * kTile; e += 256) {
            const int k = e / kTile, col = e % kTile;
            tile_B[k][col] = B[(k0 + k) * N + min(block_col + col, N - 1)];
        }
        __syncthreads();  // the tiles are complete
        for (int k = 0; k < kTileK; ++k) {
            float a[kSums], b[kSums];  // 16 numbers feed 64 multiply-adds
            for (int i = 0; i < kSums; ++i) a[i] = tile_A[y + i * kStride][k];
            for (int j = 0; j < kSums; ++j) b[j] = tile_B[k][x + j * kStride];
            for (int i = 0; i < kSums; ++i)
                for (int j = 0; j < kSums; ++j) sums[i][j] += a[i] * b[j];
        }
        __syncthreads();  // nobody needs the tiles any more
    }

    for (int i = 0; i < kSums; ++i)
        for (int j = 0; j < kSums; ++j) {
            const size_t row = block_row + y + i * kStride, col = block_col + x + j * kStride;
            if (row < N && col < N) C[row * N + col] = sums[i][j];
        }
}

// --- 3: vectorized, 16 bytes at a time ----------------------------------------------------------
// Adds    loads of 16 bytes, a quarter as many; and asynchronous copies into shared memory, two
//         tiles ahead, so that hardly a warp waits for global memory any more.
// Costs   three stages of shared memory, with A transposed in them.
// Limits  bank conflicts: a warp's lanes lie 2 x 16, so a load of B asks for 256 bytes, and shared
//         memory delivers 128 a cycle. 74% multiply-add.
// Source  CUDA C++ Programming Guide, "Asynchronous Data Copies".

/// A tile of A and a tile of B in shared memory. A is transposed, so that four neighboring rows
/// are 16 bytes that one load fetches; four columns of padding let the copies of eight k hit
/// different banks.
template <int kM, int kN, int kK>
struct Stage {
    float A[kK][kM + 4];
    float B[kK][kN];
};

/// Copies one pair of tiles after the other, along k, into stages that the caller names. All the
/// addresses are made before the main loop, which then only adds to them.
template <int kM, int kN, int kK, int kThreads>
class TileCopies {
    static constexpr int kChunks = kN / 4;  // of 16 bytes, in a row of B
    // Rows that all threads together copy at once: of A 8 elements each, of B all.
    static constexpr int kRowsA = kThreads / 8, kRowsB = kThreads / kChunks;

  public:
    /// Of rows block_row ... of A and columns block_col ... of B: so many pairs of tiles from k on.
    __device__ TileCopies(const float* A, const float* B, size_t N, size_t block_row,
                          size_t block_col, size_t k, int pairs)
        : N_(N), left_(pairs) {
        for (int i = 0; i < kM / kRowsA; ++i)
            from_A_[i] = &A[min(block_row + row_A_ + i * kRowsA, N - 1) * N + k + k_A_];
        from_B_ = &B[(k + k_B_) * N + min(block_col + col_B_, N - 4)];
    }

    /// Starts copying the next pair of tiles. After the last one it copies that again, into a stage
    /// that nobody reads any more: so the main loop needs no branch.
    __device__ void start(Stage<kM, kN, kK>& stage) {
        for (int i = 0; i < kM / kRowsA; ++i)  // 4 bytes at a time, so that A can be transposed
            for (int k = 0; k < kK; k += 8)
                __pipeline_memcpy_async(&stage.A[k_A_ + k][row_A_ + i * kRowsA], from_A_[i] + k, 4);
        for (int i = 0; i < kK / kRowsB; ++i)
            __pipeline_memcpy_async(&stage.B[k_B_ + i * kRowsB][col_B_], from_B_ + i * kRowsB * N_,
                                    16);
        __pipeline_commit();

        const size_t step = --left_ > 0 ? kK : 0;
        for (const float*& from : from_A_) from += step;
        from_B_ += step * N_;
    }

  private:
    const int row_A_ = threadIdx.x / 8, k_A_ = threadIdx.x % 8;
    const int k_B_ = threadIdx.x / kChunks, col_B_ = threadIdx.x % kChunks * 4;
    const float *from_A_[kM / kRowsA], *from_B_;
    const size_t N_;
    int left_;  // pairs
};

__device__ float4& as_float4(float& first) { return reinterpret_cast<float4&>(first); }
__device__ const float4& as_float4(const float& first) {
    return reinterpret_cast<const float4&>(first);
}

__global__ void __launch_bounds__(256) vectorized(const float* A,  // [N, N] row-major
                                                  const float* B,  // [N, N] row-major
                                                  float* C,        // [N, N] row-major
                                                  size_t N) {
    constexpr int kTile = 128, kTileK = 8, kStages = 3, kSums = 8, kHalf = kTile / 2;
    alignas(16) __shared__ Stage<kTile, kTile, kTileK> stages[kStages];
    const size_t block_row = size_t(blockIdx.y) * kTile, block_col = size_t(blockIdx.x) * kTile;
    const int row = threadIdx.x / 16 * 4, col = threadIdx.x % 16 * 4;  // of 4 x 4 sums, four times

    TileCopies<kTile, kTile, kTileK, 256> copies(A, B, N, block_row, block_col, 0, N / kTileK);
    for (int t = 0; t < kStages - 1; ++t) copies.start(stages[t]);

    float sums[kSums][kSums] = {};
    for (size_t t = 0; t < N / kTileK; ++t) {
        __pipeline_wait_prior(kStages - 2);  // this thread's part of tile t has arrived
        __syncthreads();                     // everyone's has, and tile t - 1 is used up
        copies.start(stages[(t + kStages - 1) % kStages]);

        const auto& stage = stages[t % kStages];
        for (int k = 0; k < kTileK; ++k) {
            float a[kSums], b[kSums];  // 4 loads feed 64 multiply-adds
            for (int i = 0; i < kSums; i += 4) {
                as_float4(a[i]) = as_float4(stage.A[k][row + i / 4 * kHalf]);
                as_float4(b[i]) = as_float4(stage.B[k][col + i / 4 * kHalf]);
            }
            for (int i = 0; i < kSums; ++i)
                for (int j = 0; j < kSums; ++j) sums[i][j] += a[i] * b[j];
        }
    }
    __pipeline_wait_prior(0);

    for (int i = 0; i < kSums; ++i)
        for (int j = 0; j < kSums; j += 4) {
            const size_t r = block_row + row + i / 4 * kHalf + i % 4;
            const size_t c = block_col + col + j / 4 * kHalf;
            if (r < N && c < N) as_float4(C[r * N + c]) = as_float4(sums[i][j]);
        }
}

// --- 4: warp_tiled, square warp tiles, 16 x 8 sums per thread -----------------------------------
// Adds    lanes that lie 4 x 8, and a warp's part of C is a square, 64 x 64: its loads ask for 64
//         or 128 bytes. Each thread loads what k + 1 needs while it multiplies for k. Blocks are
//         128 x 256, and run in bands, for the L2 cache's sake.
// Costs   217 registers a thread, so only 8 warps fit, two per scheduler.
// Limits  the register file. It has two banks, and a multiply-add reads three registers: one must
//         come from the small cache of what was read just before. 92% multiply-add.
// Source  CUTLASS, Efficient GEMM in CUDA, "Warp-level GEMM".

constexpr int kWarp = 64;  // a warp's part of C: 64 x 64
constexpr int kThreadM = 16, kThreadN = 8, kSums = kThreadM * kThreadN;  // a thread's sums
constexpr int kLanesM = kWarp / kThreadM, kLanesN = kWarp / kThreadN;    // 4 x 8 lanes
constexpr int kWarps = 8, kThreads = 32 * kWarps;

/// A block's tile of C, and the k of one stage. If a tile has fewer parts of 64 x 64 than the block
/// has warps, the warps divide each stage's k: each slice of warps sums up its own k.
template <int M, int N, int K>
struct Tile {
    static constexpr int kM = M, kN = N, kK = K;
    static constexpr int kSlices = kWarps / (kM / kWarp * (kN / kWarp));
    static constexpr int kSliceThreads = kThreads / kSlices, kSliceK = kK / kSlices;
    static constexpr int kShare = kThreadM / kSlices;  // rows of a thread's sums, of each slice
    using Stage = matmul_register_tiled::Stage<kM, kN, kK>;
};
using Large = Tile<128, 256, 16>;

/// Where in the block's tile a thread's sums are, and which slice of each stage's k it takes.
template <class Tile>
struct Place {
    // Lanes lie 4 x 8, in pairs: 0 and 2 have the same rows, 0 and 1 the same columns. A pass of
    // shared memory gives 128 bytes: to 8 lanes, or to 16 where such neighbors want the same 16.
    static constexpr int kWarpsN = Tile::kN / kWarp;
    const int thread = threadIdx.x % Tile::kSliceThreads, slice = threadIdx.x / Tile::kSliceThreads;
    const int warp = thread / 32, lane = thread % 32;
    const int row = warp / kWarpsN * kWarp + (lane / 16 * 2 + lane % 2) * 4;
    const int col = warp % kWarpsN * kWarp + lane / 2 % 8 * 4;
};

/// Adds up a thread's sums over so many stages from k on.
template <class Tile, int kStages>
__device__ void multiply(float (&sums)[kThreadM][kThreadN], typename Tile::Stage* stages,
                         const float* A, const float* B, size_t N, size_t block_row,
                         size_t block_col, size_t k, int steps) {
    using Stage = typename Tile::Stage;
    const Place<Tile> at;
    float a[2][kThreadM], b[2][kThreadN];  // the fragments of this k and of the next
    auto load_fragments = [&](const Stage& stage, int k) {
        const int slice_k = at.slice * Tile::kSliceK + k;
        for (int i = 0; i < kThreadM; i += 4)
            as_float4(a[k % 2][i]) = as_float4(stage.A[slice_k][at.row + i * kLanesM]);
        for (int j = 0; j < kThreadN; j += 4)
            as_float4(b[k % 2][j]) = as_float4(stage.B[slice_k][at.col + j * kLanesN]);
    };

    TileCopies<Tile::kM, Tile::kN, Tile::kK, kThreads> copies(A, B, N, block_row, block_col, k,
                                                              steps);
    for (int t = 0; t < kStages - 1; ++t) copies.start(stages[t]);
    __pipeline_wait_prior(kStages - 2);
    __syncthreads();
    load_fragments(stages[0], 0);

    int reading = 0;  // stage
    for (; steps > 0; --steps) {
        const int next = reading + 1 < kStages ? reading + 1 : 0;
        const int previous = reading > 0 ? reading - 1 : kStages - 1;
#pragma unroll
        for (int k = 0; k < Tile::kSliceK; ++k) {
            // (If the loads came first, the compiler would bunch them up, and warps wait for them.)
            if (k == 0) copies.start(stages[previous]);
            if (k + 1 < Tile::kSliceK) {
                load_fragments(stages[reading], k + 1);
            } else {
                __pipeline_wait_prior(kStages - 2);  // this thread's part of the next is there
                __syncthreads();                     // everyone's is, and these are used up
                load_fragments(stages[next], 0);
            }

            // To and fro along the rows: neighboring multiply-adds share a or b, which the second
            // then has from the register file's cache.
            for (int i = 0; i < kThreadM; ++i)
                for (int n = 0; n < kThreadN; ++n) {
                    const int j = i % 2 == 0 ? n : kThreadN - 1 - n;
                    sums[i][j] += a[k % 2][i] * b[k % 2][j];
                }
        }
        reading = next;
    }
    __pipeline_wait_prior(0);
}

/// Stores a thread's part of a tile of C: all rows of its sums, or of each slice its share of them.
template <class Tile>
__device__ void store(float (&sums)[kThreadM][kThreadN], float* C, size_t N, size_t block_row,
                      size_t block_col, float alpha) {
    const Place<Tile> at;
    const int first = Tile::kSlices > 1 ? at.slice * Tile::kShare : 0;  // of the thread's rows
    for (int i = 0; i < Tile::kShare; ++i)
        for (int j = 0; j < kThreadN; j += 4) {
            const int row = first + i;
            const size_t r = block_row + at.row + row / 4 * 4 * kLanesM + row % 4;
            const size_t c = block_col + at.col + j * kLanesN;
            // As in BLAS, alpha scales the result. It also gives the store registers of its own,
            // four side by side. So in the main loop the compiler is free to keep the sums where
            // register banks do not conflict.
            for (int e = j; e < j + 4; ++e) sums[i][e] *= alpha;
            if (r < N && c < N) as_float4(C[r * N + c]) = as_float4(sums[i][j]);
        }
}

/// Tile i of rows x columns: bands of 16 tiles' height, column after column. So blocks that
/// run at the same time lie in a compact patch of C, and find each other's A and B in the L2 cache.
__device__ uint2 rasterize(unsigned i, unsigned rows, unsigned columns) {
    constexpr unsigned kBand = 16;                         // tiles
    const unsigned first = i / (kBand * columns) * kBand;  // row of tiles
    const unsigned height = min(rows - first, kBand);
    const unsigned within = i - first * columns;
    return {first + within % height, within / height};
}

template <int kStages>
__global__ void __launch_bounds__(kThreads) warp_tiled(const float* A,  // [N, N] row-major
                                                       const float* B,  // [N, N] row-major
                                                       float* C,        // [N, N] row-major
                                                       size_t N, float alpha) {
    extern __shared__ __align__(128) unsigned char shared[];
    const uint2 tile = rasterize(blockIdx.y * gridDim.x + blockIdx.x, gridDim.y, gridDim.x);
    const size_t row = size_t(tile.x) * Large::kM, col = size_t(tile.y) * Large::kN;
    float sums[kThreadM][kThreadN] = {};
    multiply<Large, kStages>(sums, reinterpret_cast<Large::Stage*>(shared), A, B, N, row, col, 0,
                             N / Large::kK);
    store<Large>(sums, C, N, row, col, alpha);
}

// --- 5: stream_k, tiles divided among blocks ----------------------------------------------------
// Adds    as many blocks as multiprocessors, with the same to do. The steps of the tiles that fill
//         no round are lined up and dealt out evenly (matmul/stream_k.hpp); a tile's first block
//         adds the others' sums. Smaller tiles, of which there are more: 128 x 128, or 64 x 128 up
//         to N = 1024. So two or four slices of warps share a tile's k.
// Costs   those sums' way through the L2 cache. And a block may wait for another one, so all must
//         run at the same time: one per multiprocessor.
// Limits  the main loop, as before. At the edges of C, tiles that are partly empty.
// Source  Osama et al., Stream-K, PPoPP 2023; CUTLASS, "Sliced-K" and "Split-K".

using Middle = Tile<128, 128, 16>;
using Small = Tile<64, 128, 32>;

/// Adds all slices' sums, through the stages, which are free now. Slices meet in pairs: each gives
/// half of its rows away, and adds the other's to the rest. In the end each has the whole sums of
/// its share of the rows, as the first ones of `sums`.
template <class Tile>
__device__ void add_slices(float (&sums)[kThreadM][kThreadN], float* shared) {
    constexpr int kRows = 4, kCount = kRows * kThreadN;  // at a time
    static_assert(sizeof(float) * kCount * kThreads <= 2 * sizeof(typename Tile::Stage));
    const int slice = Place<Tile>().slice;
#pragma unroll
    for (int apart = Tile::kSlices / 2; apart > 0; apart /= 2) {
        const bool upper = slice & apart;  // it keeps the upper half
        const int other = threadIdx.x ^ apart * Tile::kSliceThreads;
        const int half = apart * Tile::kShare;
#pragma unroll
        for (int row = 0; row < half; row += kRows) {
            float* const low = sums[row];
            const float* const high = sums[half + row];
            __syncthreads();  // nobody needs what is there any more
            for (int e = 0; e < kCount; ++e) {
                shared[e * kThreads + threadIdx.x] = upper ? low[e] : high[e];
                if (upper) low[e] = high[e];
            }
            __syncthreads();
            for (int e = 0; e < kCount; ++e) low[e] += shared[e * kThreads + other];
        }
    }
}

/// Sums on their way from block to block: each thread's go to the thread of the same number, and a
/// flag of each warp says that they are there. They go one by one: quads would need neighboring
/// registers, and the main loop would have to keep them so.
template <class Tile>
struct Exchange {
    static constexpr int kCount = Tile::kShare * kThreadN;  // of each thread

    float* sums;  // [blocks, kCount, kThreads]
    int* ready;   // [blocks, kWarps], 0 between launches

    __device__ float* of_block(int block) const {
        return &sums[size_t(block) * kCount * kThreads + threadIdx.x];
    }

    /// Leaves this block's sums for another.
    __device__ void give(const float (&mine)[kThreadM][kThreadN]) const {
        float* const to = of_block(blockIdx.x);
        for (int e = 0; e < kCount; ++e) to[e * kThreads] = mine[e / kThreadN][e % kThreadN];
        __syncwarp();  // one fence releases what the whole warp has stored before this
        if (threadIdx.x % 32 == 0) {
            __threadfence();
            atomicExch(&ready[blockIdx.x * kWarps + threadIdx.x / 32], 1);
        }
    }

    /// Adds the sums that `block` gives, once they are there.
    __device__ void add(float (&mine)[kThreadM][kThreadN], int block) const {
        int* const flag = &ready[block * kWarps + threadIdx.x / 32];
        if (threadIdx.x % 32 == 0) {
            while (atomicAdd(flag, 0) == 0) {
            }
            *flag = 0;        // for the next launch
            __threadfence();  // acquires the sums, for the whole warp
        }
        __syncwarp();
        const float* const from = of_block(block);
        for (int e = 0; e < kCount; ++e) mine[e / kThreadN][e % kThreadN] += from[e * kThreads];
    }
};

template <class Tile, int kStages>
__global__ void __launch_bounds__(kThreads)
    stream_k(const float* A,  // [N, N] row-major
             const float* B,  // [N, N] row-major
             float* C,        // [N, N] row-major
             size_t N, float alpha, demo::Deal deal, Exchange<Tile> exchange) {
    extern __shared__ __align__(128) unsigned char shared[];
    typename Tile::Stage* const stages = reinterpret_cast<typename Tile::Stage*>(shared);
    const int rows = (int(N) + Tile::kM - 1) / Tile::kM;
    const int columns = (int(N) + Tile::kN - 1) / Tile::kN;
    // In shared memory, where they take no registers from the main loop.
    __shared__ demo::Part part;
    __shared__ uint2 tile;

    for (int i = 0;; ++i) {
        if (threadIdx.x == 0) {
            part = deal.part(blockIdx.x, i);
            tile = rasterize(part.tile, rows, columns);
        }
        __syncthreads();
        if (part.first == part.last) break;

        float sums[kThreadM][kThreadN] = {};
        multiply<Tile, kStages>(sums, stages, A, B, N, size_t(tile.x) * Tile::kM,
                                size_t(tile.y) * Tile::kN, size_t(part.first) * Tile::kK,
                                part.last - part.first);
        add_slices<Tile>(sums, reinterpret_cast<float*>(shared));
        if (part.first > 0) {
            exchange.give(sums);
        } else {
            // If steps are left, the blocks that follow have them.
            for (int b = blockIdx.x + 1, last = part.last; last < deal.steps; ++b) {
                exchange.add(sums, b);
                last = deal.share(b + 1) - part.tile * deal.steps;
            }
            store<Tile>(sums, C, N, size_t(tile.x) * Tile::kM, size_t(tile.y) * Tile::kN, alpha);
        }
        __syncthreads();  // nobody needs the stages, nor the part, any more
    }
}

/// Three stages where shared memory has room for them, two on Turing.
template <class Tile>
bool three_stages(const demo::Gpu& gpu) {
    return gpu.shared_per_block >= 3 * sizeof(typename Tile::Stage);
}

/// Launches stream_k.
class StreamK {
  public:
    StreamK(const demo::Gpu& gpu, const float* A, const float* B, float* C, size_t N)
        : blocks_(std::max(gpu.multiprocessors, 1)),
          sums_(size_t(blocks_) * kSums * kThreads),
          ready_(size_t(blocks_) * kWarps) {
        DEMO_CHECK(cudaMemset(ready_.data(), 0, ready_.bytes()));
        if (N <= 1024)
            prepare<Small>(gpu, A, B, C, N);
        else
            prepare<Middle>(gpu, A, B, C, N);
    }
    void operator()() const { launch_(); }

  private:
    template <class Tile>
    void prepare(const demo::Gpu& gpu, const float* A, const float* B, float* C, size_t N) {
        const bool three = three_stages<Tile>(gpu);
        const auto kernel = three ? stream_k<Tile, 3> : stream_k<Tile, 2>;
        const size_t bytes = (three ? 3 : 2) * sizeof(typename Tile::Stage);
        demo::allow_shared_bytes(kernel, bytes);
        const size_t rows = (N + Tile::kM - 1) / Tile::kM, columns = (N + Tile::kN - 1) / Tile::kN;
        const demo::Deal deal{int(rows * columns), int(N / Tile::kK), blocks_};
        const Exchange<Tile> exchange{sums_.data(), ready_.data()};
        launch_ = [=] {
            kernel<<<deal.blocks, kThreads, bytes>>>(A, B, C, N, 1.0f, deal, exchange);
        };
    }

    const int blocks_;
    const demo::Buffer<float> sums_;
    const demo::Buffer<int> ready_;
    std::function<void()> launch_;
};

}  // namespace matmul_register_tiled

static void run(demo::Session& session) {
    using namespace matmul_register_tiled;
    const size_t N = session.n();
    const demo::Input<float> A(session, "A", {N, N}), B(session, "B", {N, N});  // random
    const demo::Output<float> C(session, "C", {N, N});
    const demo::MatmulReference reference(session, A, B);

    auto grid = [&](size_t M_tile, size_t N_tile) {
        return dim3((N + N_tile - 1) / N_tile, (N + M_tile - 1) / M_tile);
    };
    auto launch_block_tiled = [&] { block_tiled<<<grid(64, 64), 512>>>(A, B, C, N); };
    auto launch_register_tiled = [&] { register_tiled<<<grid(128, 128), 256>>>(A, B, C, N); };
    auto launch_vectorized = [&] { vectorized<<<grid(128, 128), 256>>>(A, B, C, N); };
    const bool three = three_stages<Large>(session.gpu);
    const auto kernel = three ? warp_tiled<3> : warp_tiled<2>;
    const int shared_bytes = (three ? 3 : 2) * sizeof(Large::Stage);
    demo::allow_shared_bytes(kernel, shared_bytes);
    auto launch_warp_tiled = [&] {
        kernel<<<grid(Large::kM, Large::kN), kThreads, shared_bytes>>>(A, B, C, N, 1.0f);
    };
    const StreamK launch_stream_k(session.gpu, A, B, C, N);

    session.run(demo::matmul_workload<float>(N), reference.check(C),
                {{"block_tiled", demo::Role::kOurs, launch_block_tiled},
                 {"register_tiled", demo::Role::kOurs, launch_register_tiled},
                 {"vectorized", demo::Role::kOurs, launch_vectorized},
                 {"warp_tiled", demo::Role::kOurs, launch_warp_tiled},
                 {"stream_k", demo::Role::kOurs, [&] { launch_stream_k(); }},
                 demo::cublas_contender<float>("cublas_fp32", A, B, C, N)});
}

int main(int argc, char** argv) {
    const demo::Program program{
        .name = "bonus_matmul_register_tiled",
        .summary = "fp32 without tensor cores, in five steps up to the library's speed",
        .types = {{"fp32", run}},
        .grid = {{"stream_k", "cublas_fp32"}, demo::matmul_grid(1024, 8192)}};
    return demo::main_of(program, argc, argv);
}
