// Belongs to lesson 3, 3_matmul_tensorcore: the parts of its kernels. 6, 11 and 13 use them too.
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

constexpr int kPatchPitch = 20;  // floats from row to row: 16, and 4 of padding (see kPad)
constexpr int kPatch = kFragment * kPatchPitch;

/// Which thread holds which element of a fragment is not specified, and C is fp16 where the sums
/// are fp32. So a warp writes a fragment to `patch`, kPatch floats of shared memory that are its
/// own, where each thread finds any element.
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

constexpr int kBlock = 128, kBlockK = 32;  // a block computes 128 x 128 of C, from tiles 32 deep
constexpr int kWarp = 64, kThreads = 128;  // each of its four warps 64 x 64 of that: ...
constexpr int kSide = kWarp / kFragment;   // ... 4 x 4 fragments

// Shared memory has 32 banks; each delivers 4 bytes at a time, and neighboring 4 bytes lie in
// neighboring banks. Loading a fragment reads 16 bytes of 8 rows together. Rows that begin in the
// same banks are read one after the other: a bank conflict. So each row is padded by 16 bytes, and
// the next one begins in other banks.
constexpr int kPad = 8;  // halfs

struct Stage {
    half A[kBlock][kBlockK + kPad];
    half B[kBlockK][kBlock + kPad];
};

/// Starts to copy a tile of kRows x kColumns to shared memory, 16 bytes at a time. The thread goes
/// on at once, and the data does not pass through its registers. `rows` and `columns` remain in
/// the matrix from the tile's corner on: what is outside is not read, and becomes 0.
template <int kRows, int kColumns>
__device__ void copy_tile(half (*to)[kColumns + kPad], const half* from, size_t pitch, size_t rows,
                          size_t columns) {
    constexpr int kChunks = kColumns / 8;  // of 16 bytes, per row
    const int col = threadIdx.x % kChunks * 8;
    for (int row = threadIdx.x / kChunks; row < kRows; row += kThreads / kChunks) {
        const bool inside = size_t(row) < rows && size_t(col) < columns;
        __pipeline_memcpy_async(&to[row][col], &from[inside ? row * pitch + col : 0], 16,
                                inside ? 0 : 16);
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

}  // namespace wmma_tile
