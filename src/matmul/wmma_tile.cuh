// Belongs to lesson 3, 3_matmul_tensorcore: the parts of its kernels. 6, 10 and 11 use them too.
#pragma once

#include <cuda_fp16.h>
#include <cuda_pipeline.h>
#include <mma.h>

namespace wmma_tile {

namespace wmma = nvcuda::wmma;

constexpr int kFragment = 16;  // fragments are 16 x 16
using FragmentA = wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::row_major>;
using FragmentB = wmma::fragment<wmma::matrix_b, 16, 16, 16, half, wmma::row_major>;
using Accumulator = wmma::fragment<wmma::accumulator, 16, 16, 16, float>;

// --- Tiles in shared memory ----------------------------------------------------------------------

constexpr int kBlock = 128, kBlockK = 32;  // a block computes 128 x 128 of C, from tiles 32 deep
constexpr int kWarp = 64, kThreads = 128;  // each of its four warps 64 x 64 of that: ...
constexpr int kSide = kWarp / kFragment;   // ... 4 x 4 fragments

// Shared memory has 32 banks; each delivers 4 bytes at a time, and neighboring 4 bytes lie in
// neighboring banks. Loading a fragment reads 16 bytes of 8 rows together. As they are, all rows of
// B's tile would begin in bank 0, and be read one after the other: a bank conflict. With 16 bytes
// of padding per row, 8 rows begin in 8 different places, and are read at once.
constexpr int kPad = 8;  // halfs

struct Stage {
    half A[kBlock][kBlockK + kPad];
    half B[kBlockK][kBlock + kPad];
};

/// Starts to copy a tile of kRows x kColumns to shared memory. Each thread asks for some pieces of
/// 16 bytes and goes on at once; they arrive later, and do not pass through its registers. `from`
/// is the tile's corner in a matrix with `pitch` columns, and from there on `rows` x `columns` of
/// the matrix remain. What is outside of them is not read, and becomes 0.
template <int kRows, int kColumns>
__device__ void copy_tile(half (*to)[kColumns + kPad], const half* from, size_t pitch, size_t rows,
                          size_t columns) {
    constexpr int kChunks = kColumns / 8;  // of 16 bytes, per row
    const int col = threadIdx.x % kChunks * 8;
    for (int row = threadIdx.x / kChunks; row < kRows; row += kThreads / kChunks) {
        const bool inside = size_t(row) < rows && size_t(col) < columns;
        const size_t zeros = inside ? 0 : 16;  // how many of the 16 bytes become 0 instead
        __pipeline_memcpy_async(&to[row][col], &from[inside ? row * pitch + col : 0], 16, zeros);
    }
}

/// Adds a tile's part to a warp's sums: the warp's 64 rows of A, times its 64 columns of B, from
/// `col` on. Each fragment is loaded once and used 4 times.
template <int kPitch>
__device__ void multiply(Accumulator (&sums)[kSide][kSide], const half (*A)[kPitch],
                         const half (*B)[kBlock + kPad], int col) {
    for (int k = 0; k < kPitch - kPad; k += kFragment) {
        FragmentA a[kSide];
        for (int i = 0; i < kSide; ++i) wmma::load_matrix_sync(a[i], &A[i * kFragment][k], kPitch);
        for (int j = 0; j < kSide; ++j) {
            FragmentB b;
            wmma::load_matrix_sync(b, &B[k][col + j * kFragment], kBlock + kPad);
            for (int i = 0; i < kSide; ++i) wmma::mma_sync(sums[i][j], a[i], b, sums[i][j]);
        }
    }
}

// --- From a fragment to C ------------------------------------------------------------------------
//
// A fragment's sums are fp32, and C is fp16. But which thread holds which element is not specified,
// so no thread can know where in C its own ones belong. Hence the detour: a warp writes a fragment
// to a patch of shared memory, in rows and columns, and reads it again in an order that it knows.

constexpr int kPatchPitch = 20;  // floats from row to row: 16, and 4 of padding (see kPad)
constexpr int kPatch = kFragment * kPatchPitch;

/// Writes a fragment to `patch`, kPatch floats that are the warp's own.
__device__ void to_patch(const Accumulator& fragment, float* patch) {
    wmma::store_matrix_sync(patch, fragment, kPatchPitch, wmma::mem_row_major);
    __syncwarp();  // a barrier for the 32 threads of a warp: the patch is complete
}

/// Stores a fragment as fp16 to C, [16, 16] of a row-major matrix with `pitch` columns: each thread
/// rounds 8 neighbors of a row, 16 bytes in one store.
__device__ void store_as_half(const Accumulator& fragment, float* patch, half* C, size_t pitch) {
    to_patch(fragment, patch);
    const int lane = threadIdx.x % 32, row = lane / 2, col = lane % 2 * 8;
    alignas(16) half rounded[8];
    for (int i = 0; i < 8; ++i) rounded[i] = __float2half(patch[row * kPatchPitch + col + i]);
    reinterpret_cast<uint4*>(&C[row * pitch])[lane % 2] = *reinterpret_cast<uint4*>(rounded);
    __syncwarp();  // the patch may be overwritten
}

/// A fragment each of whose rows is `row`, 16 numbers.
__device__ Accumulator equal_rows(const half* row, float* patch) {
    for (int e = threadIdx.x % 32; e < kFragment * kFragment; e += 32)
        patch[e / kFragment * kPatchPitch + e % kFragment] = row[e % kFragment];
    __syncwarp();  // the patch is complete
    Accumulator fragment;
    wmma::load_matrix_sync(fragment, patch, kPatchPitch, wmma::mem_row_major);
    __syncwarp();  // the patch may be overwritten
    return fragment;
}

}  // namespace wmma_tile
