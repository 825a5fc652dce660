// Helpers for kernels in CUDA Tile C++ (<cuda_tile.h>, nvcc 13.3 or later with --enable-tile), and
// whether such kernels can run. "CUDA Tile C++ API Reference" describes all of ct::.
//
// Each block runs a tile kernel once, as if it were one thread whose variables hold whole tiles.
// Which threads do the work, and how, is the compiler's decision: shared memory, barriers, tensor
// cores, copies in advance. So a launch names blocks alone: kernel<<<blocks>>>(...). Ours to decide
// are a tile's size (extents are powers of two), which block computes which tile, what is read more
// than once, and what the compiler may rely on. __tile_global__ and __tile__ stand where other
// kernels have __global__ and __device__.
//
// [[cutile::hint(0, ...)]] is a wish (0: on every GPU). num_worker_warps_per_cta: the warps of a
// block. occupancy: the blocks on a multiprocessor. allow_tma: whether a load or a store may be
// left to TMA, the hardware that copies whole tiles.
#pragma once

#include <string>

#include "demo/device.cuh"

#ifdef __CUDACC_TILE__  // defined by nvcc --enable-tile, and by the simulator
#include <cuda_tile.h>

namespace ct = cuda::tiles;

namespace tile {

/// Pointers to arrays that overlap no other. Without this promise a store might change what a later
/// load reads, so the compiler keeps their order: matmuls become two to four times slower.
template <class T>
using In = const T* __restrict__;
template <class T>
using Out = T* __restrict__;

/// A row-major matrix [rows, cols] in memory, to be loaded and stored by tiles of kRows x kCols.
/// `kAligned` promises that `data` and the bytes of a row are multiples of 16. TMA and 16-byte
/// loads need that.
template <int kRows, int kCols, bool kAligned = true, class T>
__tile__ auto matrix(T* data, size_t rows, size_t cols) {
    constexpr size_t kBytes = kAligned ? 16 : sizeof(T), kElements = kBytes / sizeof(T);
    const ct::extents extents{rows, ct::assume_divisible<kElements>(cols)};
    return ct::partition_view{ct::tensor_span{ct::assume_aligned<kBytes>(data), extents},
                              ct::shape<kRows, kCols>{}};
}

/// `count` such matrices, one after the other, by tiles of one matrix: of 1 x kRows x kCols.
template <int kRows, int kCols, class T>
__tile__ auto matrices(T* data, size_t count, size_t rows, size_t cols) {
    const ct::extents extents{count, rows, ct::assume_divisible<16 / sizeof(T)>(cols)};
    return ct::partition_view{ct::tensor_span{ct::assume_aligned<16>(data), extents},
                              ct::shape<1, kRows, kCols>{}};
}

/// The n-th tile of kCols elements of a row [cols], as fp32, with zeros past its end. The row is
/// aligned as matrix() has it.
template <int kCols, class T>
__tile__ auto row(const T* data, size_t cols, int n) {
    return ct::element_cast<float>(matrix<1, kCols>(data, 1, cols).load_masked(0, n));
}

/// 1 / (1 + e^-v), by the approximate functions, which are a few units of fp32's last place off.
/// The exact ones take three times as many instructions.
__tile__ auto logistic(auto v) {
    return ct::div(1.0f, 1.0f + ct::exp(-v, ct::round_approximate_t{}), ct::round_approximate_t{});
}

/// For load_masked(): elements outside of the matrix are read as -infinity, not as 0.
inline constexpr ct::view_padding_negative_inf_t kMinusInfinity;

/// How many tiles of `extent` elements cover `size`.
__tile__ __host__ constexpr int count(size_t size, int extent) {
    return int((size + extent - 1) / extent);
}

/// A tile's row and column among the tiles of a matrix.
struct Place {
    int row, col;
};

/// Which of rows x cols tiles this block computes. Consecutive blocks go down `group` tiles, then
/// to the next column: so what they load together fits the L2 cache.
__tile__ inline Place place_in_groups(int rows, int cols, int group = 16) {
    const int block = ct::bid().x, first = block / (group * cols) * group;
    const int height = rows - first < group ? rows - first : group;  // the last group may be lower
    const int in_group = block % (group * cols);
    return {first + in_group % height, in_group / height};
}

}  // namespace tile
#endif

namespace tile {

/// Why no tile kernel can run here; empty if one can.
inline std::string why_not(const demo::Gpu& gpu) {
#ifdef __CUDACC_TILE__
    return gpu.compute_capability >= 80 ? "" : "needs compute capability 8.0";
#else
    (void)gpu;
    return "needs nvcc 13.3 or later: scripts/setup.sh --tile";
#endif
}

}  // namespace tile
