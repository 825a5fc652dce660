// Lesson 3's helpers, which 6_gating_fused uses again: a block of 4 warps multiplies a tile of A by
// a tile of B with nvcuda::wmma. 3_matmul_tensorcore explains them, and has the picture.
#pragma once

#include <cuda_fp16.h>
#include <cuda_pipeline.h>
#include <mma.h>

namespace wmma_tile {

namespace wmma = nvcuda::wmma;

constexpr int kFragment = 16;  // fragments are 16 x 16 x 16
using FragmentA = wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::row_major>;
using FragmentB = wmma::fragment<wmma::matrix_b, 16, 16, 16, half, wmma::row_major>;
using Accumulator = wmma::fragment<wmma::accumulator, 16, 16, 16, float>;

// --- The way out --------------------------------------------------------------------------------

constexpr int kPatchPitch = 20;                  // floats in a row: 16, and 4 of padding
constexpr int kPatch = kFragment * kPatchPitch;  // floats

/// Which elements of a fragment in a patch are this lane's: 8 neighbors, 16 bytes of fp16.
__device__ int patch_row() { return threadIdx.x % 32 / 2; }
__device__ int patch_col() { return threadIdx.x % 2 * 8; }

/// Writes a fragment to `patch`, kPatch floats of shared memory, this warp's own. Returns where
/// this lane's 8 elements begin. Before the patch is used again, __syncwarp().
__device__ const float* through_patch(const Accumulator& accumulator, float* patch) {
    wmma::store_matrix_sync(patch, accumulator, kPatchPitch, wmma::mem_row_major);
    __syncwarp();
    return &patch[patch_row() * kPatchPitch + patch_col()];
}

/// Stores a fragment as fp16.
__device__ void store_as_half(const Accumulator& accumulator, float* patch,
                              half* C,  // [16, 16] row-major, part of a matrix with `pitch` columns
                              size_t pitch) {
    const float* const sums = through_patch(accumulator, patch);
    alignas(16) half converted[8];
    for (int i = 0; i < 8; ++i) converted[i] = __float2half(sums[i]);
    *reinterpret_cast<uint4*>(&C[patch_row() * pitch + patch_col()]) =
        *reinterpret_cast<uint4*>(converted);
    __syncwarp();  // the patch may be overwritten
}

// --- Tiles in shared memory ---------------------------------------------------------------------

constexpr int kBlockM = 128, kBlockN = 128, kBlockK = 32;  // a block's tiles
constexpr int kWarpM = 64, kWarpN = 64;                    // a warp's part of the 128 x 128 sums
constexpr int kThreads = 32 * (kBlockM / kWarpM) * (kBlockN / kWarpN);
constexpr int kPad = 8;  // halfs after each row

struct Stage {
    half A[kBlockM][kBlockK + kPad];
    half B[kBlockK][kBlockN + kPad];
};

/// Starts the asynchronous copy of a tile [kRows, kColumns] into shared memory, 16 bytes at a time.
/// Of the matrix there are `rows` and `columns` from this tile's corner on: the rest becomes 0.
template <int kRows, int kColumns>
__device__ void copy_tile(half* to, int to_pitch, const half* from, size_t pitch, size_t rows,
                          size_t columns) {
    constexpr int kChunks = kColumns / 8;  // of 16 bytes, per row
    const int col = threadIdx.x % kChunks * 8;
    for (int row = threadIdx.x / kChunks; row < kRows; row += kThreads / kChunks) {
        const bool inside = size_t(row) < rows && size_t(col) < columns;
        __pipeline_memcpy_async(&to[row * to_pitch + col], &from[inside ? row * pitch + col : 0],
                                16, inside ? 0 : 16);
    }
}

// --- The main loop ------------------------------------------------------------------------------

/// A warp's 64 x 64 sums: 4 x 4 fragments.
struct WarpTile {
    Accumulator sums[kWarpM / kFragment][kWarpN / kFragment];

    /// Where this warp's part begins in the block's.
    const int warp = threadIdx.x / 32;
    const int row = warp / (kBlockN / kWarpN) * kWarpM, col = warp % (kBlockN / kWarpN) * kWarpN;
};

/// sums += the warp's rows of stage.A times its columns of stage.B.
__device__ void multiply_stage(WarpTile& tile, const Stage& stage) {
    for (int k = 0; k < kBlockK; k += kFragment) {
        FragmentA a[kWarpM / kFragment];
        for (int i = 0; i < kWarpM / kFragment; ++i)
            wmma::load_matrix_sync(a[i], &stage.A[tile.row + i * kFragment][k], kBlockK + kPad);
        for (int j = 0; j < kWarpN / kFragment; ++j) {
            FragmentB b;
            wmma::load_matrix_sync(b, &stage.B[k][tile.col + j * kFragment], kBlockN + kPad);
            for (int i = 0; i < kWarpM / kFragment; ++i)
                wmma::mma_sync(tile.sums[i][j], a[i], b, tile.sums[i][j]);
        }
    }
}

/// The main loop over all tiles of k. copy_stage(stage, t) starts the copies of tile t.
template <int kStages, class CopyStage>
__device__ void multiply_tiles(WarpTile& tile, Stage* stages, size_t tiles, CopyStage copy_stage) {
    for (auto& row : tile.sums)
        for (auto& sum : row) wmma::fill_fragment(sum, 0.0f);
    for (size_t t = 0; t < kStages - 1; ++t) {
        if (t < tiles) copy_stage(stages[t], t);
        __pipeline_commit();  // an empty group counts too, so that the wait below stays the same
    }
    for (size_t t = 0; t < tiles; ++t) {
        __pipeline_wait_prior(kStages - 2);  // this thread's part of tile t has arrived
        __syncthreads();                     // everyone's has, and tile t - 1 is used up
        const size_t next = t + kStages - 1;
        if (next < tiles) copy_stage(stages[next % kStages], next);
        __pipeline_commit();
        multiply_stage(tile, stages[t % kStages]);
    }
    __syncthreads();  // the last stage is used up: the stages' memory may serve the way out
}

}  // namespace wmma_tile
